"""One client connection: bytes in, commands out of a slab, frames back.

- A message is turned into a record batch as soon as it is there, so nothing points into the receive buffer afterwards.
- Commands without an answer to wait for (SEND, ACK, FLOW, …) are carried out inline, in order; requests run as tasks beside each other,
  bounded, and are answered when they are done: clients tell answers apart by their request ids. What concerns one consumer or producer
  keeps its order all the same (`consumers.py`, `producers.py`).
- Backpressure is not reading: over `sends_in_flight_max`, `requests_in_flight_max` or `unsent_bytes_max` of this connection, and at a SEND
  over the write path's byte budget. Consumers get nothing while the client does not take what it was sent.
- A client that says nothing is asked for a PONG, and disconnected if it stays silent.
- A frame that breaks the protocol closes this connection, with its reason in the log and in a metric, and nothing else.
"""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from bearlake import kernel
from bearlake.errors import BearlakeError, Corrupt, Overloaded
from bearlake.protocols.pulsar import commands, framing, handlers
from bearlake.protocols.pulsar.errors import error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandPing
from bearlake.serving.receiving import Receiver
from bearlake.streams.principal import ANONYMOUS
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.protocols.pulsar.consumers import Consumer
    from bearlake.protocols.pulsar.producers import Producer
    from bearlake.protocols.pulsar.server import PulsarServer
    from bearlake.protocols.pulsar.watchers import Watcher

log = logging.getLogger(__name__)

_SEND = commands.NUMBERS["send"]
_CONNECT = commands.NUMBERS["connect"]
_JOIN_BYTES = 64 * 1024  # what is smaller is cheaper to copy than to gather


