"""Messages that are not Protocol Buffers: the call ends with INTERNAL, which is the client's fault and not an error of the server."""

import logging
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from fixtures.grpc_server import GrpcNode
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S

METHODS = [method for method in vars(methods).values() if isinstance(method, Method)]
MALFORMED = b"\x0a\xff\xff\xff\xff\x0f"
"""A field that announces 4 GiB."""


async def status(node: GrpcNode, method: Method[Any, Any], *messages: bytes) -> grpc.aio.AioRpcError:
    """The error of a call with these messages."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call(node, method, messages)
    return error.value


async def call(node: GrpcNode, method: Method[Any, Any], messages: Sequence[bytes]) -> None:
    if not method.is_streaming:
        await node.channel.unary_unary(method.path)(messages[0], timeout=WAIT_S)
        return
    async for _ in node.channel.stream_stream(method.path)(iter(messages), timeout=WAIT_S):
        pass


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_a_malformed_message_ends_the_call_and_does_not_count_as_a_server_error(
    grpc_node: GrpcNode, method: Method[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    error = await status(grpc_node, method, MALFORMED)

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "DecodeError" not in (error.details() or "")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_batches_before_a_malformed_message_are_stored(grpc_node: GrpcNode) -> None:
    await grpc_node.create("t")
    good = pb.ProduceStreamRequest(stream="t", payload=pb.Payload(record_batches=batch_of(b"a")))

    error = await status(grpc_node, methods.PRODUCE_STREAM, good.SerializeToString(), MALFORMED)
    described = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"))

    assert error.code() is grpc.StatusCode.INTERNAL
    assert [partition.end_offset for partition in described.partitions] == [1]
