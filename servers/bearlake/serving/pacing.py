"""The pace of one client connection: how fast its socket is read and written, and when a client that stalls is disconnected.

- Backpressure means that the server stops reading. A protocol's connection says when it must wait (`_must_wait`), and its socket is
  paused exactly then; also while the write path is over its byte budget or memory for the next frame is short (`serving/receiving.py`).
- A client that has used up its quota waits: its socket is not read for as long as the quota says (`throttle`). Source: KIP-219. After
  that, its connections take their frames in turn (`waiter`).
- A client that began a frame must send all of it within `stall_ms`, not counting the time in which this server did not read. While bytes
  wait to be sent to a client, it must read some of them within `stall_ms`.
- A task that fails is a bug. It closes its own connection only, with the reason in the log and in a metric.

A protocol's `Connection` adds its frames and commands: `_process`, `_must_wait`, `check`.
"""

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from bearlake.serving.addresses import address_of
from bearlake.serving.first_pause import pause_again
from bearlake.serving.hangups import has_hung_up, limit_unread_time
from bearlake.serving.receiving import LogPosition, Receiver
from bearlake.serving.slabs import SlabPool
from bearlake.serving.slow_readers import SlowReaders
from bearlake.streams.quotas.lines import Waiter
from bearlake.telemetry.containment import fault
from bearlake.telemetry.meters import Counter, Family, Gauge

log = logging.getLogger(__name__)

UNREAD_BYTES_MIN = 64 * 1024
"""Bytes from which a client that may still be sent more counts as a slow reader, if a check finds them."""
_KERNEL_EXTRA_S = 10
"""Time (s) after `stall_ms` at which the kernel ends a connection: later than the check every 5 s, which counts it and logs the reason."""

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionMeters:
    """Metrics of a protocol server's connections."""

    open: Gauge
    opened: Counter
    closed: Family[Counter]
    """Connections that the server closed, by reason."""
    paused: Gauge
    malformed: Counter
    received_bytes: Counter
    sent_bytes: Counter
    receive_buffer_bytes: Gauge
    receive_buffer_bytes_max: Gauge


class Register(Protocol[C_contra]):
    """The register of connections: `serving.connections.Connections`."""

    loop: asyncio.AbstractEventLoop

    @property
    def slabs(self) -> SlabPool:
        """Receive buffers."""

    @property
    def slow_readers(self) -> SlowReaders:
        """The connections whose clients do not read."""

    @property
    def meters(self) -> ConnectionMeters:
        """Metrics of the protocol's connections."""

    def add(self, connection: C_contra) -> bool:
        """Count an open connection; returns False if there are too many."""

    def remove(self, connection: C_contra) -> None:
        """Remove a closed connection."""

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task; it is cancelled when the server closes."""


class Budget(Protocol):
    """The bound on bytes that wait to be written, and the known end of the log: `streams.service.Streams`."""

    @property
    def seen(self) -> LogPosition:
        """The newest log position that this server knows."""

    @property
    def is_over_budget(self) -> bool:
        """Whether connections must accept no more records."""

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again."""

    def leave_relief(self, resume: Callable[[], None]) -> None:
        """Do not call `resume` any more."""