class Connection(Receiver):
    """Protocol object of one accepted socket."""

    def __init__(self, server: "PulsarServer", endpoint: str, scheme: str) -> None:
        super().__init__(server.slabs)
        self.server = server
        self.context = server.context
        self.endpoint = endpoint
        self.scheme = scheme
        self.who = ANONYMOUS
        self.peer = ""
        self.client_version = ""
        """What the client says of itself."""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.send_count = 0
        """Messages and batches that are not durable yet."""
        self._is_connected = False
        self._transport: asyncio.Transport | None = None
        self._last_heard = server.loop.time()
        self._is_asked = False  # a PING is out
        self._frame_since = 0.0  # when the frame under way began to arrive, 0 without one
        self._tasks: set[asyncio.Task[None]] = set()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_write_paused = False
        self._unsent_bytes = 0  # in the transport at the last look
        self._unsent_since = 0.0
        self._is_reading_paused = False
        self._is_processing = False
        self._waits_for_budget = False

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio.Transport
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=self.server.settings.unsent_bytes_max)
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
        self._out.clear()
        for task in self._tasks:
            task.cancel()
        for producer in list(self.producers.values()):
            producer.abandoned()
        for consumer in list(self.consumers.values()):
            consumer.disconnected()
        for watcher in self.watchers.values():
            self.context.watchers.remove(watcher)
        self._release()
        if self._is_reading_paused:
            metrics.PULSAR_PAUSED.inc(-1)

    @property
    def is_open(self) -> bool:
        """Whether the client can still be told anything."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self, why: str, reason: str) -> None:
        """Close at once; `reason` is the metric's label, `why` says it to a human."""
        if self._transport is not None and not self._transport.is_closing():
            metrics.PULSAR_CONNECTIONS_REFUSED.labels(reason).inc()
            log.info("connection closed", extra={"peer": self.peer, "listener": self.endpoint, "why": why})
            self._transport.abort()

    def move_producers(self) -> None:
        """Drain: send every producer to another server once what it sent is answered."""
        for producer in list(self.producers.values()):
            if producer.name:
                producer.move(self.url_elsewhere(str(producer.topic.name)))

    def move_consumers(self) -> None:
        """Drain: send the consumers that are left (readers) to other servers."""
        for consumer in list(self.consumers.values()):
            consumer.move()

    def url_elsewhere(self, topic: str) -> str | None:
        """URL of the server that takes a topic's clients over; None if there is no other."""
        address = self.context.elsewhere(topic, self.endpoint)
        return f"{self.scheme}://{address}" if address is not None else None

    def finish(self) -> None:
        """Close when what was said has left."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def look_after(self, now: float) -> None:
        """Ask a silent client for a word, and close when it stays silent or gets on too slowly; to be called every few seconds."""
        settings = self.server.settings
        if self._frame_since and not self._is_reading_paused and now - self._frame_since > settings.stall_ms / 1000:
            self.close("a command did not arrive in time", "slow_request")
        elif self._is_write_paused:
            self._check_taking(now)
        elif not self._is_reading_paused and now - self._last_heard > settings.keep_alive_ms / 1000:
            if not self._is_connected:
                self.close("no CONNECT in time", "silent")
            elif not self._is_asked:
                self._is_asked, self._last_heard = True, now
                self.send(commands.frame("ping", CommandPing()))
            else:
                self.close("no answer to PING", "silent")
        elif now - self._last_heard > settings.keep_alive_ms / 2000:
            self.release_idle_memory()

    def _check_taking(self, now: float) -> None:
        assert self._transport is not None
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_since = now
        elif now - self._unsent_since > self.server.settings.stall_ms / 1000:
            self.close("the client does not take what it is sent", "slow_reader")
        self._unsent_bytes = unsent_bytes

    # -- receive -------------------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: `nbytes` more have arrived."""
        self._high += nbytes
        metrics.PULSAR_RECEIVED_BYTES.inc(nbytes)
        if self._high - self._low >= self._need:
            self._process()
        elif self._slab is not None and self._lacks_room(self._slab):
            self._pace()

    def _process(self) -> None:
        """Carry out whole frames from the slab while there is room for more."""
        self._need = 0
        first = self._low
        self._is_processing = True
        try:
            while not self._must_wait() and (self._take_sends() or self._take_frame()):
                pass
        except BearlakeError as error:
            metrics.PULSAR_MALFORMED_FRAMES.inc()
            self.close(str(error), "malformed")
            return
        finally:
            self._is_processing = False
        if self._transport is None:
            return
        now = self.server.loop.time()
        self._last_heard, self._is_asked = now, False
        if self._low == self._high:
            self._frame_since = 0.0
        elif self._low != first or not self._frame_since:
            self._frame_since = now
        self._settle()
        self._pace()

    def _take_sends(self) -> bool:
        """Carry out the SENDs that come next and are as most are, in one go; False when there is none."""
        slab = self._slab
        if not self.producers or slab is None or self.context.streams.is_over_budget:
            return False
        room = self.server.settings.sends_in_flight_max - self.send_count
        parsed = kernel.parse_sends(slab.view, self._low, self._high, room, *self.server.send_limits)
        if not parsed:
            return False
        self._low = parsed[-1][3]
        self.server.count(_SEND, len(parsed))
        handlers.send_parsed(self, parsed)
        return self._transport is not None

    def _take_frame(self) -> bool:
        """Carry out the next frame; False when it is not there yet, or has to wait. Raises `Corrupt`."""
        slab = self._slab
        start = self._low + framing.SIZE.size
        if slab is None or self._high < start:
            return False
        (size,) = framing.SIZE.unpack_from(slab.view, self._low)
        if size > self.server.frame_bytes_max:
            raise Corrupt(f"a frame of {size} bytes: expected at most {self.server.frame_bytes_max}")
        if self._high - start < size:
            self._need = framing.SIZE.size + size
            return False
        command, message = framing.read_frame(slab.view[start : start + size])
        number = command.type
        if number == _SEND and self.context.streams.is_over_budget:
            self._waits_for_budget = True
            self.context.streams.on_relief(self._relieved)
            return False
        self._low = start + size
        if (number == _CONNECT) == self._is_connected:
            raise Corrupt("expected one CONNECT, as the first command")
        self.server.count(number)
        if number == _SEND:
            handlers.send(self, command.send, message)
        else:
            handlers.carry_out(self, number, command)
        return self._transport is not None

    def connected(self) -> None:
        """CONNECT was answered: other commands are taken from now on."""
        self._is_connected = True

    def check_room(self) -> None:
        """Raise `Overloaded` when this connection must not have one more producer or consumer."""
        limit = self.server.settings.attachments_max
        if len(self.producers) + len(self.consumers) >= limit:
            raise Overloaded(f"the connection has {limit} producers and consumers, which is the limit")

    def endpoint_named(self, listener: str) -> tuple[str, str]:
        """Endpoint and URL scheme of the listener that a client asks for by name; of its own one for an empty or unknown name."""
        endpoint = f"{self.server.name}:{listener}"
        scheme = self.server.schemes.get(endpoint) if listener else None
        return (endpoint, scheme) if scheme is not None else (self.endpoint, self.scheme)

    # -- pace ----------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        settings = self.server.settings
        return (
            self._is_write_paused
            or self._waits_for_budget
            or self._wish is not None
            or self.send_count >= settings.sends_in_flight_max
            or len(self._tasks) >= settings.requests_in_flight_max
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
            metrics.PULSAR_PAUSED.inc()
            transport.pause_reading()
        elif not must_wait and self._is_reading_paused:
            self._is_reading_paused = False
            metrics.PULSAR_PAUSED.inc(-1)
            self._last_heard = self.server.loop.time()
            if self._frame_since:
                self._frame_since = self._last_heard  # the pause was ours
            transport.resume_reading()

    def _relieved(self) -> None:
        self._waits_for_budget = False
        self._go_on()

    def _go_on(self) -> None:
        is_held = self._is_reading_paused and not self._is_processing
        if is_held and self._transport is not None and not self._must_wait():
            if self._slab is not None:
                self._process()
            else:
                self._pace()

    def sent(self, count: int) -> None:
        """`count` messages or batches have been answered."""
        self.send_count -= count
        if self._is_reading_paused:
            self._go_on()

    # -- requests ------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run what a request needs; it is cancelled with the connection. What it raises is a bug, and closes the connection."""
        task = self.server.run(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("request failed", exc_info=error, extra={"peer": self.peer})
            self.close(f"internal error: {error!r}", "internal_error")
        self._go_on()

    def refuse(self, request_id: int, error: BearlakeError) -> None:
        """Answer a request with an error."""
        number = error_of(error)
        self.server.count_error(number)
        self.send(commands.error(request_id, number, str(error)))

    # -- send ----------------------------------------------------------------------------------------------------

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not take what it was sent."""
        return self._is_write_paused

    def send(self, frame: bytes) -> None:
        """Send a frame, with all others of this turn of the event loop."""
        if self._transport is None:
            return
        if not self._out:
            self.server.loop.call_soon(self._flush)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= self.server.settings.unsent_bytes_max:
            self._flush()

    def _flush(self) -> None:
        transport, out, size = self._transport, self._out, self._out_bytes
        if transport is None or not out:
            return
        self._out, self._out_bytes = [], 0
        metrics.PULSAR_SENT_BYTES.inc(size)
        if len(out) == 1:
            transport.write(out[0])
        elif size <= _JOIN_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not take what it is sent."""
        self._is_write_paused = True
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._unsent_since = self.server.loop.time()
        self._pace()

    def resume_writing(self) -> None:
        """Called by the event loop: the client has taken it."""
        self._is_write_paused = False
        for consumer in list(self.consumers.values()):
            consumer.resume()
        self._go_on()
