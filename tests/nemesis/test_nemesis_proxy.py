"""Links apply their rule to the bytes, and count its effects."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from nemesis.proxy import Link, Rule, _do

TIMEOUT_S = 10.0


class Echo:
    """An echo server that also keeps what it receives, and the test's connections to it."""

    def __init__(self) -> None:
        self.heard = b""
        self.dialled: list[asyncio.StreamWriter] = []
        self.news = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(1000):
            async with self.news:
                self.heard += block
                self.news.notify_all()
            writer.write(block)
        writer.close()

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self.dialled.append(writer)
        return reader, writer

    async def hang_up(self) -> None:
        for writer in self.dialled:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self.dialled), return_exceptions=True)

    async def has_received(self, text: bytes) -> None:
        async with self.news:
            await self.news.wait_for(lambda: text in self.heard)


@asynccontextmanager
async def linked(kind: str = "tcp") -> AsyncIterator[tuple[Link, Echo, int]]:
    """A link to an echo server, and its port."""
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    link = Link(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", kind)
    port = await link.listen("127.0.0.1:0")
    async with asyncio.timeout(TIMEOUT_S):
        try:
            yield link, echo, port
        finally:
            await link.stop()
            await echo.hang_up()
            server.close()


async def turns_until(is_so: Callable[[], object]) -> None:
    """Run the loop until the condition holds; the caller limits the time."""
    while not is_so():  # noqa: ASYNC110 - the link counts, it does not tell
        await asyncio.sleep(0)


async def test_a_link_without_a_rule_passes_bytes_on() -> None:
    async with linked() as (_, echo, port):
        reader, writer = await echo.dial(port)
        writer.write(b"hello")

        assert await reader.readexactly(5) == b"hello"


async def test_held_bytes_are_delivered_after_their_client_has_gone() -> None:
    async with linked() as (link, echo, port):
        _, writer = await echo.dial(port)
        link.set_rule(Rule(mode="hold"))
        writer.write(b"late")
        writer.close()
        await writer.wait_closed()
        await turns_until(
            lambda: (
                link.counts["held_bytes"] and all(connection.is_client_gone for connection in link.connections.values())
            )
        )
        assert echo.heard == b""

        link.set_rule(None)

        await echo.has_received(b"late")
        assert link.counts["delivered_after_client_had_gone"] == 1


async def test_a_rule_for_old_connections_does_not_affect_new_connections() -> None:
    async with linked() as (link, echo, port):
        old_reader, old = await echo.dial(port)
        old.write(b"x")
        await old_reader.readexactly(1)
        link.set_rule(Rule(mode="hold", old=True))
        reader, writer = await echo.dial(port)
        old.write(b"held")
        writer.write(b"new")

        assert await reader.readexactly(3) == b"new"
        link.set_rule(None)
        assert await old_reader.readexactly(4) == b"held"


async def test_a_connection_that_lost_bytes_is_reset_when_the_rule_ends() -> None:
    async with linked() as (link, echo, port):
        reader, writer = await echo.dial(port)
        link.set_rule(Rule(mode="drop", direction="to_server"))
        writer.write(b"lost")
        await turns_until(lambda: link.counts["dropped_bytes"])

        link.set_rule(None)

        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        assert echo.heard == b""


async def test_a_partition_resets_open_connections_and_refuses_new_ones() -> None:
    async with linked() as (link, echo, port):
        reader, writer = await echo.dial(port)
        writer.write(b"x")
        await reader.readexactly(1)

        link.set_rule(Rule(mode="cut"))

        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        new_reader, _ = await echo.dial(port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await new_reader.readexactly(1)
        assert (link.counts["reset"], link.counts["refused"]) == (1, 1)


@pytest.mark.parametrize(
    "body", [b"Content-Length: 4\r\n\r\ndata", b"Transfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n"]
)
async def test_requests_of_some_keys_get_an_error_and_the_others_succeed(body: bytes) -> None:
    async with linked("http") as (link, echo, port):
        rule = Rule(mode="status", status=503, fraction=0.5)
        keys = [f"/lake/{at}" for at in range(100)]
        passing, failing = next(key for key in keys if not rule.hits(key)), next(key for key in keys if rule.hits(key))
        link.set_rule(rule)
        reader, writer = await echo.dial(port)
        request = b"PUT %s?x=1 HTTP/1.1\r\n" + body
        writer.write(request % passing.encode())
        await echo.has_received(request % passing.encode())
        await reader.readexactly(len(request % passing.encode()))
        writer.write(request % failing.encode())

        assert (await reader.readline()).startswith(b"HTTP/1.1 503")
        assert failing.encode() not in echo.heard
        assert link.counts["status_503"] == 1


async def test_the_answer_to_a_rule_has_the_counts_before_it() -> None:
    """The immediate effects of a rule count as its own; otherwise a fault that resets connections has no proof."""
    async with linked() as (link, echo, port):
        reader, writer = await echo.dial(port)
        writer.write(b"x")
        await reader.readexactly(1)

        before = await _do({"a>b": link}, {"do": "rule", "link": "a>b", "rule": {"mode": "cut", "old": True}})

        assert before.get("reset", 0) == 0
        assert link.counts["reset"] == 1
