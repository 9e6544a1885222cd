"""What a TLS connection was given and its client has not read is known, and waits where it counts."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bearlake.serving.tls_transport import TlsTransport
from fixtures.waiting import WAIT_S, until

KIB = 1024
RECORD_BYTES = 16 * KIB


class Tls(asyncio.Transport):
    """The event loop's TLS: it asks to pause when it holds a record that the socket does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.held = b""
        self.is_full = False
        self.is_closed = self.is_aborted = False
        self.is_read = True
        self.above: TlsTransport

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == RECORD_BYTES

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_full:
            self.sent += data
            return
        self.held += data
        if len(self.held) >= RECORD_BYTES:
            self.above.hold()

    def drain(self) -> None:
        """The client has read: the socket's transport takes all that TLS holds, and is full again."""
        self.sent, self.held = self.sent + self.held, b""
        self.above.release()

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.sent = b""


class Scene:
    def __init__(self) -> None:
        self.tls = Tls()
        self.calls: list[str] = []
        self.transport = TlsTransport(self.tls, lambda: self.calls.append("pause"), lambda: self.calls.append("resume"))
        self.tls.above = self.transport


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
    assert len(scene.tls.held) == RECORD_BYTES
    assert scene.calls == ["pause"]


def test_bytes_leave_in_order_and_only_as_the_client_reads(scene: Scene) -> None:
    scene.tls.is_full = True
    parts = [bytes([part]) * (10_000 + part) for part in range(40)]
    scene.transport.writelines(parts)
    for turn in range(1, 5):
        scene.tls.drain()
        assert len(scene.tls.sent) == turn * RECORD_BYTES
    assert scene.calls == ["pause"]

    while scene.transport.get_write_buffer_size():
        scene.tls.drain()

    assert scene.tls.sent == b"".join(parts)
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
    scene.transport.write(bytes(40 * KIB))
    scene.transport.close()
    scene.transport.write(b"too late")
    scene.transport.resume_reading()
    assert scene.transport.is_closing()
    assert not scene.tls.is_closed
    assert not scene.tls.is_read

    while not scene.tls.is_closed:
        scene.tls.drain()

    assert len(scene.tls.sent) + len(scene.tls.held) == 40 * KIB


def test_an_aborted_connection_holds_nothing(scene: Scene) -> None:
    scene.tls.is_full = True
    scene.transport.write(bytes(400 * KIB))

    scene.transport.abort()

    assert scene.tls.is_aborted
    assert scene.transport.is_closing()
    assert scene.transport.get_write_buffer_size() == 0


class Answerer(asyncio.Protocol):
    """Sends `answer` to each client, through the transport under test."""

    transport: TlsTransport

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio.Transport
        type(self).transport = TlsTransport(below, lambda: None, lambda: None)
        self.pause_writing, self.resume_writing = self.transport.hold, self.transport.release  # type: ignore[method-assign]
        self.transport.write(self.answer)
        self.transport.close()


@pytest.mark.parametrize("loop_of", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_over_real_tls_a_large_answer_counts_until_it_is_read(
    loop_of: Callable[[], asyncio.AbstractEventLoop], certificates: dict[str, Path]
) -> None:
    """The buffers of both sockets hold about 4 MiB on Linux; the event loop's own transport would report nothing."""
    answer = bytes(range(256)) * (16 * 4 * KIB)

    async def scene() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates["server"], certificates["server_key"])
        trust = ssl.create_default_context(cafile=str(certificates["authority"]))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Answerer(answer), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, ssl=trust, server_hostname="localhost")
        writer.write(b"x")  # otherwise the end of the handshake waits until the client reads
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # every stream transport has it
        await until(lambda: hasattr(Answerer, "transport"))

        assert Answerer.transport.get_write_buffer_size() > 8 * KIB * KIB
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # the same
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == answer
        assert Answerer.transport.get_write_buffer_size() == 0
        del Answerer.transport
        writer.close()
        server.close()

    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(scene())
