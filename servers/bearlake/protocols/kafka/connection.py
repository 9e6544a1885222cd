"""One client connection: bytes in, frames out of a slab, requests run concurrently, answers in request order.

- The socket is read into pooled slabs (`serving/slabs.py`); a Produce request's batches stay there as views until they are sealed.
- Requests of a connection are read ahead and run at once (bounded), but answered in order (Kafka protocol guide). Produce requests
  reach the write path in the order they came (I3): they are submitted inline, and wait behind one that must wait.
- Backpressure is not reading. The socket is paused over `requests_in_flight_max`, over `response_bytes_max` of answers that the client
  does not take, and at a Produce request over the write path's byte budget; heartbeats and fetches of other connections go on.
- Three lanes run beside each other: Produce; Fetch, one after the other, so that a client that does not read pins one answer; all others,
  one after the other as in Kafka, so that a commit is not overtaken by the next one or by a leave.
- When the client goes, its long polls and joins are cancelled; what changes something is carried through.
- A frame that breaks the protocol closes this connection, with its reason in the log and in a metric, and nothing else.
"""

import asyncio
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Corrupt
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller
from bearlake.protocols.kafka.framing import PRODUCE, may_be_large
from bearlake.protocols.kafka.handlers import api_versions, produce, produce_pipelined
from bearlake.protocols.kafka.rendered import Rendered
from bearlake.protocols.kafka.slot import Slot
from bearlake.serving.receiving import Receiver
from bearlake.serving.slabs import Slab
from bearlake.streams.principal import ANONYMOUS
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.protocols.kafka.server import KafkaServer

log = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_API_AND_VERSION = struct.Struct(">hh")
_WRITE_BYTES = 1 << 20  # answers given to the transport at once, so that a client that does not read is noticed soon
_JOIN_BYTES = 16 * 1024  # smaller answers are cheaper to copy than to gather
_WAITING = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs that may wait for long and change nothing that the client does not ask for again."""


class Connection(Receiver):
    """Protocol object of one accepted socket."""

    def __init__(self, server: "KafkaServer", listener: str) -> None:
        super().__init__(server.slabs)
        self.server = server
        self.listener = listener
        self.who = ANONYMOUS
        self.peer = ""
        self.last_active = asyncio.get_running_loop().time()
        self._caller = Caller(-1, ANONYMOUS, None, listener, "")
        self._transport: asyncio.Transport | None = None
        self._frame_since = 0.0  # when the frame under way began to arrive, 0 without one
        self._slots: deque[Slot] = deque()
        self._request_count = 0  # in the slots
        self._produce_lead: produce_pipelined.Lead | None = None  # of the last Produce request that came alone
        self._ready_bytes = 0
        self._waiting_tasks: set[asyncio.Task[None]] = set()
        self._fetches: deque[Coroutine[None, None, None]] = deque()  # behind the one that runs
        self._is_fetching = False
        self._others: deque[tuple[int, Coroutine[None, None, None]]] = deque()  # API and work, behind the one that runs
        self._is_working = False
        self.produce_tail: asyncio.Task[None] | None = None
        self._is_pumping = False
        self._is_write_paused = False
        self._unsent_bytes = 0  # in the transport when it last said that it has enough
        self._unsent_since = 0.0
        self._is_reading_paused = False
        self._waits_for_budget = False
        self._is_finishing = False

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio.Transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.server.add(self):
            self.close("too many connections", "connections_max")

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self.server.remove(self)
        self._transport = None
        for task in self._waiting_tasks:
            task.cancel()
        while self._fetches:
            self._fetches.popleft().close()
        self._slots.clear()
        self._request_count = 0
        self._release()
        self._note_unsent(0)
        if self._is_reading_paused:
            metrics.KAFKA_PAUSED.inc(-1)

    def close(self, why: str, reason: str) -> None:
        """Close at once; `reason` is the metric's label, `why` says it to a human."""
        if self._transport is not None and not self._transport.is_closing():
            metrics.KAFKA_CONNECTIONS_REFUSED.labels(reason).inc()
            log.info("connection closed", extra={"peer": self.peer, "listener": self.listener, "why": why})
            self._transport.abort()

    def close_if_idle(self) -> None:
        """Close when nothing is under way."""
        if not self._slots and self.produce_tail is None and self._high == self._low and self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Take no more requests, and close as soon as nothing is under way but waits; to be called until it is closed."""
        self._is_finishing = True
        self._pace()
        is_busy = any(slot.is_ready or slot.api not in _WAITING for slot in self._slots)
        if not is_busy and self.produce_tail is None and self._transport is not None:
            self._transport.close()

    def close_if_stalled(self, now: float) -> None:
        """Close when the client is in the middle of a request, or of taking its answers, and gets on too slowly."""
        limit_s = self.server.settings.stall_ms / 1000
        if self._frame_since and not self._is_reading_paused and now - self._frame_since > limit_s:
            self.close("a request did not arrive in time", "slow_request")
        elif self._is_write_paused and self._transport is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._note_unsent(unsent_bytes)
                self._unsent_since = now
            elif now - self._unsent_since > limit_s:
                self.close("the client does not take its answers", "slow_reader")

    # -- receive -------------------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: `nbytes` more have arrived."""
        self._high += nbytes
        metrics.KAFKA_RECEIVED_BYTES.inc(nbytes)
        if self._high - self._low >= self._need:
            self._process()
        elif self._slab is not None and self._lacks_room(self._slab):
            self._pace()

    def _process(self) -> None:
        """Take whole frames from the slab while there is room to run them."""
        slab = self._slab
        assert slab is not None
        view = slab.view
        limits = self.server.settings
        self._need = 0
        if self._must_wait():
            self._pace()
            return
        is_over_budget = self.server.is_over_budget
        in_flight_max = limits.requests_in_flight_max
        first = self._low
        try:
            if self._produce_lead is not None and not is_over_budget and self.produce_tail is None:
                room = in_flight_max - self._request_count
                self._low = produce_pipelined.take(self, self._produce_lead, slab, first, self._high, room)
            while self._high - self._low >= 4 and self._request_count < in_flight_max:
                (size,) = _SIZE.unpack_from(view, self._low)
                start = self._low + 4
                if not 8 <= size <= limits.control_request_bytes_max and not may_be_large(
                    size, view[start : self._high], limits
                ):
                    self._need = 6  # look again when the API key is there
                    break
                if self._high - start < size:
                    self._need = size + 4
                    break
                if is_over_budget and view[start : start + 2] == PRODUCE:
                    self._wait_for_budget()
                    break
                self._low = start + size
                self._request(view[start : start + size], slab)
                if self._transport is None:
                    return
        except BearlakeError as error:
            self._malformed(str(error))
            return
        now = self.server.loop.time()
        self.last_active = now
        if self._low == self._high:
            self._frame_since = 0.0
        elif self._low != first or not self._frame_since:
            self._frame_since = now
        self._settle()
        self._pace()

    def _malformed(self, why: str) -> None:
        metrics.KAFKA_MALFORMED_FRAMES.inc()
        self.close(why, "malformed")

    # -- pace ----------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        limits = self.server.settings
        return (
            self._is_write_paused
            or self._request_count >= limits.requests_in_flight_max
            or self._ready_bytes >= limits.response_bytes_max
            or self._waits_for_budget
            or self._wish is not None
            or self._is_finishing
        )

    def _pace(self) -> None:
        """Read the socket exactly while more can be taken."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        must_wait = self._must_wait()
        if not must_wait:
            self._prepare()
            must_wait = self._wish is not None
        if must_wait and not self._is_reading_paused:
            self._is_reading_paused = True
            metrics.KAFKA_PAUSED.inc()
            transport.pause_reading()
        elif not must_wait and self._is_reading_paused:
            self._is_reading_paused = False
            metrics.KAFKA_PAUSED.inc(-1)
            if self._frame_since:
                self._frame_since = self.server.loop.time()  # the pause was ours
            transport.resume_reading()

    def _wait_for_budget(self) -> None:
        self._waits_for_budget = True
        self.server.on_relief(self._relieved)

    def _relieved(self) -> None:
        self._waits_for_budget = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_reading_paused and self._transport is not None and not self._must_wait():
            if self._slab is not None:
                self._process()
            else:
                self._pace()

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not take its answers."""
        self._is_write_paused = True
        if self._transport is not None:
            self._note_unsent(self._transport.get_write_buffer_size())
            self._unsent_since = self.server.loop.time()
        self._pace()

    def resume_writing(self) -> None:
        """Called by the event loop: the client has taken its answers."""
        self._is_write_paused = False
        self._note_unsent(0)
        self._pump()

    def _note_unsent(self, unsent_bytes: int) -> None:
        self.server.context.unsent_bytes += unsent_bytes - self._unsent_bytes
        self._unsent_bytes = unsent_bytes

    # -- requests ------------------------------------------------------------------------------------------------

    def add(self, slot: Slot) -> None:
        """Give requests their place; they are under way from now on."""
        self._slots.append(slot)
        self._request_count += slot.count
        self.server.meters[slot.api].requests.inc(slot.count)

    def _request(self, frame: memoryview, slab: Slab) -> None:
        key, version = _API_AND_VERSION.unpack_from(frame)
        api = self.server.apis.get(key)
        if api is None:
            raise Corrupt(f"API key {key} is not served here; ask ApiVersions first")
        header, position = codec.read_request_header(frame)
        slot = Slot(key)
        self.add(slot)
        if not api.version_min <= version <= api.version_max:
            if key != ApiKey.API_VERSIONS:
                raise Corrupt(
                    f"{api.key.name} version {version} is not served, expected {api.version_min} to {api.version_max}"
                )
            self.answer(slot, api_versions.unsupported(header.correlation_id))
            return
        caller = self._caller
        if caller.version != version or caller.client_id != header.client_id:
            caller = self._caller = Caller(version, self.who, header.client_id, self.listener, self.peer)
        if key == ApiKey.PRODUCE:
            if version >= produce.VERSION_MIN:
                self._produce_lead = (caller, bytes(frame[8:position]))
            produce.receive(self, slot, caller, header.correlation_id, frame, position, slab)
            return
        request = codec.request(key, version).decode(frame, position)
        work = self._run(slot, caller, header.correlation_id, key, request)
        if key == ApiKey.FETCH:
            self._fetches.append(work)
            self._fetch_next()
        else:
            self._others.append((key, work))
            self._work_next()

    def _fetch_next(self) -> None:
        if self._fetches and not self._is_fetching and not self._is_write_paused:
            self._is_fetching = True  # until its answer is given to the transport
            self.start(self._fetches.popleft(), is_waiting=True)

    def _work_next(self) -> None:
        while self._others and not self._is_working:
            key, work = self._others.popleft()
            is_waiting = key in _WAITING
            if is_waiting and self._transport is None:
                work.close()
                continue
            self._is_working = True
            self.start(work, is_waiting=is_waiting).add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._is_working = False
        self._work_next()

    def start(self, work: Coroutine[None, None, None], *, is_waiting: bool = False) -> asyncio.Task[None]:
        """Run a request; its errors close the connection. `is_waiting`: it is cancelled with the connection."""
        task = self.server.run_request(work)
        if is_waiting:
            self._waiting_tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._waiting_tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("request failed", exc_info=error, extra={"peer": self.peer})
        self.close(f"internal error: {error!r}", "internal_error")

    async def _run(self, slot: Slot, caller: Caller, correlation_id: int, key: int, request: Any) -> None:
        response = await self.server.handlers[key](self.server.context, caller, request)
        encoder = codec.response(key, caller.version)
        if type(response) is Rendered:
            self.answer(slot, response.frame(correlation_id, encoder.header_version))
        else:
            self.answer(slot, encoder.frame(correlation_id, response))

    # -- answers -------------------------------------------------------------------------------------------------

    def answer(self, slot: Slot, chunks: Sequence[codec.Buffer]) -> None:
        """Fill the slot (no chunks: the request has no answer); what is ready is sent, in order, before the loop waits again."""
        slot.chunks = chunks
        slot.is_ready = True
        for chunk in chunks:
            self._ready_bytes += len(chunk)
        self.server.meters[slot.api].seconds.observe(time.perf_counter() - slot.started, slot.count)
        if not self._is_pumping and self._slots and self._slots[0].is_ready:
            self._is_pumping = True
            self.server.loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send all that is ready with one call: a flush answers many requests of a connection at once."""
        self._is_pumping = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        slots = self._slots
        while slots and slots[0].is_ready and not self._is_write_paused:
            ready: list[codec.Buffer] = []
            size = 0
            while slots and slots[0].is_ready and size < _WRITE_BYTES:
                slot = slots.popleft()
                self._request_count -= slot.count
                if slot.api == ApiKey.FETCH:
                    self._is_fetching = False
                for chunk in slot.chunks:
                    ready.append(chunk)
                    size += len(chunk)
            self._ready_bytes -= size
            metrics.KAFKA_SENT_BYTES.inc(size)
            if len(ready) == 1:
                transport.write(ready[0])
            elif size <= _JOIN_BYTES:
                transport.write(b"".join(ready))
            else:
                transport.writelines(ready)
        self._fetch_next()
        self._go_on()
