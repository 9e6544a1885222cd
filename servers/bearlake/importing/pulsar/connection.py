"""A small client of Pulsar's protocol for imports: it gets entries as they are, which client libraries do not.

    async with await Connection.open("pulsar:6650", settings, login, check) as connection:
        await connection.subscribe(1, "persistent://public/default/orders", after=FIRST, name="…")
        connection.flow(1, 1000)
        for entry in await connection.take(1 << 20): …

One task per connection reads, as long as no more than `fetch_bytes_max` wait to be taken; then the source waits. Every wait has a timeout.
Errors are `Unavailable` (connect, time-out, closed, moved topics), `Denied`, `NotFound`, and `Corrupt` (bytes that break the protocol).

Source: Pulsar binary protocol specification.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from bearlake.errors import BearlakeError, Corrupt, Denied, NotFound, Unavailable
from bearlake.importing.pulsar.login import PulsarLogin
from bearlake.importing.pulsar.positions import FIRST, Place
from bearlake.importing.pulsar_settings import PulsarSourceSettings
from bearlake.importing.reach import peer_of
from bearlake.importing.source import address_of
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    AuthData,
    CommandAuthResponse,
    CommandConnect,
    CommandFlow,
    CommandGetLastMessageId,
    CommandPong,
    CommandSubscribe,
    MessageIdData,
    ServerError,
)

_READ_BYTES = 1 << 20
_PROTOCOL_VERSION = 19
"""Newer versions have nothing for a reader."""
_VERSION = "Bearlake-import"
_ENTRY_BYTES = 500
_AHEAD = 2
"""Entries that may arrive before an answer, as a multiple of `fetch_bytes_max`."""
_EARLIEST = (1 << 64) - 1
_NOT_FOUND = (ServerError.Value("TopicNotFound"), ServerError.Value("SubscriptionNotFound"))
_DENIED = (ServerError.Value("AuthenticationError"), ServerError.Value("AuthorizationError"))


class Entry(NamedTuple):
    """An entry that the source has sent: of which consumer, where it is, and its message from the magic on."""

    consumer_id: int
    place: Place
    message: memoryview


class Connection:
    """A connection to one broker. Close it, or use it as an asynchronous context."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: PulsarSourceSettings,
        login: PulsarLogin,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.name = name
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._login = login
        self._request_id = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._entries: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._error: BearlakeError | None = None
        self._has_answered = False
        """Whether the source has asked something since the last look at what it has not read yet."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, address: str, settings: PulsarSourceSettings, login: PulsarLogin, check: Callable[[str], None], *,
        proxied: str = "",
    ) -> "Connection":  # fmt: skip
        """Connect to `host:port` and log in. `proxied`: the broker that is meant, if `address` is a proxy.

        `check` gets the IP address before anything is sent, and may raise (`reach.py`).
        Raises `Invalid`, `Denied`, `Unavailable`, `Corrupt`.
        """
        host, port = address_of(address)
        try:
            async with asyncio.timeout(settings.timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(
                    host, port, limit=2 * _READ_BYTES, ssl=login.tls, server_hostname=login.server_name(host)
                )
        except ssl.SSLCertVerificationError as error:
            raise Denied(
                f"the certificate of the source {address} cannot be verified: {error.verify_message} "
                "(imports.pulsar.tls_ca_file, imports.pulsar.tls_server_name)"
            ) from error
        except ssl.SSLError as error:
            raise Unavailable(f"the source {address} does not answer with TLS: {error.reason or error}") from error
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: no host has this name
            raise Unavailable(f"the source {address} does not answer: {str(error) or 'timeout'}") from error
        connection = cls(address, reader, writer, settings, login)
        try:
            check(peer_of(writer))
            body = CommandConnect(client_version=_VERSION, protocol_version=_PROTOCOL_VERSION)
            if (token := login.token(host)) is not None:
                body.auth_method_name, body.auth_data = "token", token.encode()
            if proxied:
                body.proxy_to_broker_url = proxied
            await connection._send(commands.frame("connect", body))
            await connection._within(connection._connected, "CONNECT")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; requests that are under way fail."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._fail(Unavailable(f"the connection to the source {self.name} is closed"))
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    @property
    def is_closed(self) -> bool:
        """Whether the connection cannot be used any more."""
        return self._error is not None

    @property
    def waiting_count(self) -> int:
        """Entries that have arrived and were not taken."""
        return len(self._entries)

    @property
    def unread_bytes(self) -> int:
        """Bytes that the source has not read yet."""
        return self._writer.transport.get_write_buffer_size()

    async def ask(self, kind: str, body: Any) -> Any:
        """Send a command that has a `request_id`, and return the body of its answer.

        Raises `NotFound`, `Denied`, `Unavailable`, by the source's error.
        """
        if self._error is not None:
            raise self._error
        self._request_id += 1
        body.request_id = self._request_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._request_id] = answer
        self._has_room.set()  # the answer comes behind entries
        try:
            await self._send(commands.frame(kind, body))
            return await self._within(answer, kind.upper())
        finally:
            self._answers.pop(body.request_id, None)

    async def subscribe(self, consumer_id: int, topic: str, *, name: str, after: Place) -> None:
        """Begin to read a topic that exists behind a place, as a reader does: nothing of that stays at the source.

        Raises as `ask`.
        """
        ledger, entry = (_EARLIEST, _EARLIEST) if after == FIRST else (after.ledger, after.entry % (1 << 64))
        body = CommandSubscribe(
            topic=topic,
            subscription=name,
            sub_type=CommandSubscribe.Exclusive,
            consumer_id=consumer_id,
            consumer_name=name,
            durable=False,
            start_message_id=MessageIdData(ledger_id=ledger, entry_id=entry),
            force_topic_creation=False,
            initial_position=CommandSubscribe.Earliest,
        )
        await self.ask("subscribe", body)

    async def last(self, consumer_id: int) -> Place:
        """Return the place of the last entry that the consumer's topic can deliver now; `FIRST` if there is none. Raises as `ask`."""
        answer = await self.ask("get_last_message_id", CommandGetLastMessageId(consumer_id=consumer_id))
        found = answer.last_message_id
        none = found.ledger_id >= 1 << 63 or found.entry_id >= 1 << 63
        return FIRST if none else Place(found.ledger_id, found.entry_id)

    def flow(self, consumer_id: int, permits: int) -> None:
        """Let the source send so many more messages to a consumer. Does not wait; the connection's errors are those of `take`."""
        if self._error is None:
            self._writer.write(commands.frame("flow", CommandFlow(consumer_id=consumer_id, message_permits=permits)))

    async def take(self, bytes_max: int) -> list[Entry]:
        """Return entries that have arrived, in order: one, and more up to `bytes_max`; none if none comes within `wait_ms`.

        Raises `Unavailable`, `Corrupt`: the connection has ended, and everything before that was taken.
        """
        if not self._entries and self._error is None:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.wait_ms / 1000):
                    await self._arrived.wait()
        found: list[Entry] = []
        size = 0
        while self._entries and (not found or size + _held(self._entries[0]) <= bytes_max):
            entry = self._entries.popleft()
            size += _held(entry)
            found.append(entry)
        self._waiting_bytes -= size
        if self._waiting_bytes < self._settings.fetch_bytes_max:
            self._has_room.set()
        if not found and self._error is not None:
            raise self._error
        return found

    # -- reading -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        tail = b""
        try:
            while True:
                await self._has_room.wait()
                chunk = await self._reader.read(_READ_BYTES)
                if not chunk:
                    raise Unavailable(f"the source {self.name} closed the connection")
                tail = await self._frames(tail + chunk if tail else chunk)
        except BearlakeError as error:
            self._fail(error)
        except (OSError, EOFError) as error:
            self._fail(Unavailable(f"the connection to the source {self.name} broke: {error}"))
        finally:  # whatever has ended it, nobody waits for what does not come
            self._fail(Unavailable(f"the connection to the source {self.name} is closed"))

    async def _frames(self, received: bytes) -> bytes:
        """Handle the whole frames; returns the rest. A frame that is much longer than what has arrived is read to its end."""
        view, at = memoryview(received), 0
        while len(view) - at >= framing.SIZE.size:
            (size,) = framing.SIZE.unpack_from(view, at)
            if not framing.SIZE.size <= size <= self._settings.frame_bytes_max:
                raise Corrupt(f"the source {self.name} announced a frame of {size} bytes")
            start, end = at + framing.SIZE.size, at + framing.SIZE.size + size
            if end > len(view):
                if end - len(view) > _READ_BYTES:
                    rest = await self._reader.readexactly(end - len(view))
                    self._handle(memoryview(b"".join((view[start:], rest))))
                    return b""
                break
            self._handle(view[start:end])
            at = end
            if self._has_answered:  # who reads no answers is not read either
                self._has_answered = False
                await self._drain()
        return bytes(view[at:])

    def _handle(self, frame: memoryview) -> None:
        command, message = framing.read_frame(frame)
        kind = commands.NAMES.get(command.type, "")
        body: Any = getattr(command, kind) if kind else None
        if kind == "message":
            place = Place(body.message_id.ledger_id, body.message_id.entry_id)
            self._entries.append(entry := Entry(body.consumer_id, place, message))
            self._waiting_bytes += _held(entry)
            if self._waiting_bytes >= self._settings.fetch_bytes_max and not self._answers:
                self._has_room.clear()
            elif self._waiting_bytes >= _AHEAD * self._settings.fetch_bytes_max:
                raise Unavailable(
                    f"the source {self.name} sends more than {self._waiting_bytes} bytes of entries in place of an answer"
                )
            self._arrived.set()
        elif kind == "ping":
            self._answer("pong", CommandPong())
        elif kind == "connected":
            if not self._connected.done():
                self._connected.set_result(body)
        elif kind == "auth_challenge":
            host, _ = address_of(self.name)
            token = AuthData(auth_method_name="token", auth_data=(self._login.token(host) or "").encode())
            self._answer("auth_response", CommandAuthResponse(client_version=_VERSION, response=token))
        elif kind in ("close_consumer", "topic_migrated"):
            raise Unavailable(f"the source {self.name} closed a consumer: its topic moves, or was deleted")
        elif body is not None and hasattr(body, "request_id"):
            self._answered(kind, body)

    def _answer(self, kind: str, body: Any) -> None:
        self._writer.write(commands.frame(kind, body))
        self._has_answered = True

    def _answered(self, kind: str, body: Any) -> None:
        answer = self._answers.get(body.request_id)
        error = _refusal(self.name, body) if kind == "error" or _has_failed(body) else None
        if answer is None:
            if error is not None and not self._connected.done():
                self._connected.set_exception(error)
        elif not answer.done():
            if error is None:
                answer.set_result(body)
            else:
                answer.set_exception(error)

    def _fail(self, error: BearlakeError) -> None:
        if self._error is None:
            self._error = error
        self._arrived.set()
        for waiting in (self._connected, *self._answers.values()):
            if not waiting.done():
                waiting.set_exception(self._error)
        if self._connected.done():
            self._connected.cancelled() or self._connected.exception()  # seen

    async def _send(self, frame: bytes) -> None:
        self._writer.write(frame)
        await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"the source {self.name} takes no requests: {str(error) or 'timeout'}") from error

    async def _within(self, answer: "asyncio.Future[Any]", what: str) -> Any:
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise Unavailable(f"the source {self.name} did not answer {what}") from error


def _held(entry: Entry) -> int:
    """Return about how many bytes of memory an entry needs, also an empty one."""
    return len(entry.message) + _ENTRY_BYTES


def _has_failed(body: Any) -> bool:
    """Whether an answer that has a response field says that the request failed."""
    return hasattr(body, "error") and body.HasField("error")


def _refusal(name: str, body: Any) -> BearlakeError:
    word = ServerError.Name(body.error) if body.error in ServerError.values() else f"error {body.error}"
    message = f"the source {name} refuses: {word}: {body.message[:500]}"
    if body.error in _NOT_FOUND:
        return NotFound(message)
    if body.error in _DENIED:
        return Denied(f"{message} (imports.pulsar.token_file)")
    return Unavailable(message)
