"""What clients leave unread is bounded over all connections: those that have not kept up for longest are closed."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from bearlake.serving.http.guard import HttpGuard, HttpMeters
from bearlake.serving.http.site import HttpSite
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.slow_readers import SlowReaders
from bearlake.telemetry import metrics
from fixtures.slow_clients import open_narrow, tls_of
from fixtures.waiting import until

MIB = 1024 * 1024
ANSWER_BYTES = 16 * MIB
"""More than the buffers of both sockets hold (4 MiB and 64 KiB on Linux)."""


class Reader:
    """A connection whose transport holds `unread_bytes`; the line learns of it when it measures."""

    def __init__(self, readers: SlowReaders, unread_bytes: int) -> None:
        self.unread_bytes = self.written_bytes = unread_bytes
        self.is_closed = False
        readers.record(self, unread_bytes)

    @property
    def read_bytes(self) -> int:
        return self.written_bytes - self.unread_bytes

    def give_up(self) -> None:
        self.is_closed = True


def test_the_reader_that_has_read_nothing_for_longest_is_closed_first() -> None:
    readers = SlowReaders(100)
    first, second, third = Reader(readers, 40), Reader(readers, 40), Reader(readers, 40)

    assert [reader.is_closed for reader in (first, second, third)] == [True, False, False]
    assert (readers.unread_bytes, len(readers)) == (80, 2)


def test_a_client_that_reads_a_long_answer_is_not_closed_before_those_that_read_nothing() -> None:
    """It has been in line for longest, and is in line until it has read nearly all of its answer."""
    readers = SlowReaders(100)
    honest = Reader(readers, 40)
    silent = [Reader(readers, 20) for _ in range(3)]
    honest.unread_bytes = 39

    last = Reader(readers, 5)

    assert [reader.is_closed for reader in (honest, *silent, last)] == [False, True, False, False, False]
    assert readers.unread_bytes == 84


def test_a_client_that_is_sent_more_than_it_reads_is_not_closed_before_those_that_read_nothing() -> None:
    readers = SlowReaders(100)
    honest, silent = Reader(readers, 40), Reader(readers, 40)
    honest.written_bytes += 30
    honest.unread_bytes += 5

    last = Reader(readers, 25)

    assert [reader.is_closed for reader in (honest, silent, last)] == [False, True, False]
    assert readers.unread_bytes == 70


def test_clients_that_have_read_enough_meanwhile_are_all_kept() -> None:
    """What they had read was not counted since the last check, which may be seconds ago."""
    readers = SlowReaders(100)
    members = [Reader(readers, 30) for _ in range(3)]
    for member in members:
        member.unread_bytes = 20

    last = Reader(readers, 30)

    assert not any(member.is_closed for member in (*members, last))
    assert readers.unread_bytes == 90


def test_the_bound_holds_if_all_clients_read_a_little() -> None:
    readers = SlowReaders(100)
    members = [Reader(readers, 25) for _ in range(4)]
    for member in members:
        member.unread_bytes -= 1

    last = Reader(readers, 25)

    assert [member.is_closed for member in (*members, last)] == [True, False, False, False, False]
    assert readers.unread_bytes <= 100


def test_a_connection_that_has_read_everything_or_has_gone_leaves_the_line() -> None:
    readers = SlowReaders(100)
    first, second = Reader(readers, 60), Reader(readers, 40)
    readers.record(first, 0)
    readers.record(first, 0)
    assert len(readers) == 1

    Reader(readers, 70)

    assert (first.is_closed, second.is_closed) == (False, True)
    readers.record(second, 0)  # its connection is lost
    assert readers.unread_bytes == 70


def test_one_reader_above_the_bound_is_closed() -> None:
    readers = SlowReaders(100)

    assert Reader(readers, 101).is_closed
    assert readers.unread_bytes == 0


class Limits:
    request_count_max = 100
    address_request_count_max = 0
    request_timeout_ms = 60_000
    unread_bytes_max = 2 * ANSWER_BYTES


class Guard(HttpGuard):
    @override
    def answer(self, request: web.Request, error: Exception) -> web.StreamResponse | None:
        return web.Response(status=500)


async def large(_: web.Request) -> web.Response:
    return web.Response(body=bytes(ANSWER_BYTES))


@asynccontextmanager
async def site(settings: ListenerSettings | None = None, idle_ms: int = 60_000) -> AsyncIterator[tuple[int, Guard]]:
    guard = Guard(Limits(), HttpMeters(requests=metrics.ADMIN_REQUESTS))
    listener = open_listener(settings or ListenerSettings(), "test")
    app = guard.application()
    app.router.add_get("/", large)
    running = HttpSite("test", [listener], guard, idle_ms=idle_ms)
    await running.start(app)
    try:
        yield listener.socket.getsockname()[1], guard
    finally:
        await running.close()


async def open_unread(
    port: int, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request the large answer and do not read it."""
    reader, writer = await open_narrow(port, tls)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # every stream transport has it
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    return reader, writer


async def test_http_clients_that_read_nothing_cannot_hold_more_than_the_bound() -> None:
    async with site() as (port, guard), AsyncExitStack() as closing:
        closed_before = metrics.HTTP_SLOW_READERS.value
        unread = []
        for _ in range(6):
            unread.append(await open_unread(port))
            closing.callback(unread[-1][1].transport.abort)
            await until(lambda: len(guard.gate.slow_readers) > 0)
            assert guard.gate.slow_readers.unread_bytes <= Limits.unread_bytes_max
        await until(lambda: metrics.HTTP_SLOW_READERS.value > closed_before)
        assert guard.gate.slow_readers.unread_bytes <= Limits.unread_bytes_max

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert len(await reader.read()) > ANSWER_BYTES
        writer.close()


async def test_an_http_client_that_reads_late_gets_its_whole_answer() -> None:
    async with site() as (port, guard):
        reader, writer = await open_unread(port)
        await until(lambda: len(guard.gate.slow_readers) == 1)

        writer.transport.resume_reading()  # type: ignore[attr-defined]  # every stream transport has it
        assert len(await reader.read()) > ANSWER_BYTES
        writer.close()
        await until(lambda: guard.gate.slow_readers.unread_bytes == 0)


async def test_over_tls_http_clients_that_read_nothing_cannot_hold_more_than_the_bound(
    certificates: dict[str, Path],
) -> None:
    settings, context = tls_of(certificates)
    async with site(settings) as (port, guard), AsyncExitStack() as closing:
        closed_before = metrics.HTTP_SLOW_READERS.value
        unread = []
        for _ in range(6):
            unread.append(await open_unread(port, context))
            closing.callback(unread[-1][1].transport.abort)
            await until(lambda: len(guard.gate.slow_readers) > 0)
        await until(lambda: metrics.HTTP_SLOW_READERS.value > closed_before)
        assert guard.gate.slow_readers.unread_bytes <= Limits.unread_bytes_max

        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert len(await reader.read()) > ANSWER_BYTES
        writer.close()


async def test_an_http_client_that_reads_nothing_is_closed_after_the_idle_time() -> None:
    """Also without pressure: it would otherwise hold one of the server's connections forever."""
    async with site(idle_ms=100) as (port, guard):
        _, writer = await open_unread(port)
        await until(lambda: len(guard.gate.slow_readers) == 1)

        await until(lambda: guard.connection_count() == 0)
        assert guard.gate.slow_readers.unread_bytes == 0
        writer.transport.abort()
