"""TLS handshakes of HTTP servers count from the start, begin in turns, and end with the server. Real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from typing_extensions import override

from bearlake.serving import handshakes
from bearlake.serving.http.guard import HttpGuard, HttpMeters
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.telemetry import metrics
from fixtures.waiting import WAIT_S, until

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Limits:
    request_count_max = 100
    address_request_count_max = 0
    request_timeout_ms = 60_000
    unread_bytes_max = 1024 * 1024


class Guard(HttpGuard):
    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        return web.Response(status=500)


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


class Place:
    """A running server with TLS, at most two connections of an address."""

    def __init__(self, running: HttpSite, guard: Guard, port: int, authority: Path) -> None:
        self.running = running
        self.guard = guard
        self.port = port
        self.tls = ssl.create_default_context(cafile=str(authority))

    async def silent(self, address: str = "127.0.0.1") -> Streams:
        """A client that connects and does not begin its handshake."""
        return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0)), WAIT_S)

    async def answered(self, address: str = "127.0.0.1") -> bool:
        """Whether a new connection with TLS is answered."""
        opening = asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0), ssl=self.tls, server_hostname="localhost"
        )
        try:
            reader, writer = await asyncio.wait_for(opening, WAIT_S)
        except ConnectionError:
            return False
        writer.write(REQUEST)
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        return answer.endswith(b"hello")

    @property
    def count(self) -> int:
        """The connections that the server's gate counts."""
        return self.guard.gate.count


@asynccontextmanager
async def place(certificates: dict[str, Path], first_request_ms: int = 600_000) -> AsyncIterator[Place]:
    guarding = Guard(
        Limits(),
        HttpMeters(requests=metrics.ADMIN_REQUESTS),
        address_connection_count_max=2,
        first_request_ms=first_request_ms,
    )
    files = {"tls_certificate_file": certificates["server"], "tls_key_file": certificates["server_key"]}
    listener = open_listener(ListenerSettings(**{name: str(file) for name, file in files.items()}), "test")
    app = guarding.application()
    app.router.add_get("/", hello)
    running = HttpSite("test", [listener], guarding, idle_ms=60_000)
    await running.start(app)
    try:
        yield Place(running, guarding, listener.socket.getsockname()[1], certificates["authority"])
    finally:
        await running.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S) == b""
    except ConnectionError:
        return True


async def test_connections_of_an_address_count_before_their_handshake(certificates: dict[str, Path]) -> None:
    async with place(certificates) as server:
        hanging = [await server.silent() for _ in range(2)]
        await until(lambda: server.count == 2)

        reader, writer = await server.silent()
        assert await is_closed(reader)
        assert not await server.answered()
        assert await server.answered("127.0.0.2")
        hanging[0][1].close()
        await until(lambda: server.count == 1)
        assert await server.answered()
        for closing in (writer, hanging[1][1]):
            closing.close()
        await until(lambda: server.count == 0)


async def test_handshakes_of_http_servers_take_turns(
    certificates: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 of one client, sent at the same time, delayed the requests of all others."""
    begun: list[str] = []
    enter = handshakes.HandshakeLine.enter

    async def entered(self: handshakes.HandshakeLine, address: str, limit: asyncio.Timeout) -> handshakes.Turn:
        turn = await enter(self, address, limit)
        begun.append(address)
        return turn

    monkeypatch.setattr(handshakes.HandshakeLine, "enter", entered)
    async with place(certificates) as server:
        assert await server.answered("127.0.0.3")

    assert begun == ["127.0.0.3"]


async def test_a_handshake_of_an_http_server_has_a_time_limit(certificates: dict[str, Path]) -> None:
    async with place(certificates, first_request_ms=50) as server:
        reader, writer = await server.silent()

        assert await is_closed(reader)
        await until(lambda: server.count == 0)
        writer.close()


async def test_an_http_server_that_closes_ends_handshakes(certificates: dict[str, Path]) -> None:
    async with place(certificates) as server:
        reader, writer = await server.silent()
        await until(lambda: server.count == 1)

        await server.running.close()

        assert await is_closed(reader)
        assert server.count == 0
        writer.close()


async def test_a_client_without_tls_is_closed(certificates: dict[str, Path]) -> None:
    async with place(certificates) as server:
        reader, writer = await server.silent()
        writer.write(REQUEST)

        assert not (await asyncio.wait_for(reader.read(), WAIT_S)).startswith(b"HTTP")
        await until(lambda: server.count == 0)
        writer.close()
