"""Hosts and origins of requests: a web page cannot use its visitor's browser against a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web
from typing_extensions import override

from bearlake.serving.http.guard import HttpGuard, HttpMeters
from bearlake.serving.http.origins import ForeignRequest, Origins
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.telemetry import metrics
from fixtures.bursts import kept_of
from fixtures.waiting import WAIT_S, until


class Limits:
    request_count_max = 100
    address_request_count_max = 0
    request_timeout_ms = 60_000
    unread_bytes_max = 1024 * 1024


class Guard(HttpGuard):
    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        return web.Response(status=403 if isinstance(error, ForeignRequest) else 500, text=str(error))


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def site(
    *,
    count_max: int | None = None,
    address_max: int = 0,
    first_request_ms: int = 60_000,
    origins: Origins | None = None,
) -> AsyncIterator[tuple[int, HttpSite]]:
    guard = Guard(
        Limits(),
        HttpMeters(requests=metrics.ADMIN_REQUESTS),
        connection_count_max=count_max,
        address_connection_count_max=address_max,
        first_request_ms=first_request_ms,
        origins=origins,
    )
    listener = open_listener(ListenerSettings(advertised_host="lake.public.org"), "test")
    app = guard.application()
    app.router.add_route("*", "/", hello)
    running = HttpSite("test", [listener], guard, idle_ms=60_000)
    await running.start(app)
    yield listener.socket.getsockname()[1], running
    await running.close()
    while WRITERS:
        writer = WRITERS.pop()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def status(port: int, method: str = "GET", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}/", headers=named) as response,
    ):
        return response.status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8082", 200), ("10.1.2.3", 200), ("[::1]:8082", 200), ("[fe80::1%25eth0]", 200), ("localhost:8082", 200),
        ("bearlake-rest", 200), ("bearlake-rest.lake.svc:8082", 200), ("rest.svc.cluster.local.", 200), ("LAKE.public.org", 200),
        ("evil.com", 403), ("evil.com:8082", 403), ("127.0.0.1.evil.com", 403), ("localhost.evil.com", 403), ("svc.evil.com:80", 403),
        ("evil.com.", 403), ("0x7f.1.evil.com", 403),
    ],
)  # fmt: skip
async def test_a_request_must_name_the_server(host: str, expected: int) -> None:
    """A page of evil.com that resolves its name to this server would otherwise read and change everything."""
    async with site() as (port, _):
        assert await status(port, Host=host) == expected
        assert await status(port, "DELETE", Host=host) == expected


async def test_names_of_an_ingress_are_configured() -> None:
    async with site(origins=Origins(["rest.company.com"])) as (port, _):
        assert await status(port, Host="rest.company.com") == 200
        assert await status(port, Host="other.company.com") == 403
    async with site(origins=Origins(["*"])) as (port, _):
        assert await status(port, Host="other.company.com") == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_page_of_another_origin_changes_nothing(method: str) -> None:
    """A form with `text/plain` needs no preflight, and its request reaches the loopback address of whoever visits the page."""
    async with site(origins=Origins((), ["https://console.company.com"])) as (port, _):
        own = f"http://127.0.0.1:{port}"
        assert await status(port, method) == 200
        assert await status(port, method, Origin=own) == 200
        assert await status(port, method, Origin="https://console.company.com") == 200
        for foreign in ("https://evil.com", "http://127.0.0.1:1", "null", "https://console.company.com.evil.com"):
            assert await status(port, method, Origin=foreign, Content_Type="text/plain") == 403
        assert await status(port, method, Sec_Fetch_Site="cross-site") == 403
        assert await status(port, method, Sec_Fetch_Site="same-site") == 403
        assert await status(port, method, Sec_Fetch_Site="same-origin") == 200


async def test_a_page_of_another_origin_may_read_as_cors_decides() -> None:
    async with site() as (port, _):
        assert await status(port, Origin="https://evil.com") == 200


# -- connections ---------------------------------------------------------------------------------------------------


WRITERS: list[asyncio.StreamWriter] = []


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; `site` closes it."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), WAIT_S)
    WRITERS.append(writer)
    return reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S) == b""
    except ConnectionError:
        return True


async def test_one_address_cannot_take_all_connections() -> None:
    async with site(address_max=3) as (port, running):
        kept = [await connect(port) for _ in range(3)]
        await until(lambda: running.connection_count == 3)

        reader, _ = await connect(port)
        assert await is_closed(reader)
        kept[0][1].close()
        await until(lambda: running.connection_count == 2)
        assert await status(port) == 200


async def test_connections_far_beyond_the_maximum_are_closed_at_once() -> None:
    async with site(count_max=0) as (port, running):
        kept = [await connect(port) for _ in range(64)]
        await until(lambda: running.connection_count == 64)

        reader, _ = await connect(port)

        assert await is_closed(reader)
        assert len(kept) == running.connection_count


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_connection_that_sends_no_request_is_closed(head: bytes) -> None:
    async with site(first_request_ms=50) as (port, running):
        reader, writer = await connect(port)
        writer.write(head)

        assert await is_closed(reader)
        await until(lambda: running.connection_count == 0)


async def test_a_connection_that_has_sent_a_request_may_idle() -> None:
    async with site(first_request_ms=50) as (port, running):
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200" in await asyncio.wait_for(reader.readline(), WAIT_S)
        idle, _ = await connect(port)

        assert await is_closed(idle)  # the deadline of a later connection has passed
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"hello"), WAIT_S)
        await asyncio.wait_for(reader.readuntil(b"hello"), WAIT_S)
        assert running.connection_count == 1


async def test_many_clients_that_connect_at_once_wait_until_the_site_accepts_them() -> None:
    async with site() as (port, _):
        assert kept_of(400, port) == 400
