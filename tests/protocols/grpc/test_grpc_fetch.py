"""Fetch: positions, credits, forms, errors, drain."""

import asyncio
from typing import Any

import grpc
import pytest

from bearlake import kernel
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.records import codec as record_codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from bearlake.telemetry import metrics
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.waiting import until

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)


def at(offset: int, stream: str = "one", partition: int = 0, tag: int = 0) -> pb.Position:
    return pb.Position(stream=stream, partition=partition, offset=offset, tag=tag)


async def put(node: GrpcNode, batch: bytes, stream: str = "one", partition: int = 0) -> None:
    payload = pb.Payload(record_batches=batch)
    await node.call(methods.PRODUCE, pb.ProduceRequest(stream=stream, partition=partition, payload=payload))


async def read_records(call: Any, count: int) -> list[Any]:
    """Read answers until there are `count` records; return them."""
    found: list[Any] = []
    while len(found) < count:
        answer = await call.read()
        assert not answer.HasField("error"), answer
        found += answer.payload.records.records
    return found


async def silence(call: Any) -> bool:
    """Whether nothing is sent for a while."""
    reading = asyncio.ensure_future(call.read())
    done, _ = await asyncio.wait({reading}, timeout=0.1)
    assert not done, reading.result()
    return True


async def test_records_are_returned_as_they_were_written(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    written = [
        Record(key=None, value=None, timestamp=-1),
        Record(key=b"", value=b"", timestamp=0),
        Record(key=b"\xff\x00", value=b"\x00" * 70_000, headers=(("a", None), ("a", b""), ("\udcff", b"\xff"))),
        Record(key="ключ".encode(), value="値".encode(), timestamp=1_700_000_000_000),
    ]
    await put(grpc_node, record_codec.encode(written, codec=Compression.ZSTD))
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[at(0)], credit=PLENTY))
    found = await read_records(call, 4)
    call.cancel()

    assert [item.offset for item in found] == [0, 1, 2, 3]
    assert [item.key if item.HasField("key") else None for item in found] == [record.key for record in written]
    assert [item.value if item.HasField("value") else None for item in found] == [record.value for record in written]
    assert [item.timestamp_ms if item.HasField("timestamp_ms") else -1 for item in found] == [
        record.timestamp for record in written
    ]
    headers = [(header.key, header.value if header.HasField("value") else None) for header in found[2].headers]
    assert headers == [(b"a", None), (b"a", b""), (b"\xff", b"\xff")]


async def test_written_records_are_stored_as_they_were_sent(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    sent = [
        pb.Record(timestamp_ms=5),
        pb.Record(key=b"", value=b"", timestamp_ms=0, headers=[pb.Header(key=b"\xff"), pb.Header(key=b"x", value=b"")]),
        pb.Record(key=b"k", value=b"now"),
    ]
    request = pb.ProduceRequest(stream="one", payload=pb.Payload(records=pb.Records(records=sent)))
    await grpc_node.call(methods.PRODUCE, request)
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(form=pb.FORM_RECORD_BATCHES, assign=[at(0)], credit=PLENTY))
    answer = await call.read()
    call.cancel()
    stored = record_codec.decode(answer.payload.record_batches, 1 << 20)

    assert (answer.start_offset, answer.end_offset, answer.next_offset) == (0, 3, 3)
    assert [(record.key, record.value, record.headers) for record in stored] == [
        (None, None, ()),
        (b"", b"", (("\udcff", None), ("x", b""))),
        (b"k", b"now", ()),
    ]
    assert [record.timestamp for record in stored[:2]] == [5, 0]
    assert stored[2].timestamp > 1_700_000_000_000


async def test_a_position_inside_a_batch_skips_the_records_before_it(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await put(grpc_node, batch_of(b"a", b"b", b"c"))
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[at(1)], credit=PLENTY))
    found = await read_records(call, 2)
    call.cancel()

    assert [(item.offset, item.value) for item in found] == [(1, b"b"), (2, b"c")]


async def test_raw_batches_are_the_stored_ones(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    for value in (b"a", b"b"):
        await put(grpc_node, batch_of(value, compression=Compression.GZIP))
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(form=pb.FORM_RECORD_BATCHES, assign=[at(0)], credit=PLENTY))
    answer = await call.read()
    call.cancel()
    data = answer.payload.record_batches

    assert [base for _, base, _ in kernel.batches(data, 0, len(data))] == [0, 1]
    assert data[21:61] == batch_of(b"a", compression=Compression.GZIP)[21:61]


async def test_a_reader_at_the_end_gets_later_records(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await put(grpc_node, batch_of(b"old"))
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[pb.Position(stream="one", latest=True)], credit=PLENTY))
    await until(lambda: bool(metrics.FETCH_WAITING.value))
    await put(grpc_node, batch_of(b"new"))
    found = await read_records(call, 1)
    call.cancel()

    assert [(item.offset, item.value) for item in found] == [(1, b"new")]


