"""One client connection: bytes in, frames out of a slab, requests run concurrently, answers in request order.

- The socket is read into pooled slabs (`serving/slabs.py`); a Produce request's batches stay there as views until they are sealed.
- Requests of a connection are read ahead and run at once (bounded), but answered in order (Kafka protocol guide). Produce requests
  reach the write path in the order they came (I3): they are submitted inline, and wait behind one that must wait.
- Backpressure is not reading: over the write path's byte budget, over `requests_in_flight_max`, over `response_bytes_max` of
  answers that the client does not take, the socket is paused.
- A frame that breaks the protocol closes this connection, with its reason in the log and in a metric, and nothing else.
"""

import asyncio
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Corrupt
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.broker import Context
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.handlers import api_versions, produce
from bearlake.serving.slabs import SIZES, Slab
from bearlake.streams.principal import ANONYMOUS
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.protocols.kafka.server import KafkaServer

log = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_API_AND_VERSION = struct.Struct(">hh")
_READ_BYTES = 1024 * 1024
_ROOM_BYTES_MIN = 16 * 1024
_WRITE_BYTES = (
    1024 * 1024
)  # answers given to the transport at once, so that a client that does not read is noticed soon
_JOIN_BYTES = 16 * 1024  # smaller answers are cheaper to copy than to gather


class Slot:
    """The place of one answer in the connection's order."""

    __slots__ = ("api", "chunks", "is_ready", "started")

    def __init__(self, api: int) -> None:
        self.api = api
        self.started = time.perf_counter()
        self.is_ready = False
        self.chunks: Sequence[codec.Buffer] = ()