class PacedConnection(Receiver, ABC):
    """Protocol object of one accepted socket."""

    JOIN_BYTES = 16 * 1024
    """Chunks of fewer bytes in total are joined before the write: a copy is cheaper than a gathering write."""

    def __init__(self, register: Register[Self], budget: Budget, listener: str, stall_ms: int) -> None:
        """`listener` is the name of the endpoint that accepted the connection, such as `kafka:EXTERNAL`."""
        super().__init__(register.slabs, budget.seen)
        self.listener = listener
        self.peer = ""
        """`host:port` of the client."""
        self.address = ""
        """Address of the client."""
        self._register = register
        self._loop = register.loop
        self._meters = register.meters
        self._budget = budget
        self._stall_s = stall_ms / 1000
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks that are cancelled when the connection closes."""
        self._last_active = self._loop.time()  # when the last frame was taken, or reading resumed (s, the loop's clock)
        self._frame_since = 0.0  # when the incomplete frame began to arrive (s, the loop's clock); 0 if there is none
        self._is_processing = False  # set by a protocol whose frames may call `_resume` while `_process` runs
        self._waits_for_budget = False
        self.quota_wait: asyncio.TimerHandle | None = None
        """Ends the time for which this connection is not read because of a quota; None: it may be read."""
        self.waiter = Waiter(self.end_quota_wait)
        """The connection in lines for a quota (`streams/quotas/lines.py`)."""
        self._is_reading_paused = False
        self._is_write_paused = False
        self._ready_bytes = 0
        """Bytes of complete answers that are not in the transport: a protocol that answers in order holds them back."""
        self._written_bytes = 0  # to the transport
        self._read_bytes = 0
        """Bytes that had left the transport at the last check, or when writing was paused."""
        self._unsent_since = self._last_active
        """When the client last read some of its unsent bytes (s, the loop's clock), or the last check at which no byte waited for it."""

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def connection_made(self: Self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio.Transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self.address = address_of(peer)
        sock = transport.get_extra_info("socket")
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        if sock is not None:
            self._descriptor = sock.fileno()
            limit_unread_time(sock, round((self._stall_s + _KERNEL_EXTRA_S) * 1000))
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._register.add(self):
            self.close("too many connections", "connections_max")

    def connection_lost(self: Self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._register.remove(self)
        self._transport = None
        self._descriptor = -1
        for task in self._tasks:
            task.cancel()
        if self.quota_wait is not None:
            self.quota_wait.cancel()
        self.waiter.leave()
        self._budget.leave_relief(self._relieved)
        self._release()
        self._record_unread(0)
        if self._is_reading_paused:
            self._meters.paused.inc(-1)

    @property
    def waits_for_quota(self) -> bool:
        """Whether frames wait because of a quota."""
        return self.quota_wait is not None or self.waiter.is_waiting

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent to the client."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self, why: str, reason: str) -> None:
        """Close at once; `reason` is the metric's label, `why` explains it to people. Safe to repeat."""
        if self._transport is not None and not self._transport.is_closing():
            self._meters.closed.labels(reason).inc()
            log.info("connection closed", extra={"peer": self.peer, "listener": self.listener, "why": why})
            self._transport.abort()

    def close_if_abandoned(self) -> bool:
        """Close if the client has closed its end, and so does not wait for an answer any more; returns whether it has. One system call."""
        is_abandoned = has_hung_up(self._descriptor)
        if is_abandoned:
            self.close("the client has gone without its answer", "abandoned")
        return is_abandoned

    def _cut(self, why: str, reason: str) -> None:
        """As `close`; a connection that already closes, but has bytes for its client, does not send them any more."""
        if self.is_open:
            self.close(why, reason)
        elif self._transport is not None and self._transport.get_write_buffer_size():
            self._meters.closed.labels(reason).inc()
            self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """The bytes in the transport and those held back behind them, for `SlowReaders`."""
        unsent_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return unsent_bytes + (self._ready_bytes if unsent_bytes or self.is_open else 0)

    @property
    def read_bytes(self) -> int:
        """The bytes that have left the transport, for `SlowReaders`."""
        return self._written_bytes - (0 if self._transport is None else self._transport.get_write_buffer_size())

    def give_up(self) -> None:
        """Close because clients left too many bytes unread; called by `SlowReaders`."""
        self._cut("clients left too many answers unread, and this one for longest", "slow_reader")

    def failed(self, error: BaseException) -> None:
        """Close at once because of a bug that is already logged."""
        self.close(f"internal error: {error!r}", "internal_error")

    @abstractmethod
    def check(self, now: float) -> None:
        """Check for stalls and idleness; called every few seconds, with the loop's clock as `now` (s)."""

    def _close_if_stalled(self, now: float) -> None:
        self._record_if_empty()
        is_arriving = self._frame_since and not self._is_reading_paused and self.is_open
        if is_arriving and now - self._frame_since > self._stall_s:
            self.close("a request did not arrive in time", "slow_request")
        elif self._transport is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            is_waiting = self._is_write_paused or (unsent_bytes > 0 and self._transport.is_closing())
            if not is_waiting or self.read_bytes > self._read_bytes:
                self._unsent_since = now
            elif now - self._unsent_since > self._stall_s:
                self._cut("the client does not read its responses", "slow_reader")
            self._read_bytes = self.read_bytes
            self._record_unread(self.unread_bytes if is_waiting or self.unread_bytes > UNREAD_BYTES_MIN else 0)

    # -- receive -------------------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: `nbytes` more have arrived."""
        self._received(nbytes)
        self._meters.received_bytes.value += nbytes
        if self._high - self._low >= self._need:
            self._process()
        elif self._slab is not None and self._lacks_room(self._slab):
            self._pace()

    @abstractmethod
    def _process(self) -> None:
        """Take whole frames from the slab while there is room for them; calls `_processed` at the end."""

    def _processed(self, first: int) -> None:
        """Record that whole frames were taken, the first one at position `first` of the slab."""
        now = self._loop.time()
        self._last_active = now
        if self._low == self._high:
            self._frame_since = 0.0
        elif self._low != first or not self._frame_since:
            self._frame_since = now
        self._release_consumed()
        self._pace()

    def _malformed(self, error: Exception) -> None:
        self._meters.malformed.inc()
        self.close(str(error), "malformed")

    # -- pace ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _must_wait(self) -> bool:
        """Whether no more frames may be taken now."""

    def _pace(self) -> None:
        """Read the socket if and only if more frames can be taken."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        must_wait = self._must_wait()
        if not must_wait:
            self._prepare()
            must_wait = self._wish is not None
        if must_wait and not self._is_reading_paused:
            self._is_reading_paused = True
            self._meters.paused.inc()
            transport.pause_reading()
        elif not must_wait and self._is_reading_paused:
            self._is_reading_paused = False
            self._meters.paused.inc(-1)
            self._last_active = self._loop.time()
            if self._frame_since:
                self._frame_since = self._last_active  # this server caused the pause, not the client
            transport.resume_reading()

    def _wait_for_budget(self) -> None:
        """Take no more frames until the write path has room again."""
        self._waits_for_budget = True
        self._budget.on_relief(self._relieved)

    def throttle(self, wait_s: float) -> bool:
        """Take no more frames for `wait_s` seconds, or until a longer wait that has begun ends; returns whether the connection waits."""
        if self._transport is not None and wait_s > 0:
            present = self.quota_wait
            if present is None or present.when() < self._loop.time() + wait_s:
                if present is not None:
                    present.cancel()
                self.quota_wait = self._loop.call_later(wait_s, self.end_quota_wait)
                self._pace()
                self._loop.call_soon(self._keep_paused)  # the connection may be new
        return self.quota_wait is not None

    def _keep_paused(self) -> None:
        if self._is_reading_paused and self._transport is not None:
            pause_again(self._transport)

    def end_quota_wait(self) -> None:
        """End the wait for a quota, and take frames again. Called when the wait is over, and when the turn has come in a line."""
        if self.quota_wait is not None:
            self.quota_wait.cancel()
            self.quota_wait = None
        self._resume()

    def _relieved(self) -> None:
        self._waits_for_budget = False
        self._resume()

    def _resume(self) -> None:
        """Continue if there is room again. Raises nothing: a bug closes this connection, and its caller resumes further connections."""
        try:
            self._resume_frames()
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "resume a connection", error, self.failed)

    def _resume_frames(self) -> None:
        is_held = self._is_reading_paused and not self._is_processing
        if is_held and self._transport is not None and not self._must_wait():
            if self._slab is not None:
                self._process()
            else:
                self._pace()

    # -- send ----------------------------------------------------------------------------------------------------

    def _write(self, transport: asyncio.Transport, chunks: Sequence[bytes | bytearray | memoryview], size: int) -> None:
        """Pass `chunks` of `size` bytes in total to the transport, with one call."""
        self._meters.sent_bytes.value += size
        self._written_bytes += size
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif size <= self.JOIN_BYTES:
            transport.write(b"".join(chunks))
        else:
            transport.writelines(chunks)

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not read what it is sent."""
        self._is_write_paused = True
        if self._transport is not None:
            self._unsent_since = self._loop.time()
            self._read_bytes = self.read_bytes
            self._record_unread(self.unread_bytes)
        self._pace()

    def resume_writing(self) -> None:
        """Called by the event loop: the client has read what it was sent."""
        self._is_write_paused = False
        self._record_unread(0)

    def _record_unread(self, unread_bytes: int) -> None:
        self._register.slow_readers.record(self, unread_bytes)

    # -- tasks ---------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> asyncio.Task[None]:
        """Run the work of a request. An error that it raises is a bug, and closes the connection.

        `is_cancelled_on_close` False: the work continues after the client has gone.
        """
        task = self._register.run(work)
        if is_cancelled_on_close:
            self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("request failed", exc_info=error, extra={"peer": self.peer})
        self.failed(error)
