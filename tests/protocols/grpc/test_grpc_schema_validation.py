"""Validation by schemas for gRPC: INVALID_RECORD, with a violation for each bad record."""

from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from fixtures.avro_cases import number, record, text
from fixtures.failing_stores import HeldStore
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.registered import register


def order(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text("x") + number(7)


def payload(form: str, *values: bytes) -> pb.Payload:
    if form == "batch":
        return pb.Payload(record_batches=batch_of(*values))
    return pb.Payload(records=pb.Records(records=[pb.Record(value=value) for value in values]))


def details(error: grpc.aio.AioRpcError) -> tuple[ErrorInfo, list[Any]]:
    """The reason of a failed call, and its violations."""
    packed = Status.FromString(dict(error.trailing_metadata() or ())[DETAILS_KEY])
    info, request = ErrorInfo(), BadRequest()
    for item in packed.details:
        for found in (info, request):
            if item.Is(found.DESCRIPTOR):
                item.Unpack(found)
    return info, list(request.field_violations)


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def end(node: GrpcNode) -> int:
    found = await node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="orders"))
    return int(found.partitions[0].end_offset)


@pytest.mark.parametrize("form", ["records", "batch"])
async def test_bad_records_are_named_one_by_one(grpc_node: GrpcNode, form: str) -> None:
    await grpc_node.create("orders", schema_validation="value")
    schema_id = await register(grpc_node.streams.metadata, record("string", "long"))
    values = [order(schema_id), b"none", order(schema_id)[:-1]]

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=payload(form, *values)))
    good = await grpc_node.call(
        methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=payload(form, order(schema_id)))
    )

    info, violations = details(caught.value)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert info.reason == "INVALID_RECORD"
    assert [item.field for item in violations] == ["payload.records[1]", "payload.records[2]"]
    assert "TRUNCATED at f1" in violations[1].description
    assert good.base_offset == 0


async def test_a_status_names_few_records_so_that_it_fits_into_a_header(grpc_node: GrpcNode) -> None:
    await grpc_node.create("orders", schema_validation="id")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(
            methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=payload("records", *[b"none"] * 5_000))
        )

    assert len(details(caught.value)[1]) == 10


async def test_a_call_ends_at_its_first_bad_batch(grpc_cluster: MakeGrpc) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store))[0]
    await node.create("orders", schema_validation="value")
    schema_id = await register(node.streams.metadata, record("string", "long"))
    call = node.open(methods.PRODUCE_STREAM)

    for value in (order(schema_id), order(schema_id), b"none", order(schema_id)):
        await call.write(pb.ProduceStreamRequest(stream="orders", payload=payload("records", value)))
    await call.done_writing()
    store.go.set()  # not before all is written: the library of a client that writes while its call ends drops the server's status
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(call)

    info, _ = details(caught.value)
    assert (info.reason, info.metadata["batch_index"]) == ("INVALID_RECORD", "2")
    assert await end(node) == 2