async def test_times_and_bounds_are_positions(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await put(grpc_node, batch_of(b"a", b"b", b"c", timestamp=1_000, step_ms=1_000))

    async def first(**start: Any) -> int:
        call = grpc_node.open(methods.FETCH)
        await call.write(pb.FetchRequest(assign=[pb.Position(stream="one", **start)], credit=PLENTY))
        found = await read_records(call, 1)
        call.cancel()
        return int(found[0].offset)

    assert await first(earliest=True) == 0
    assert await first(timestamp_ms=1_500) == 1
    assert await first(timestamp_ms=3_000) == 2


async def test_a_record_that_arrives_during_a_look_up_by_time_is_sent(
    grpc_node: GrpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grpc_node.create("one")
    await put(grpc_node, batch_of(b"old", timestamp=1_000))
    look_up = grpc_node.streams.offsets

    async def slow(questions: Any, **options: Any) -> Any:
        answers = await look_up(questions, **options)
        await put(grpc_node, batch_of(b"new", timestamp=3_000))
        return answers

    monkeypatch.setattr(grpc_node.streams, "offsets", slow)
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[pb.Position(stream="one", timestamp_ms=2_000)], credit=PLENTY))
    found = await read_records(call, 1)
    call.cancel()

    assert (found[0].offset, found[0].value) == (1, b"new")


async def test_the_server_sends_only_as_much_as_the_credit_allows(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(payload_bytes=1_000)))[0]
    await node.create("one")
    for _ in range(10):
        await put(node, batch_of(bytes(1_000)))
    call = node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[at(0)], credit=pb.Credit(bytes=1 << 30, messages=2)))
    assert [item.offset for item in await read_records(call, 2)] == [0, 1]
    await call.write(pb.FetchRequest(credit=pb.Credit(messages=1)))
    assert [item.offset for item in await read_records(call, 1)] == [2]
    assert await silence(call)


async def test_a_payload_overdraws_the_bytes_by_less_than_a_batch(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1))[0]
    await node.create("one")
    for _ in range(10):
        await put(node, batch_of(bytes(1_000)))
    call = node.open(methods.FETCH)
    size = len(batch_of(bytes(1_000)))

    wanted = pb.FetchRequest(
        form=pb.FORM_RECORD_BATCHES, assign=[at(0)], credit=pb.Credit(bytes=3 * size + 1, messages=100)
    )
    await call.write(wanted)
    got = 0
    while got <= 3 * size:
        got += len((await call.read()).payload.record_batches)

    assert got <= 4 * size
    assert await silence(call)


async def test_answers_after_a_seek_differ_from_those_in_flight_before_it(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await put(grpc_node, batch_of(b"a", b"b"))
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[at(0, tag=1)], credit=PLENTY))
    before = await call.read()

    await call.write(pb.FetchRequest(seek=[at(1, tag=2)]))
    after = await call.read()
    call.cancel()

    assert (before.tag, before.next_offset) == (1, 2)
    assert (after.tag, [item.value for item in after.payload.records.records]) == (2, [b"b"])


async def test_a_seek_of_an_unassigned_partition_is_refused(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(seek=[at(0)]))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("position", "code"),
    [
        (at(9), grpc.StatusCode.OUT_OF_RANGE),
        (at(0, "none"), grpc.StatusCode.NOT_FOUND),
        (at(0, partition=5), grpc.StatusCode.NOT_FOUND),
        (pb.Position(stream="one"), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_an_unreadable_partition_is_reported_and_the_others_continue(
    grpc_node: GrpcNode, position: pb.Position, code: grpc.StatusCode
) -> None:
    await grpc_node.create("one")
    await grpc_node.create("two")
    await put(grpc_node, batch_of(b"v"), "two")
    call = grpc_node.open(methods.FETCH)

    await call.write(pb.FetchRequest(assign=[position, at(0, "two")], credit=PLENTY))
    answers = [await call.read(), await call.read()]
    call.cancel()
    refused = next(answer for answer in answers if answer.HasField("error"))
    read = next(answer for answer in answers if not answer.HasField("error"))

    assert refused.error.code == code.value[0]
    assert (refused.stream, refused.partition) == (position.stream, position.partition)
    assert read.stream == "two"


async def test_every_partition_gets_its_turn(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(payload_bytes=1_000, fetch_bytes_max=1_000)))[0]
    await node.create("one", 3)
    for partition in range(3):
        for _ in range(5):
            await put(node, batch_of(bytes(900)), partition=partition)
    call = node.open(methods.FETCH)

    assign = [at(0, partition=partition) for partition in range(3)]
    await call.write(pb.FetchRequest(assign=assign, credit=PLENTY))
    order = [(await call.read()).partition for _ in range(9)]
    call.cancel()

    assert sorted(order) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_an_unassigned_partition_is_silent(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one", 2)
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[at(0), at(0, partition=1)], credit=PLENTY))
    await put(grpc_node, batch_of(b"a"))
    assert (await call.read()).partition == 0

    await call.write(pb.FetchRequest(unassign=[pb.Partition(stream="one", partition=0)]))
    await put(grpc_node, batch_of(b"b"), partition=1)
    assert (await call.read()).partition == 1
    await put(grpc_node, batch_of(b"c"))

    assert await silence(call)


async def test_a_draining_server_sends_drain_and_the_call_ends_without_error(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[at(0)], credit=PLENTY))
    await until(lambda: bool(grpc_node.server.call_count))

    draining = asyncio.create_task(grpc_node.server.drain(3_000))
    notice = await call.read()
    await call.done_writing()

    assert notice.drain.deadline_ms > 0
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await draining


async def test_fetch_ends_when_the_client_closes_its_side(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.FETCH)
    await call.write(pb.FetchRequest(assign=[at(0)], credit=PLENTY))

    await call.done_writing()

    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
