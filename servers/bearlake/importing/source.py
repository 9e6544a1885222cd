"""A small client of Kafka's protocol for imports and exports: it gets and sends record batches as they are, which client libraries do not.

    async with await Connection.open("kafka:9092", settings, check) as connection:
        answer = await connection.ask(messages.MetadataRequest(topics=None))

One request at a time per connection. Versions are the newest that both sides know; `newest` limits them. Every wait has a timeout. Errors
are `Unavailable` (connect, time-out, closed), `Unsupported` (no common version) and `Corrupt` (bytes that break the protocol); a new
connection may also be `Denied` or `Invalid` (TLS and login, `login.py`).
"""

import asyncio
import re
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from bearlake.errors import Corrupt, Denied, Invalid, Unavailable, Unsupported
from bearlake.importing.login import SourceLogin
from bearlake.importing.reach import peer_of
from bearlake.importing.settings import SourceSettings
from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec import ApiKey, Message

_SIZE = struct.Struct(">i")
_BUFFER_BYTES = 4 * 1024 * 1024
"""Bytes that a connection reads ahead."""


def address_of(text: str) -> tuple[str, int]:
    """Parse `host:port`; brackets around an IPv6 address are optional. Raises `Invalid`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Invalid(f"{text!r} is not an address of a broker: expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Connection:
    """A connection to one broker. Close it, or use it as an asynchronous context."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: SourceSettings
    ) -> None:
        """Use `open`."""
        self._peer = f"{settings.PEER} {name}"
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._count = 0
        self._turn = asyncio.Lock()

    @classmethod
    async def open(
        cls, address: str, settings: SourceSettings, check: Callable[[str], None], login: SourceLogin | None = None
    ) -> "Connection":
        """Connect to `host:port`, read which versions the broker has, and log in; `login` None: as the settings say.

        `check` gets the IP address before anything is sent, and may raise (`reach.py`).
        Raises `Invalid`, `Denied`, `Unavailable`, `Unsupported`, `Corrupt`.
        """
        host, port = address_of(address)
        login = login or SourceLogin(settings)
        try:
            async with asyncio.timeout(settings.timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(
                    host, port, limit=_BUFFER_BYTES, ssl=login.tls, server_hostname=login.server_name(host)
                )
        except ssl.SSLCertVerificationError as error:
            raise Denied(
                f"the certificate of {settings.PEER} {address} cannot be verified: {error.verify_message} "
                f"({settings.SECTION}.tls_ca_file, {settings.SECTION}.tls_server_name)"
            ) from error
        except ssl.SSLError as error:
            raise Unavailable(f"{settings.PEER} {address} does not answer with TLS: {error.reason or error}") from error
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: no host has this name
            raise Unavailable(f"{settings.PEER} {address} does not answer: {str(error) or 'timeout'}") from error
        connection = cls(address, reader, writer, settings)
        try:
            check(peer_of(writer))
            found = await connection._ask(messages.ApiVersionsRequest(), 0, 0)
            connection._versions = {item.api_key: (item.min_version, item.max_version) for item in found.api_keys}
            await login.log_in(connection.ask, address, host)
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
        """Close the connection; a request that is under way fails."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    @property
    def is_closed(self) -> bool:
        """Whether the connection cannot be used any more."""
        return self._writer.is_closing()

    def version(self, key: ApiKey, newest: int = 1 << 15) -> int:
        """Return the newest version of an API, up to `newest`, that both sides know. Raises `Unsupported`."""
        ours = codec.versions(key)
        least, most = self._versions.get(key, (0, -1))
        found = min(most, ours[-1], newest)
        if found < max(least, ours[0]):
            raise Unsupported(f"{self._peer} has {key.name} {least} to {most}: expected {ours[0]} to {ours[-1]}")
        return found

    async def ask(self, request: Message, *, newest: int = 1 << 15, wait_ms: int = 0) -> Any:
        """Send a request and return its response, whose class depends on the request.

        `wait_ms`: the time (ms) for which the request allows the broker to wait. Raises `Unavailable`, `Unsupported`, `Corrupt`; the
        connection cannot be used after `Unavailable`.
        """
        return await self._ask(request, self.version(_key_of(request), newest), wait_ms)

    async def _ask(self, request: Message, version: int, wait_ms: int) -> Any:
        key = _key_of(request)
        async with self._turn:
            self._count += 1
            frame = codec.request(key, version).frame(self._count, self._settings.CLIENT_ID, request)
            async with self._answering(key, wait_ms):
                self._writer.writelines(frame)
                await self._writer.drain()
                answer = await self._frame()
            return self._decoded(answer, key, version, self._count)

    async def ask_in_flight(self, requests: Sequence[Message], *, newest: int, in_flight_max: int) -> list[Any]:
        """Send requests of one kind in order, up to `in_flight_max` ahead of the answers; return the responses in order.

        Raises as `ask`; then any of the requests may have been carried out.
        """
        answers: list[Any] = []
        async with self._turn:
            first, sent = self._count + 1, 0
            for request in requests:
                key = _key_of(request)
                version = self.version(key, newest)
                async with self._answering(key, 0):
                    while sent < len(requests) and sent - len(answers) < in_flight_max:
                        self._count += 1
                        self._writer.writelines(
                            codec.request(key, version).frame(self._count, self._settings.CLIENT_ID, requests[sent])
                        )
                        sent += 1
                    await self._writer.drain()
                    answer = await self._frame()
                answers.append(self._decoded(answer, key, version, first + len(answers)))
        return answers

    @asynccontextmanager
    async def _answering(self, key: ApiKey, wait_ms: int) -> AsyncIterator[None]:
        """Bound the wait for an answer. Raises `Unavailable`; then the connection is closed."""
        try:
            async with asyncio.timeout((self._settings.timeout_ms + wait_ms) / 1000):
                yield
        except (EOFError, ConnectionError) as error:
            self._writer.close()
            raise Unavailable(f"{self._peer} closed the connection at {key.name}{self._hint()}") from error
        except (OSError, TimeoutError) as error:
            self._writer.close()
            raise Unavailable(f"{self._peer} did not answer {key.name}: {str(error) or 'timeout'}") from error
        except asyncio.CancelledError:
            self._writer.close()  # the answer that comes is nobody's
            raise

    def _decoded(self, answer: memoryview, key: ApiKey, version: int, number: int) -> Any:
        found, position = codec.read_response_header(answer, key, version)
        if found != number:
            raise Corrupt(f"{self._peer} answered request {found}, not {number}")
        return codec.response(key, version).decode(answer, position)

    def _hint(self) -> str:
        """Return what is probably wrong if the broker closes the connection: brokers give no reason."""
        settings = self._settings
        if self._count == 1:
            return "" if settings.tls else f"; does it expect TLS ({settings.SECTION}.tls)?"
        return "" if settings.mechanism else f"; does it expect a login ({settings.SECTION}.mechanism)?"

    async def _frame(self) -> memoryview:
        (size,) = _SIZE.unpack(await self._reader.readexactly(4))
        if not 4 <= size <= self._settings.response_bytes_max:
            is_http = size == int.from_bytes(b"HTTP", "big")
            hint = ": it is an HTTP server, not a Kafka listener" if is_http else ""
            raise Corrupt(f"{self._peer} announced a response of {size} bytes{hint}")
        return memoryview(await self._reader.readexactly(size))


def _key_of(request: Message) -> ApiKey:
    name = type(request).__name__.removesuffix("Request")
    return ApiKey[re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()]