class Connection(asyncio.BufferedProtocol):
    """Protocol object of one accepted socket."""

    def __init__(self, server: "KafkaServer", listener: str) -> None:
        self.server = server
        self.listener = listener
        self.who = ANONYMOUS
        self.peer = ""
        self.last_active = asyncio.get_running_loop().time()
        self._context = Context(-1, ANONYMOUS, None, listener, "")
        self._transport: asyncio.Transport | None = None
        self._slab: Slab | None = None
        self._low = 0  # first byte that is not consumed
        self._high = 0  # first byte that is not received
        self._need = 0  # bytes from _low on that the frame under way has, 0 while its size is unknown
        self._size_class = 0
        self._slots: deque[Slot] = deque()
        self._ready_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.produce_tail: asyncio.Task[None] | None = None
        self._is_pumping = False
        self._is_write_paused = False
        self._is_reading_paused = False
        self._waits_for_budget = False

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
        for task in self._tasks:
            task.cancel()
        self._slots.clear()
        if self._slab is not None:
            self._slab.release()
            self._slab = None
        if self._is_reading_paused:
            metrics.KAFKA_PAUSED.inc(-1)

    def close(self, why: str, reason: str) -> None:
        """Close at once; `reason` is the metric's label, `why` says it to a human."""
        if self._transport is not None and not self._transport.is_closing():
            metrics.KAFKA_CONNECTIONS_REFUSED.labels(reason).inc()
            log.info("connection closed", extra={"peer": self.peer, "listener": self.listener, "why": why})
            self._transport.abort()

    def close_if_idle(self) -> bool:
        """Close when nothing is under way; whether it did."""
        if self._slots or self._tasks or self._high > self._low:
            return False
        if self._transport is not None:
            self._transport.close()
        return True

    # -- receive -------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop: where the next bytes go."""
        slab = self._slab
        if slab is None:
            slab = self._slab = self.server.slabs.take(SIZES[self._size_class])
            self._low = self._high = 0
        elif self._low == self._high and slab.holders == 1:
            self._low = self._high = 0
        if slab.size - self._high < _ROOM_BYTES_MIN or self._low + self._need > slab.size:
            slab = self._move(slab)
        return slab.view[self._high : self._high + _READ_BYTES]

    def _move(self, old: Slab) -> Slab:
        """Go on in a fresh slab, with the frame under way."""
        have = self._high - self._low
        if self._size_class + 1 < len(SIZES):
            self._size_class += 1
        slab = self.server.slabs.take(max(SIZES[self._size_class], self._need, have + _ROOM_BYTES_MIN))
        slab.view[:have] = old.view[self._low : self._high]
        old.release()
        self._slab, self._low, self._high = slab, 0, have
        return slab

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: `nbytes` more have arrived."""
        self._high += nbytes
        metrics.KAFKA_RECEIVED_BYTES.inc(nbytes)
        if self._high - self._low >= self._need:
            self._process()

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
        slots, in_flight_max = self._slots, limits.requests_in_flight_max
        while self._high - self._low >= 4 and len(slots) < in_flight_max:
            (size,) = _SIZE.unpack_from(view, self._low)
            if not 8 <= size <= limits.request_bytes_max:
                self._malformed(f"a request of {size} bytes: expected 8 to {limits.request_bytes_max}")
                return
            start = self._low + 4
            if self._high - start < size:
                self._need = size + 4
                break
            self._low = start + size
            try:
                self._request(view[start : start + size], slab)
            except BearlakeError as error:
                self._malformed(str(error))
                return
            if self._transport is None:
                return
        self.last_active = self.server.loop.time()
        self._pace()

    def _malformed(self, why: str) -> None:
        metrics.KAFKA_MALFORMED_FRAMES.inc()
        self.close(why, "malformed")

    def release_idle_memory(self) -> None:
        """Give the slab back while nothing is in it; for connections that are quiet."""
        slab = self._slab
        if slab is not None and self._low == self._high and slab.holders == 1 and self._is_reading_paused is False:
            slab.release()
            self._slab = None
            self._size_class = 0

    # -- pace ----------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        limits = self.server.settings
        return (
            self._is_write_paused
            or len(self._slots) >= limits.requests_in_flight_max
            or self._ready_bytes >= limits.response_bytes_max
            or self.server.is_over_budget
        )

    def _pace(self) -> None:
        """Read the socket exactly while more can be taken."""
        must_wait = self._must_wait()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if must_wait and not self._is_reading_paused:
            self._is_reading_paused = True
            metrics.KAFKA_PAUSED.inc()
            transport.pause_reading()
        elif not must_wait and self._is_reading_paused:
            self._is_reading_paused = False
            metrics.KAFKA_PAUSED.inc(-1)
            transport.resume_reading()
        if must_wait and self.server.is_over_budget and not self._waits_for_budget:
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
        self._pace()

    def resume_writing(self) -> None:
        """Called by the event loop: the client has taken its answers."""
        self._is_write_paused = False
        self._pump()

    # -- requests ------------------------------------------------------------------------------------------------

    def _request(self, frame: memoryview, slab: Slab) -> None:
        key, version = _API_AND_VERSION.unpack_from(frame)
        api = self.server.apis.get(key)
        if api is None:
            raise Corrupt(f"API key {key} is not served here; ask ApiVersions first")
        header, position = codec.read_request_header(frame)
        self.server.meters[key].requests.inc()
        slot = Slot(key)
        self._slots.append(slot)
        if not api.version_min <= version <= api.version_max:
            if key != ApiKey.API_VERSIONS:
                raise Corrupt(
                    f"{api.key.name} version {version} is not served, expected {api.version_min} to {api.version_max}"
                )
            self.answer(slot, api_versions.unsupported(header.correlation_id))
            return
        context = self._context
        if context.version != version or context.client_id != header.client_id:
            context = self._context = Context(version, self.who, header.client_id, self.listener, self.peer)
        if key == ApiKey.PRODUCE:
            produce.receive(self, slot, context, header.correlation_id, frame, position, slab)
            return
        request = codec.request(key, version).decode(frame, position)
        self.start(self._run(slot, context, header.correlation_id, key, request))

    def start(self, work: Any) -> asyncio.Task[None]:
        """Run a coroutine as a task that this connection owns: it is cancelled with the connection, its errors close it."""
        task: asyncio.Task[None] = self.server.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Corrupt):
            self._malformed(str(error))
        else:
            log.error("request failed", exc_info=error, extra={"peer": self.peer})
            self.close(f"internal error: {error!r}", "internal_error")

    async def _run(self, slot: Slot, context: Context, correlation_id: int, key: int, request: Any) -> None:
        response = await self.server.handlers[key](self.server.broker, context, request)
        self.answer(slot, codec.response(key, context.version).frame(correlation_id, response))

    # -- answers -------------------------------------------------------------------------------------------------

    def answer(self, slot: Slot, chunks: Sequence[codec.Buffer]) -> None:
        """Fill the slot (no chunks: the request has no answer); what is ready is sent, in order, before the loop waits again."""
        slot.chunks = chunks
        slot.is_ready = True
        for chunk in chunks:
            self._ready_bytes += len(chunk)
        self.server.meters[slot.api].seconds.observe(time.perf_counter() - slot.started)
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
                for chunk in slots.popleft().chunks:
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
        self._go_on()
