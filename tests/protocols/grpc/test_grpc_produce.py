"""Produce and ProduceStream: acknowledgements, duplicates, errors, drain."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.append import AppendCall
from bearlake.streams.relief import ReliefLine
from bearlake.streams.service import StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from fixtures.failing_stores import HeldStore
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.waiting import until


def records(*values: bytes) -> pb.Payload:
    return pb.Payload(records=pb.Records(records=[pb.Record(key=b"k", value=value) for value in values]))


def batches(*values: bytes, **options: Any) -> pb.Payload:
    return pb.Payload(record_batches=batch_of(*values, **options))


def details(error: grpc.aio.AioRpcError) -> dict[type[Any], Any]:
    """The google.rpc details of a failed call, by their kind."""
    packed = Status.FromString(dict(error.trailing_metadata() or ())[DETAILS_KEY])
    assert packed.code == error.code().value[0]
    found = {}
    for item in packed.details:
        for kind in (ErrorInfo, RetryInfo, BadRequest):
            if item.Is(kind.DESCRIPTOR):
                found[kind] = kind()
                item.Unpack(found[kind])
    return found


async def read_all(call: Any, answers: list[Any] | None = None) -> list[Any]:
    answers = [] if answers is None else answers
    while (answer := await call.read()) is not grpc.aio.EOF:
        answers.append(answer)
    return answers


async def end_offset(node: GrpcNode, name: str, partition: int = 0) -> int:
    found = await node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=name))
    return int(found.partitions[partition].end_offset)


async def test_a_produce_that_finds_no_room_in_time_is_refused(
    grpc_cluster: MakeGrpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(write_wait_ms=1)))[0]
    await node.create("greetings")
    with monkeypatch.context() as patch:
        patch.setattr(ReliefLine, "is_closed", property(lambda _: True))
        patch.setattr(ReliefLine, "join", lambda *_: None)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.call(methods.PRODUCE, pb.ProduceRequest(stream="greetings", payload=records(b"a")))
    end = await end_offset(node, "greetings")

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "waiting to be written" in str(caught.value.details())
    assert RetryInfo in details(caught.value)
    assert end == 0


async def test_produce_returns_the_offsets(grpc_node: GrpcNode) -> None:
    await grpc_node.create("greetings")

    first = await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="greetings", payload=records(b"a", b"b")))
    second = await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="greetings", payload=batches(b"c")))

    assert (first.base_offset, first.record_count) == (0, 2)
    assert (second.base_offset, second.record_count) == (2, 1)


@pytest.mark.parametrize(
    ("request_", "code", "reason", "field"),
    [
        (pb.ProduceRequest(payload=records(b"v")), "INVALID_ARGUMENT", "INVALID", "stream"),
        (pb.ProduceRequest(stream="none", payload=records(b"v")), "NOT_FOUND", "NOT_FOUND", None),
        (pb.ProduceRequest(stream="one", partition=7, payload=records(b"v")), "NOT_FOUND", "NOT_FOUND", None),
        (pb.ProduceRequest(stream="one"), "INVALID_ARGUMENT", "INVALID", "payload"),
        (
            pb.ProduceRequest(stream="one", payload=pb.Payload(record_batches=b"nonsense")),
            "INVALID_ARGUMENT", "INVALID", "payload.record_batches",
        ),
        (  # of no transaction: the next one of this producer id would abort it, or take it along
            pb.ProduceRequest(stream="one", payload=batches(b"v", producer=(7, 0, 0), is_transactional=True)),
            "INVALID_ARGUMENT", "INVALID", "payload.record_batches",
        ),
        (
            pb.ProduceRequest(stream="one", payload=records(b"v"), sequence=pb.ProducerSequence(producer_id=-5)),
            "INVALID_ARGUMENT", "INVALID", "sequence",
        ),
        (pb.ProduceRequest(stream="one", payload=records(bytes(2_000_000))), "INVALID_ARGUMENT", "TOO_LARGE", None),
    ],
)  # fmt: skip
async def test_a_refused_batch_is_answered_with_typed_details(
    grpc_node: GrpcNode, request_: pb.ProduceRequest, code: str, reason: str, field: str | None
) -> None:
    await grpc_node.create("one")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(methods.PRODUCE, request_)

    found = details(caught.value)
    assert caught.value.code().name == code
    assert (found[ErrorInfo].domain, found[ErrorInfo].reason) == ("bearlake", reason)
    assert [item.field for item in found[BadRequest].field_violations] == [field] if field else BadRequest not in found
    assert RetryInfo not in found


async def test_a_message_above_the_limit_is_refused(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(message_bytes_max=100_000)))[0]
    await node.create("one")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=records(bytes(200_000))))

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_deadline_ends_the_call_and_the_batch_may_be_stored(grpc_cluster: MakeGrpc) -> None:
    slow = StreamsSettings(writer=WriterSettings(flush_when_idle=False, linger_ms=60_000))
    node = (await grpc_cluster(1, streams=slow))[0]
    await node.create("one")

    timeout_s = 0.2
    while not node.streams._writer.pending_bytes:  # noqa: SLF001 - a busy machine may not get the batch in time
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=records(b"v")), timeout=timeout_s)
        timeout_s *= 2
    await node.streams.drain()

    assert await end_offset(node, "one") == 1
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_of_batches_is_acknowledged_in_order(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one", 2)
    call = grpc_node.open(methods.PRODUCE_STREAM)

    await call.write(pb.ProduceStreamRequest(stream="one", partition=1, payload=records(b"a", b"b")))
    for _ in range(9):
        await call.write(pb.ProduceStreamRequest(payload=batches(b"c")))
    await call.write(pb.ProduceStreamRequest(stream="one", partition=0, payload=records(b"d")))
    await call.done_writing()
    answers = await read_all(call)

    assert answers[-1].acknowledged_count == 11
    assert [offset for answer in answers for offset in answer.base_offsets] == [0, *range(2, 11), 0]
    counts = [answer.acknowledged_count for answer in answers]
    assert counts == sorted(set(counts))
    assert await call.code() is grpc.StatusCode.OK


async def test_a_failed_batch_ends_the_stream_after_the_acknowledged_batches(grpc_cluster: MakeGrpc) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store))[0]
    await node.create("one")
    call = node.open(methods.PRODUCE_STREAM)

    for payload in (records(b"a"), records(b"b"), pb.Payload(record_batches=b"broken"), records(b"c")):
        await call.write(pb.ProduceStreamRequest(stream="one", payload=payload))
    store.go.set()  # not before all is written: the library of a client that writes while its call ends drops the server's status
    answers: list[Any] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(call, answers)

    assert answers[-1].acknowledged_count == 2
    assert details(caught.value)[ErrorInfo].metadata["batch_index"] == "2"
    assert await end_offset(node, "one") == 2


async def test_a_repeated_sequence_is_stored_once_also_on_another_server(grpc_cluster: MakeGrpc) -> None:
    pair = await grpc_cluster(2)
    await pair[0].create("one")
    producer = await pair[0].call(methods.INIT_PRODUCER, pb.InitProducerRequest())

    def request(base: int, *values: bytes) -> pb.ProduceRequest:
        sequence = pb.ProducerSequence(producer_id=producer.producer_id, base_sequence=base)
        return pb.ProduceRequest(stream="one", payload=records(*values), sequence=sequence)

    first = await pair[0].call(methods.PRODUCE, request(0, b"a", b"b"))
    await pair[0].call(methods.PRODUCE, request(2, b"c"))
    again = await pair[1].call(methods.PRODUCE, request(0, b"a", b"b"))
    call = pair[1].open(methods.PRODUCE_STREAM)
    for item in (request(0, b"a", b"b"), request(2, b"c"), request(3, b"d")):
        await call.write(pb.ProduceStreamRequest(stream=item.stream, payload=item.payload, sequence=item.sequence))
    await call.done_writing()
    answers = await read_all(call)

    assert again.base_offset == first.base_offset == 0
    assert [offset for answer in answers for offset in answer.base_offsets] == [0, 2, 3]
    assert await end_offset(pair[0], "one") == 4


async def test_a_gap_in_the_sequence_and_an_old_epoch_get_different_errors(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    producer_id = (await grpc_node.call(methods.INIT_PRODUCER, pb.InitProducerRequest())).producer_id

    async def reason(epoch: int, base: int) -> str:
        sequence = pb.ProducerSequence(producer_id=producer_id, producer_epoch=epoch, base_sequence=base)
        request = pb.ProduceRequest(stream="one", payload=records(b"v"), sequence=sequence)
        try:
            await grpc_node.call(methods.PRODUCE, request)
        except grpc.aio.AioRpcError as error:
            return str(details(error)[ErrorInfo].reason)
        return ""

    assert await reason(1, 0) == ""
    assert await reason(1, 5) == "OUT_OF_ORDER"
    assert await reason(0, 1) == "PRODUCER_FENCED"


async def test_more_batches_than_the_limits_are_accepted_one_after_another(grpc_cluster: MakeGrpc) -> None:
    limits = GrpcSettings(in_flight_batches_max=2, in_flight_bytes_max=1_000)
    node = (await grpc_cluster(1, settings=limits))[0]
    await node.create("one")

    answers = await send(node, [records(bytes(600)) for _ in range(50)])

    assert answers[-1].acknowledged_count == 50


@pytest.mark.parametrize(
    "limit", [{"in_flight_batches_max": 3}, {"in_flight_bytes_max": 1_500}], ids=["count", "bytes"]
)
async def test_no_more_of_a_call_is_in_flight_than_the_limit(
    grpc_cluster: MakeGrpc, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(**limit)))[0]
    await node.create("one")
    in_flight: list[AppendCall] = []
    submit = node.streams.submit
    monkeypatch.setattr(node.streams, "submit", in_flight.append)

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send(node, [records(bytes(600)) for _ in range(30)]))
        await until(lambda: len(in_flight) >= 3)
        for _ in range(50):  # the server has served others meanwhile
            await node.call(methods.LIST_STREAMS, pb.ListStreamsRequest())
        count = len(in_flight)
        monkeypatch.setattr(node.streams, "submit", submit)
        for call in in_flight:
            submit(call)

    assert sending.result()[-1].acknowledged_count == 30
    assert count == 3


async def send(node: GrpcNode, payloads: Sequence[pb.Payload]) -> list[Any]:
    call = node.open(methods.PRODUCE_STREAM)
    for payload in payloads:
        await call.write(pb.ProduceStreamRequest(stream="one", payload=payload))
    await call.done_writing()
    return await read_all(call)


async def test_a_draining_server_sends_drain_and_finishes_accepted_batches(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.PRODUCE_STREAM)
    await call.write(pb.ProduceStreamRequest(stream="one", payload=records(b"a")))
    assert (await call.read()).acknowledged_count == 1

    draining = asyncio.create_task(grpc_node.server.drain(3_000))
    told = await call.read()
    await call.write(pb.ProduceStreamRequest(payload=records(b"b")))
    await call.done_writing()
    rest = await read_all(call)
    await draining

    assert told.drain.deadline_ms > 0
    assert rest[-1].acknowledged_count == 2
    assert await call.code() is grpc.StatusCode.OK


async def test_a_client_that_ignores_drain_is_disconnected_at_the_deadline(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.PRODUCE_STREAM)
    await call.write(pb.ProduceStreamRequest(stream="one", payload=records(b"a")))
    assert (await call.read()).acknowledged_count == 1

    draining = asyncio.create_task(grpc_node.server.drain(200))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(call)
    await draining

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert details(caught.value)[ErrorInfo].reason == "DRAINING"
    assert RetryInfo in details(caught.value)


async def test_an_old_call_is_asked_to_start_again(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(call_age_ms=20)))[0]
    await node.create("one")
    call = node.open(methods.PRODUCE_STREAM)

    told = await call.read()
    await call.done_writing()

    assert told.HasField("drain")
    assert await read_all(call) == []


async def test_a_batch_is_stored_only_at_the_expected_offset(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")

    def request(value: bytes, expected: int, **options: Any) -> pb.ProduceRequest:
        return pb.ProduceRequest(stream="one", payload=records(value), expected_offset=expected, **options)

    first = await grpc_node.call(methods.PRODUCE, request(b"a", 0))
    second = await grpc_node.call(methods.PRODUCE, request(b"b", 1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(methods.PRODUCE, request(b"c", 1))
    with pytest.raises(grpc.aio.AioRpcError) as wrong:
        await grpc_node.call(methods.PRODUCE, request(b"c", -1))

    assert (first.base_offset, second.base_offset) == (0, 1)
    info = details(caught.value)[ErrorInfo]
    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert (info.reason, dict(info.metadata)) == ("UNEXPECTED_OFFSET", {"end": "2"})
    assert details(wrong.value)[BadRequest].field_violations[0].field == "expected_offset"
    assert await end_offset(grpc_node, "one") == 2


async def test_a_repeated_conditional_write_is_found_by_its_sequence(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    sequence = pb.ProducerSequence(producer_id=9, base_sequence=0)
    request = pb.ProduceRequest(stream="one", payload=records(b"a"), expected_offset=0, sequence=sequence)

    first = await grpc_node.call(methods.PRODUCE, request)
    again = await grpc_node.call(methods.PRODUCE, request)

    assert first == again
    assert await end_offset(grpc_node, "one") == 1


async def test_exactly_one_of_many_conditional_writers_wins_each_offset(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")

    async def attempt(value: bytes, expected: int) -> str:
        request = pb.ProduceRequest(stream="one", payload=records(value), expected_offset=expected)
        try:
            await grpc_node.call(methods.PRODUCE, request)
        except grpc.aio.AioRpcError as error:
            return str(details(error)[ErrorInfo].reason)
        return "STORED"

    for end in range(5):
        results = await asyncio.gather(*(attempt(b"%d" % at, end) for at in range(8)))
        assert sorted(results) == ["STORED"] + ["UNEXPECTED_OFFSET"] * 7
    assert await end_offset(grpc_node, "one") == 5


async def test_a_stream_of_conditional_batches_ends_at_the_first_batch_whose_offset_is_taken(
    grpc_cluster: MakeGrpc,
) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store))[0]
    await node.create("one")
    call = node.open(methods.PRODUCE_STREAM)

    for expected in (0, 1, 7, 2):
        await call.write(pb.ProduceStreamRequest(stream="one", payload=records(b"v"), expected_offset=expected))
    store.go.set()  # as above
    answers: list[Any] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(call, answers)

    info = details(caught.value)[ErrorInfo]
    assert [offset for answer in answers for offset in answer.base_offsets] == [0, 1]
    assert (info.reason, info.metadata["batch_index"], info.metadata["end"]) == ("UNEXPECTED_OFFSET", "2", "2")


@pytest.mark.parametrize("count", [1, 4, 5, 40])
async def test_few_and_many_records_are_stored_the_same_way(grpc_node: GrpcNode, count: int) -> None:
    await grpc_node.create("one")
    fields = [(None, b"v"), (b"", None), (b"k", b""), (b"\xff", b"w" * 300)]
    sent = []
    for at in range(count):
        key, value = fields[at % 4]
        headers = [pb.Header(key=b"\xff", value=b"x"), pb.Header(key=b"h")] * (at % 3)
        sent.append(pb.Record(key=key, value=value, headers=headers, timestamp_ms=at))
    sequence = pb.ProducerSequence(producer_id=3, producer_epoch=1)
    payload = pb.Payload(records=pb.Records(records=sent))

    answer = await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload, sequence=sequence))
    call = grpc_node.open(methods.FETCH)
    start = pb.Position(stream="one", earliest=True)
    credit = pb.Credit(bytes=1 << 30, messages=9)
    await call.write(pb.FetchRequest(assign=[start], credit=credit))
    found = (await call.read()).payload.records.records
    call.cancel()

    for at, record in enumerate(sent):
        record.offset = at
    assert answer.record_count == count
    assert list(found) == sent


async def test_times_outside_the_range_of_streams_are_refused(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")

    for time in (-2, 1 << 62):
        payload = pb.Payload(records=pb.Records(records=[pb.Record(value=b"v", timestamp_ms=time)]))
        with pytest.raises(grpc.aio.AioRpcError, match="timestamp_ms"):
            await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", payload=payload))
