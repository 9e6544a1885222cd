"""Bytes that are not an HTTP request, and bodies that contradict their headers: answered with 400, not logged as server errors."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from typing_extensions import override

from bearlake.serving.http import guard
from bearlake.serving.http.guard import HttpGuard, HttpMeters
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.telemetry import metrics
from fixtures.waiting import WAIT_S

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Limits:
    request_count_max = 100
    address_request_count_max = 0
    request_timeout_ms = 60_000
    unread_bytes_max = 1024 * 1024


class Guard(HttpGuard):
    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        return web.Response(status=error.status) if isinstance(error, web.HTTPException) else web.Response(status=500)


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def unread(request: web.Request) -> web.Response:
    return web.Response(text="unread")


@asynccontextmanager
async def site() -> AsyncIterator[int]:
    guarding = Guard(Limits(), HttpMeters(requests=metrics.ADMIN_REQUESTS))
    listener = open_listener(ListenerSettings(), "test")
    app = guarding.application()
    app.router.add_post("/", size)
    app.router.add_post("/unread", unread)
    running = HttpSite("test", [listener], guarding, idle_ms=60_000)
    await running.start(app)
    yield listener.socket.getsockname()[1]
    await running.close()


async def answer_to(port: int, request: bytes) -> bytes:
    """Everything that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(WAIT_S):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\nA B: c\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
        HEAD.replace(b"/ ", b"/unread ", 1) + b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
    ],
)
async def test_a_malformed_request_is_answered_and_does_not_count_as_a_server_error(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as port:
        answer = await answer_to(port, request_bytes)

    assert answer[9:12] in (b"400", b"200")  # 200: answered without its body
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_good_compressed_body_is_read() -> None:
    body = gzip.compress(b"x" * 1000)

    async with site() as port:
        head = HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        answer = await answer_to(port, head + body)

    assert answer.endswith(b"1000")


async def test_a_method_that_no_route_has_is_one_kind_of_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds label a metric and are logged: a client must not choose them."""
    kinds: list[str] = []
    monkeypatch.setattr(guard, "begin", kinds.append)
    async with site() as port:
        for method in ("PURGE", "MKCOL", "SEARCH"):
            head = f"{method} / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            assert (await answer_to(port, head.encode())).startswith(b"HTTP/1.1 405")

    assert set(kinds) == {"other unknown"}
