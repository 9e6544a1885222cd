"""Connections that are not read from the beginning, on both event loops."""

import asyncio

import pytest
import uvloop

from bearlake.serving.first_pause import pause_again

TURNS = 50


class Paused(asyncio.Protocol):
    """Pauses its connection when it is made."""

    def __init__(self) -> None:
        self.received = b""
        self.made = asyncio.Event()
        self.read = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.pause_reading()
        asyncio.get_running_loop().call_soon(pause_again, transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.read.set()


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def scene() -> None:
    protocol = Paused()
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await protocol.made.wait()
    await turns()

    writer.write(b"sent during the pause")
    await turns()
    assert (protocol.received, protocol.transport.is_reading()) == (b"", False)

    protocol.transport.resume_reading()
    await protocol.read.wait()
    assert protocol.received == b"sent during the pause"
    writer.close()
    server.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_paused_when_it_was_made_stays_paused(new_loop) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(scene(), 30))


async def test_a_transport_that_closes_is_left_alone() -> None:
    class Closing(asyncio.Transport):
        def is_closing(self) -> bool:
            return True

    pause_again(Closing())  # whose other methods raise
