"""Clients that call, answer probes, and never let the server send: what it holds for them is bounded, and others are served."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.protocols.grpc.unread import BYTES_MIN, UnreadMessages
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S, until

STREAM_COUNT = 200
NAME = "s" * 100
ANSWER_BYTES_MIN = STREAM_COUNT * len(NAME)
LIMIT = 65_000
"""Two answers of about 26,000 bytes."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2. Source: RFC 9113, 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name: str, value: str) -> bytes:
    """A header without compression. Source: RFC 7541, 6.2.2."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class Unreading:
    """An HTTP/2 client whose flow control lets the server send no message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._stream = 1
        no_window = struct.pack(">HI", 4, 0)
        writer.write(_PREFACE + frame(_SETTINGS, 0, 0, no_window) + frame(_SETTINGS, _ACK, 0, b""))

    def call(
        self, method: Method[pb.ListStreamsRequest, pb.ListStreamsResponse], message: bytes, *, ends: bool
    ) -> None:
        """Begin a call with one message."""
        named = [(":method", "POST"), (":scheme", "http"), (":path", method.path), (":authority", "server")]
        headers = b"".join(header(*pair) for pair in [*named, ("content-type", "application/grpc"), ("te", "trailers")])
        data = b"\0" + struct.pack(">I", len(message)) + message
        self._writer.write(frame(_HEADERS, _END_HEADERS, self._stream, headers))
        self._writer.write(frame(_DATA, _END_STREAM if ends else 0, self._stream, data))
        self._stream += 2

    async def read_to_the_end(self) -> None:
        """Read the connection, answering probes, until the server closes it."""
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] == _PING and not head[4] & _ACK:
                    self._writer.write(frame(_PING, _ACK, 0, payload))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._writer.close()


async def unreading(node: GrpcNode) -> Unreading:
    host, _, port = node.address.rpartition(":")
    return Unreading(*await asyncio.open_connection(host, int(port)))


def unread(node: GrpcNode) -> UnreadMessages:
    return node.server._node.unread  # noqa: SLF001


@pytest.fixture
async def node(grpc_cluster: MakeGrpc) -> AsyncIterator[GrpcNode]:
    """A server that checks its connections only when a test asks for it."""
    found = (await grpc_cluster(1, settings=GrpcSettings(unread_bytes_max=LIMIT, address_check_ms=WAIT_S * 1000)))[0]
    for number in range(STREAM_COUNT):
        await found.create(f"{NAME}{number}")
    yield found
    assert unread(found).size_bytes == 0


async def test_unread_answers_close_the_connection_that_has_not_read_for_longest(node: GrpcNode) -> None:
    first, others = await unreading(node), [await unreading(node) for _ in range(3)]
    first.call(methods.LIST_STREAMS, b"", ends=True)
    await until(lambda: unread(node).size_bytes > ANSWER_BYTES_MIN)
    for number, other in enumerate(others):
        other.call(methods.LIST_STREAMS, b"", ends=True)
        await until(lambda: len(unread(node).closing) > 0 or unread(node).size_bytes > (number + 2) * ANSWER_BYTES_MIN)  # noqa: B023
    assert unread(node).size_bytes <= LIMIT

    await node.server.close_slow_readers()

    async with asyncio.timeout(WAIT_S):
        await first.read_to_the_end()
    answer = await node.call(methods.LIST_STREAMS, pb.ListStreamsRequest())
    assert len(answer.streams) == STREAM_COUNT
    await until(lambda: unread(node).size_bytes > 0)
    for other in others:
        other._writer.close()  # noqa: SLF001
    await until(lambda: unread(node).size_bytes == 0)


async def test_unread_records_of_a_stream_count_too(node: GrpcNode) -> None:
    await node.create("records")
    payload = pb.Payload(record_batches=batch_of(bytes(LIMIT // 2)))
    await node.call(methods.PRODUCE, pb.ProduceRequest(stream="records", payload=payload))
    request = pb.FetchRequest(
        form=pb.FORM_RECORD_BATCHES,
        assign=[pb.Position(stream="records", earliest=True)],
        credit=pb.Credit(bytes=1 << 30, messages=1),
    )

    client = await unreading(node)
    client.call(methods.FETCH, request.SerializeToString(), ends=False)
    await until(lambda: unread(node).size_bytes > LIMIT // 2)

    client._writer.close()  # noqa: SLF001
    await until(lambda: unread(node).size_bytes == 0)


async def test_a_client_that_reads_leaves_nothing_counted(node: GrpcNode) -> None:
    for _ in range(10):
        await node.call(methods.LIST_STREAMS, pb.ListStreamsRequest())

    assert ANSWER_BYTES_MIN > BYTES_MIN
    await until(lambda: unread(node).size_bytes == 0)
    assert not unread(node).closing
