"""What a TLS connection was given and its client has not read is known, and waits where it counts."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bearlake.serving.tls_transport import PIECE_BYTES, BufferedTlsProtocol, TlsProtocol, TlsTransport
from fixtures.slow_clients import open_narrow
from fixtures.waiting import WAIT_S, until

KIB = 1024


class Tls(asyncio.Transport):
    """The event loop's TLS: it asks to pause when it holds a piece that the socket's transport does not take."""

    def __init__(self, above: TlsProtocol) -> None:
        super().__init__()
        self.above = above
        self.sent = b""
        self.held = b""
        self.is_full = False
        self.is_closed = self.is_aborted = False
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == PIECE_BYTES

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_full:
            self.sent += data
            return
        self.held += data
        if len(self.held) >= PIECE_BYTES:
            self.above.pause_writing()

    def drain(self) -> None:
        """The client has read: the socket's transport takes all that TLS holds, and is full again."""
        self.sent, self.held = self.sent + self.held, b""
        self.above.resume_writing()

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.sent = b""


class Answerer(asyncio.Protocol):
    """Records what it is told."""

    transport: TlsTransport

    def __init__(self) -> None:
        self.calls: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Scene:
    def __init__(self) -> None:
        protocol = Answerer()
        between = TlsProtocol(protocol)
        self.tls = Tls(between)
        between.connection_made(self.tls)
        self.calls = protocol.calls
        self.transport = protocol.transport


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_the_client_reads_at_once_passes_through(scene: Scene) -> None:
    parts = [bytes([part]) * 50_000 for part in range(5)]
    scene.transport.writelines(parts)
    scene.transport.write(b"end")

    assert scene.tls.sent == b"".join(parts) + b"end"
    assert scene.transport.get_write_buffer_size() == 0
    assert scene.calls == []


def test_all_that_the_client_has_not_read_counts(scene: Scene) -> None:
    scene.tls.is_full = True
    answer = bytes(range(256)) * 4 * KIB

    scene.transport.write(answer)

    assert scene.transport.get_write_buffer_size() == len(answer)
    assert len(scene.tls.held) == PIECE_BYTES
    assert scene.calls == ["pause"]


def test_bytes_leave_in_order_and_only_as_the_client_reads(scene: Scene) -> None:
    scene.tls.is_full = True
    parts = [bytes([part]) * (40_000 + part) for part in range(40)]
    scene.transport.writelines(parts)
    for turn in range(1, 5):
        scene.tls.drain()
        assert len(scene.tls.sent) == turn * PIECE_BYTES
    assert scene.calls == ["pause"]

    while scene.transport.get_write_buffer_size():
        scene.tls.drain()

    assert scene.tls.sent == b"".join(parts)
    assert scene.calls == ["pause", "resume"]


def test_a_rest_that_tls_need_not_hold_resumes_the_protocol(scene: Scene) -> None:
    """TLS asks to go on only after it has asked to stop. For a rest below its own limit it never asks to stop."""
    scene.tls.is_full = True
    scene.transport.write(bytes(PIECE_BYTES + 40 * KIB))
    assert scene.calls == ["pause"]

    scene.tls.drain()

    assert len(scene.tls.held) == 40 * KIB
    assert scene.calls == ["pause", "resume"]


def test_the_limit_of_a_protocol_applies(scene: Scene) -> None:
    scene.transport.set_write_buffer_limits(high=1024 * KIB)
    scene.tls.is_full = True

    scene.transport.write(bytes(1024 * KIB))
    assert scene.calls == []
    scene.transport.write(b"x")
    assert scene.calls == ["pause"]


def test_a_closed_connection_sends_what_it_was_given_and_reads_nothing_more(scene: Scene) -> None:
    scene.tls.is_full = True
    scene.transport.write(bytes(160 * KIB))
    scene.transport.close()
    scene.transport.write(b"too late")
    scene.transport.resume_reading()
    assert scene.transport.is_closing()
    assert not scene.tls.is_closed
    assert not scene.tls.is_read

    while not scene.tls.is_closed:
        scene.tls.drain()

    assert len(scene.tls.sent) + len(scene.tls.held) == 160 * KIB


def test_an_aborted_connection_holds_nothing(scene: Scene) -> None:
    scene.tls.is_full = True
    scene.transport.write(bytes(400 * KIB))

    scene.transport.abort()

    assert scene.tls.is_aborted
    assert scene.transport.is_closing()
    assert scene.transport.get_write_buffer_size() == 0


class Buffered(asyncio.BufferedProtocol):
    """Sends `answer` to a client that has sent a byte, and closes the connection."""

    transport: TlsTransport
    is_lost = False

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.buffer = bytearray(64 * KIB)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(self.answer)
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Streamed(Buffered, asyncio.Protocol):
    """As `Buffered`, and takes bytes."""

    def data_received(self, data: bytes) -> None:
        self.buffer_updated(len(data))


Make = Callable[[bytes], tuple[Buffered, asyncio.BaseProtocol]]


def buffered(answer: bytes) -> tuple[Buffered, asyncio.BaseProtocol]:
    protocol = Buffered(answer)
    return protocol, BufferedTlsProtocol(protocol)


def streamed(answer: bytes) -> tuple[Buffered, asyncio.BaseProtocol]:
    protocol = Streamed(answer)
    return protocol, TlsProtocol(protocol)


@pytest.mark.parametrize("loop_of", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("make", [buffered, streamed])
def test_over_real_tls_a_large_answer_counts_until_it_is_read(
    loop_of: Callable[[], asyncio.AbstractEventLoop], make: Make, certificates: dict[str, Path]
) -> None:
    """The buffers of both sockets hold about 4 MiB on Linux; the event loop's own transport would report nothing."""
    answer = bytes(range(256)) * (16 * 4 * KIB)

    async def scene() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates["server"], certificates["server_key"])
        trust = ssl.create_default_context(cafile=str(certificates["authority"]))
        protocol, between = make(answer)
        server = await asyncio.get_running_loop().create_server(lambda: between, "127.0.0.1", 0, ssl=context)
        reader, writer = await open_narrow(server.sockets[0].getsockname()[1], trust)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # every stream transport has it
        writer.write(b"x")
        await until(lambda: hasattr(protocol, "transport") and protocol.transport.is_closing())

        assert protocol.transport.get_write_buffer_size() > 8 * KIB * KIB
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # the same
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == answer
        assert protocol.transport.get_write_buffer_size() == 0
        writer.close()
        await until(lambda: protocol.is_lost)
        server.close()

    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(scene())
