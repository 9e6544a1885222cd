"""Arrow payloads: written by pyarrow and read in every form, and the other way round."""

from typing import Any

import grpc
import pyarrow as pa
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.records import codec as record_codec
from bearlake.records.codec import Record
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)
START = pb.Position(stream="one", earliest=True)


def arrow(rows: pa.RecordBatch, *, has_schema: bool = True) -> pb.Payload:
    schema = bytes(rows.schema.serialize()) if has_schema else b""
    return pb.Payload(arrow=pb.ArrowRecords(schema=schema, record_batch=bytes(rows.serialize())))


async def read(call: Any, count: int) -> tuple[list[pb.FetchResponse], list[dict[str, Any]]]:
    """The answers, and their rows as one dict each."""
    answers: list[pb.FetchResponse] = []
    schemas: dict[tuple[str, int], bytes] = {}
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        answer = await call.read()
        content = answer.payload.arrow
        place = (answer.stream, answer.partition)
        schemas[place] = content.schema or schemas[place]
        answers.append(answer)
        rows += pa.ipc.open_stream(schemas[place] + content.record_batch).read_all().to_pylist()
    return answers, rows


async def end_offset(node: GrpcNode) -> int:
    found = await node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="one"))
    return int(found.partitions[0].end_offset)


async def test_columns_are_records_to_readers_of_other_forms(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    rows = pa.record_batch(
        {
            "key": pa.array(["a", None]),
            "value": pa.array([None, b"\xff"]),
            "timestamp": pa.array([7, 8], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], []]),
        }
    )
    sequence = pb.ProducerSequence(producer_id=4, base_sequence=0)
    request = pb.ProduceRequest(stream="one", payload=arrow(rows), sequence=sequence)

    first = await grpc_node.call(methods.PRODUCE, request)
    again = await grpc_node.call(methods.PRODUCE, request)
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[START], form=pb.FORM_RECORD_BATCHES, credit=PLENTY))
    stored = record_codec.decode((await call.read()).payload.record_batches, 1 << 20)
    call.cancel()

    assert (first.base_offset, first.record_count) == (again.base_offset, again.record_count) == (0, 2)
    assert stored == [
        Record(key=b"a", value=None, timestamp=7, headers=(("h", b"1"),), offset_delta=0),
        Record(key=None, value=b"\xff", timestamp=8, offset_delta=1),
    ]


async def test_a_stream_of_batches_sends_its_schema_once(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    narrow, wide = (
        pa.record_batch({"value": pa.array([value], kind)})
        for value, kind in ((b"n", pa.binary()), ("w", pa.large_string()))
    )
    payloads = [arrow(narrow), arrow(narrow, has_schema=False), arrow(wide), arrow(wide, has_schema=False)]
    call = grpc_node.open(methods.PRODUCE_STREAM)

    for payload in payloads:
        await call.write(pb.ProduceStreamRequest(stream="one", payload=payload))
    await call.done_writing()
    while (answer := await call.read()) is not grpc.aio.EOF:
        last = answer
    reader = grpc_node.open(methods.FETCH)
    await reader.write(pb.FetchRequest(assign=[START], form=pb.FORM_ARROW, credit=PLENTY))
    _, rows = await read(reader, 4)
    reader.cancel()

    assert last.acknowledged_count == 4
    assert [row["value"] for row in rows] == [b"n", b"n", b"w", b"w"]


async def test_records_of_every_form_are_read_as_columns(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(payload_bytes=2_000)))[0]
    await node.create("one")
    for value in (b"first", bytes(3_000), b"last"):
        await node.call(
            methods.PRODUCE, pb.ProduceRequest(stream="one", payload=pb.Payload(record_batches=batch_of(value, b"x")))
        )
    call = node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[pb.Position(stream="one", offset=1)], form=pb.FORM_ARROW, credit=PLENTY))
    answers, rows = await read(call, 5)
    call.cancel()

    assert [(row["offset"], row["value"]) for row in rows] == [
        (1, b"x"),
        (2, bytes(3_000)),
        (3, b"x"),
        (4, b"last"),
        (5, b"x"),
    ]
    assert [bool(answer.payload.arrow.schema) for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert answers[0].credit_bytes == len(answers[0].payload.arrow.record_batch)


async def test_a_seek_sends_the_schema_again(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    payload = pb.Payload(record_batches=batch_of(b"v"))
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload))
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[START], form=pb.FORM_ARROW, credit=PLENTY))
    first = await call.read()
    await call.write(pb.FetchRequest(seek=[START]))
    second = await call.read()
    call.cancel()

    assert first.payload.arrow == second.payload.arrow


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (arrow(pa.record_batch({"value": pa.array([b"v"])}), has_schema=False), "payload.arrow.schema"),
        (arrow(pa.record_batch({"colour": pa.array([b"v"])})), "payload.arrow.schema"),
        (arrow(pa.record_batch({"value": pa.array([5])})), "payload.arrow.record_batch"),
        (arrow(pa.record_batch({"value": pa.array([b"v"]), "timestamp": pa.array([-7])})), "payload.arrow"),
        (pb.Payload(arrow=pb.ArrowRecords(schema=b"no", record_batch=b"no")), "payload.arrow.schema"),
    ],
)
async def test_invalid_arrow_is_refused_with_the_name_of_its_field(
    grpc_node: GrpcNode, payload: pb.Payload, field: str
) -> None:
    await grpc_node.create("one")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith(f"{field}: ")
    assert await end_offset(grpc_node) == 0


async def test_a_member_of_a_group_reads_columns(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one", 2)
    for partition in range(2):
        payload = pb.Payload(record_batches=batch_of(b"a", b"b"))
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", partition=partition, payload=payload))
    call = grpc_node.open(methods.CONSUME)
    join = pb.Join(group="g", streams=["one"], form=pb.FORM_ARROW)

    await call.write(pb.ConsumeRequest(join=join, credit=PLENTY))
    assert (await call.read()).HasField("assigned")
    found = {}
    for _ in range(2):
        content = (await call.read()).records
        rows = pa.ipc.open_stream(content.payload.arrow.schema + content.payload.arrow.record_batch).read_all()
        found[content.partition] = rows["value"].to_pylist()
    await call.done_writing()

    assert found == {0: [b"a", b"b"], 1: [b"a", b"b"]}
