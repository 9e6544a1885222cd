"""HTTP clients that close their sending side behind a request: they may get no answer, and what they asked happens once or not at all.

RFC 9112 obliges no server to answer over a half-closed connection: section 9.5 lets either side close it at any time.
"""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest

from fixtures.rest_server import RestNode
from fixtures.waiting import WAIT_S


async def asked_at_once(url: str, *parts: bytes) -> bytes:
    """Send the request and close the sending side, then read everything that the server sends.

    The server runs in this event loop, so it reads nothing before both are done.
    """
    target = urlsplit(url)
    client = socket.create_connection((target.hostname, target.port))  # the kernel accepts it
    await asyncio.sleep(
        0.1
    )  # the server accepts; its event loop is this one, so it reads nothing during the next statements
    client.sendall(b"".join(parts))
    client.shutdown(socket.SHUT_WR)
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        async with asyncio.timeout(WAIT_S):
            return await reader.read()
    finally:
        writer.close()


async def test_a_change_whose_client_has_half_closed_is_not_executed_and_not_answered(rest: RestNode) -> None:
    answer = await asked_at_once(
        rest.url, b"PUT /v1/stream/t HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
    )

    assert answer == b""
    assert list(rest.streams.catalog.names()) == []


async def test_a_read_whose_client_has_half_closed_is_not_answered(rest: RestNode) -> None:
    await rest.create("t")

    assert await asked_at_once(rest.url, b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n") == b""


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"], ids=["keep-alive", "close"])
async def test_a_client_that_keeps_its_sending_side_open_is_answered(rest: RestNode, close: bytes) -> None:
    await rest.create("t")
    target = urlsplit(rest.url)
    reader, writer = await asyncio.open_connection(target.hostname, target.port)
    writer.write(b"GET /topics HTTP/1.1\r\nHost: x\r\n" + close + b"\r\n")

    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
