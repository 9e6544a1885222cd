"""One Pulsar client connection: reads commands from a slab, sends frames back.

- A message becomes a record batch as soon as it has arrived, so nothing references the receive buffer afterwards.
- Commands that need no waiting (SEND, ACK, FLOW, …) run inline, in order. Requests run concurrently as a bounded number of tasks and are
  answered when they finish: clients match responses by request id. The commands of one consumer or producer still keep their order
  (`consumers.py`, `producers.py`).
- Backpressure stops reading (`serving/pacing.py`): when this connection exceeds `sends_in_flight_max`, `requests_in_flight_max` or
  `unsent_bytes_max`, and at a SEND while the write path is over its byte budget. Consumers get no messages while the client does not read.
- A client over its quota is not read, and its consumers get nothing (`throttling.py`).
- A silent client gets a PING; if it stays silent, it is disconnected.
- A frame that violates the protocol closes only this connection; the reason goes to the log and to a metric.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from typing_extensions import override

from bearlake import kernel
from bearlake.errors import BearlakeError, Corrupt, Overloaded
from bearlake.kernel import SendEntry
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.commands import CommandMeters
from bearlake.protocols.pulsar.consumers import Consumer
from bearlake.protocols.pulsar.context import PROTOCOL, PulsarContext
from bearlake.protocols.pulsar.entries import Prepared
from bearlake.protocols.pulsar.errors import count_error, error_of
from bearlake.protocols.pulsar.producers import Producer
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand, CommandPing, CommandSend
from bearlake.protocols.pulsar.session import FRAME_BYTES_MAX, PulsarListenerLogin, Session
from bearlake.protocols.pulsar.throttling import Throttling
from bearlake.protocols.pulsar.watchers import Watcher
from bearlake.serving.pacing import PacedConnection, Register
from bearlake.streams.principal import ANONYMOUS, Operation, at_host, client_of

_SEND = commands.NUMBERS["send"]
_CONNECT = commands.NUMBERS["connect"]


class Handlers(Protocol):
    """Executes the commands of a connection: the module `handlers`."""

    def send(
        self, connection: "Connection", command: CommandSend, message: memoryview, prepared: Prepared | None, /
    ) -> None:
        """Execute SEND, converted already if `prepared` is not None."""

    def send_parsed(self, connection: "Connection", parsed: Sequence[SendEntry], /) -> None:
        """Execute SENDs that the kernel has parsed, in order."""

    def carry_out(self, connection: "Connection", number: int, command: BaseCommand, /) -> None:
        """Execute any other command, or start it. Raises `Corrupt`."""


class Connection(PacedConnection):
    """Protocol object of one accepted socket."""

    JOIN_BYTES = 64 * 1024

    def __init__(
        self,
        register: Register["Connection"],
        context: PulsarContext,
        handlers: Handlers,
        meters: CommandMeters,
        listener: str,
        login: PulsarListenerLogin | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not."""
        super().__init__(register, context.streams, listener, context.settings.stall_ms)
        self.server = register
        """Runs the tasks that continue after the client has disconnected."""
        self.context = context
        self.scheme = context.schemes[listener]
        self.who = ANONYMOUS
        self.session: Session | None = None
        """The logins of this connection; None if clients need not log in."""
        self.is_held = False
        """Whether no command may be taken now: a login runs, was refused or has ended."""
        self._login = login
        self.client_version = ""
        """`client_version` of the client's CONNECT."""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.send_count = 0
        """Number of messages and batches that are not durable yet."""
        self.throttling = Throttling(self, context.streams.quotas)
        """What the quotas say about this connection."""
        self._handlers = handlers
        self._is_preparing = False
        self._prepared: Prepared | None = None
        """The next SEND, which a thread has converted."""
        self._command_meters = meters
        self._is_connected = False
        self._is_asked = False  # whether a PING waits for its PONG
        self._out: list[bytes] = []
        self._out_bytes = 0

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "set_write_buffer_limits")
        transport.set_write_buffer_limits(high=self.context.settings.unsent_bytes_max)
        super().connection_made(transport)
        self.who = at_host(ANONYMOUS, self.address, self.listener)
        self.throttling.connected(self.who.host)
        if self._login is not None:
            certificate = transport.get_extra_info("peercert") or {}
            subject = certificate.get("subject", ())
            self.session = Session(self._login, self, self.address, self._is_encrypted, subject)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(error)
        if self.session is not None:
            self.session.close()
        self._out.clear()
        for producer in list(self.producers.values()):
            producer.abandoned()
        for consumer in list(self.consumers.values()):
            consumer.disconnected()
        for watcher in self.watchers.values():
            self.context.watchers.remove(watcher)

    @property
    @override
    def client(self) -> str:
        return client_of(self.who)

    def check_rights(self) -> None:
        """Close the producers and consumers whose topics the client may no longer use."""
        for consumer in list(self.consumers.values()):
            if consumer.attachment is not None:
                consumer.may_read()
        for producer in list(self.producers.values()):
            is_named = bool(producer.name)  # otherwise it is being opened, which asks for the right
            if is_named and not self.context.streams.may(self.who, Operation.WRITE, producer.topic.view.name):
                producer.overtaken()

    def move_producers(self) -> None:
        """Drain: move every producer to another server once its messages are acknowledged."""
        for producer in list(self.producers.values()):
            if producer.name:
                producer.move(self.url_elsewhere(str(producer.topic.name)))

    def move_consumers(self) -> None:
        """Drain: move the remaining consumers (readers) to other servers."""
        for consumer in list(self.consumers.values()):
            consumer.move()

    def url_elsewhere(self, topic: str) -> str | None:
        """The URL of the server that takes over a topic's clients; None without another server."""
        address = self.context.elsewhere(topic, self.listener)
        return f"{self.scheme}://{address}" if address is not None else None

    def finish(self) -> None:
        """Close the connection after sending all queued frames."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def check(self, now: float) -> None:
        """Close the connection if the client stalls; send a PING to a silent client, and close if it stays silent."""
        keep_alive_ms = self.context.settings.keep_alive_ms
        self._close_if_stalled(now)
        if not self.is_open or self._is_write_paused:
            return
        silent_ms = (now - self._last_active) * 1000
        if silent_ms > keep_alive_ms and not self._is_reading_paused:
            if not self._is_connected:
                self.close("no CONNECT within the deadline", "silent")
            elif not self._is_asked:
                self._is_asked, self._last_active = True, now
                self.send(commands.frame("ping", CommandPing()))
            else:
                self.close("no answer to a PING", "silent")
        elif silent_ms > keep_alive_ms / 2:
            self.release_idle_memory()

    # -- receive -------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Execute complete frames from the slab until the connection must wait."""
        if self._is_connected and not self.throttling.admits(has_producers=bool(self.producers)):
            self._pace()
        else:
            self.throttling.run(self._take_frames)

    def _take_frames(self) -> None:
        self._need = 0
        first = self._low
        self._is_processing = True
        try:
            while not self._must_wait() and (self._take_sends() or self._take_frame()):
                self.throttling.worked()
        except BearlakeError as error:
            self._malformed(error)
            return
        finally:
            self._is_processing = False
        if self._transport is None:
            return
        self._is_asked = False
        self._processed(first)

    def _take_sends(self) -> bool:
        """Execute the next SENDs that need no special handling, together; returns False if the next frame is not such a SEND."""
        slab = self._slab
        if not self.producers or slab is None or self._budget.is_over_budget:
            return False
        sender = kernel.next_sender(slab.view, self._low, self._high)
        if sender is None:
            return False
        room = self.context.settings.sends_in_flight_max - self.send_count
        producer = self.producers.get(sender)
        if producer is not None:
            end, count = producer.take_arrived(slab.view, self._low, self._high, room)
            if count:
                self._taken(end, count)
                return True
        parsed = kernel.parse_sends(slab.view, self._low, self._high, room, *self.context.send_limits)
        if not parsed:
            return False
        self._taken(parsed[-1][3], len(parsed))
        self._handlers.send_parsed(self, parsed)
        return self._transport is not None

    def _taken(self, end: int, count: int) -> None:
        """Charge and count SENDs from the slab that end at `end`."""
        self.throttling.sent(end - self._low)
        self._low = end
        self._command_meters.count(_SEND, count)

    def _take_frame(self) -> bool:
        """Execute the next frame; returns False if it is incomplete or must wait. Raises `Corrupt`."""
        slab = self._slab
        start = self._low + framing.SIZE.size
        if slab is None or self._high < start:
            return False
        (size,) = framing.SIZE.unpack_from(slab.view, self._low)
        limit = self.context.frame_bytes_max if self._is_connected or self.session is None else FRAME_BYTES_MAX
        if size > limit:
            raise Corrupt(f"a frame of {size} bytes: expected at most {limit}")
        if self._high - start < size:
            self._need = framing.SIZE.size + size
            return False
        command, message = framing.read_frame(slab.view[start : start + size])
        number = command.type
        if number == _SEND and self._budget.is_over_budget:
            self._wait_for_budget()
            return False
        if number == _SEND and self._prepared is None and self.producers and self._prepares(message):
            return False
        self._low = start + size
        if (number == _CONNECT) == self._is_connected:
            raise Corrupt("expected one CONNECT, as the first command")
        self._command_meters.count(number)
        if number == _SEND:
            prepared, self._prepared = self._prepared, None
            self.throttling.sent(size)
            self._handlers.send(self, command.send, message, prepared)
        else:
            self._handlers.carry_out(self, number, command)
        return self._transport is not None

    def _prepares(self, message: memoryview) -> bool:
        """Whether a thread converts the SEND first; its frame stays in the slab and is taken again."""
        self._is_preparing = self.context.preparer.start(
            message, lambda prepared: self._loop.call_soon_threadsafe(self._has_prepared, prepared)
        )
        return self._is_preparing

    def _has_prepared(self, prepared: Prepared) -> None:
        self._is_preparing = False
        self._prepared = prepared
        self._resume()

    def connected(self) -> None:
        """Accept other commands from now on: CONNECT was answered."""
        self._is_connected = True

    def check_room(self) -> None:
        """Raise `Overloaded` if this connection has the maximum number of producers and consumers."""
        limit = self.context.settings.attachments_max
        if len(self.producers) + len(self.consumers) >= limit:
            raise Overloaded(f"the connection has reached its limit of {limit} producers and consumers")

    def endpoint_named(self, listener: str) -> tuple[str, str]:
        """Endpoint and URL scheme of the named listener; of the connection's own listener if the name is empty or unknown."""
        endpoint = f"{PROTOCOL}:{listener}"
        scheme = self.context.schemes.get(endpoint) if listener else None
        return (endpoint, scheme) if scheme is not None else (self.listener, self.scheme)

    # -- pace ----------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        settings = self.context.settings
        return (
            self._is_write_paused
            or self._is_preparing
            or self.is_held
            or self._waits_for_budget
            or self.quota_wait is not None
            or self.waiter.is_waiting
            or self._wish is not None
            or self.send_count >= settings.sends_in_flight_max
            or len(self._tasks) >= settings.requests_in_flight_max
        )

    def sent(self, count: int) -> None:
        """Note that `count` messages or batches have been answered."""
        self.send_count -= count
        if self._is_reading_paused:
            self._resume()

    # -- requests ------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> asyncio.Task[None]:
        """Run the work of a request, as `PacedConnection.start`, and charge its time."""
        task = super().start(self.throttling.timed(work), is_cancelled_on_close=is_cancelled_on_close)
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it ran
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        super()._task_done(task)
        self._resume()

    def refuse(self, request_id: int, error: BearlakeError) -> None:
        """Answer a request with an error."""
        number = error_of(error)
        count_error(number)
        self.send(commands.error(request_id, number, str(error)))

    # -- send ----------------------------------------------------------------------------------------------------

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not read what was sent."""
        return self._is_write_paused

    def send(self, frame: bytes) -> None:
        """Queue a frame; all frames of one event loop iteration are sent together."""
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= self.context.settings.unsent_bytes_max:
            self._flush()

    def _flush(self) -> None:
        transport, out, size = self._transport, self._out, self._out_bytes
        if transport is None or not out:
            return
        self._out, self._out_bytes = [], 0
        self.throttling.run(lambda: self._write(transport, out, size))

    def resume_writing(self) -> None:
        """Called by the event loop when the client has read what was sent."""
        super().resume_writing()
        for consumer in list(self.consumers.values()):
            consumer.resume()
        self._resume()
