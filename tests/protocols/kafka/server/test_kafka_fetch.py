# ruff: noqa: SLF001 - the store fails at the step that a test says
"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords. KIP-74, KIP-79, KIP-227, KIP-320, KIP-516, KIP-734."""

import asyncio

import pytest

from bearlake.errors import Overloaded, Unavailable
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records.batch import Compression
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, fetch_request, values_of
from fixtures.waiting import until

T0 = 1_700_000_000_000


async def filled(kafka, *sizes, name="t", partitions=1):
    """A client, and a stream whose first partition has one batch per size; each value is that long."""
    client = await kafka.client()
    await kafka.create(name, partitions)
    for at, size in enumerate(sizes):
        assert (await client.produce(name, batch_of(bytes([65 + at]) * size))).error_code == 0
    return client


def offsets(answer):
    return [offset for offset, _ in values_of(answer.records)]


# -- how much ------------------------------------------------------------------------------------------------------


async def test_a_fetch_returns_whole_batches_up_to_its_limits(kafka):
    client = await filled(kafka, 1000, 1000, 1000)

    assert offsets(await client.fetch("t", 0)) == [0, 1, 2]
    assert offsets(await client.fetch("t", 0, partition_bytes_max=2500)) == [0, 1]
    assert offsets(await client.fetch("t", 0, bytes_max=2500)) == [0, 1]
    assert offsets(await client.fetch("t", 1)) == [1, 2]


@pytest.mark.parametrize("limits", [{"partition_bytes_max": 1}, {"bytes_max": 1}, {"partition_bytes_max": 0}])
async def test_the_first_batch_is_returned_even_above_the_limits_kip_74(kafka, limits):
    client = await filled(kafka, 100_000, 10)

    assert offsets(await client.fetch("t", 0, **limits)) == [0]


async def test_only_the_first_batch_of_the_whole_answer_may_exceed_kip_74(kafka):
    client = await filled(kafka, 5000, 5000, partitions=2)
    await client.produce("t", batch_of(b"x" * 5000), index=1)

    answer = await client.ask(fetch_request([("t", 0, 0), ("t", 1, 0)], bytes_max=100), 11)

    first, second = answer.responses[0].partitions
    assert offsets(first) == [0]
    assert offsets(second) == []
    assert second.high_watermark == 1


async def test_a_partition_that_is_too_small_for_its_batch_does_not_hide_the_next_one(kafka):
    client = await filled(kafka, 5000, partitions=2)
    await client.produce("t", batch_of(b"x"), index=1)

    answer = await client.ask(fetch_request([("t", 1, 0), ("t", 0, 0)], partition_bytes_max=200), 11)

    small, large = answer.responses[0].partitions
    assert offsets(small) == [0]
    assert offsets(large) == []


async def test_a_fetch_inside_a_batch_returns_that_batch(kafka):
    client = await kafka.client()
    await kafka.create("t")
    await client.produce("t", batch_of(*[b"%d" % at for at in range(10)]))
    await client.produce("t", batch_of(*[b"%d" % at for at in range(10, 20)]))

    assert offsets(await client.fetch("t", 7))[0] == 0
    assert offsets(await client.fetch("t", 10))[0] == 10
    assert offsets(await client.fetch("t", 19))[0] == 10


async def test_several_streams_are_returned_in_one_answer(kafka):
    client = await filled(kafka, 10, name="a")
    await kafka.create("b")
    await client.produce("b", batch_of(b"vb"))

    answer = await client.ask(fetch_request([("a", 0, 0), ("b", 0, 0), ("none", 0, 0)]), 12)

    assert [topic.topic for topic in answer.responses] == ["a", "b", "none"]
    assert [topic.partitions[0].error_code for topic in answer.responses] == [0, 0, 3]


@pytest.mark.parametrize("version", range(4, 19))
async def test_a_fetch_at_the_tail_is_answered_in_one_step_as_by_the_long_way(kafka, monkeypatch, version):
    client = await filled(kafka, 2000, 10, 3000, partitions=2)
    await kafka.create("other")
    topics = [("t", 0, 1), ("t", 1, 0), ("other", 0, 0)]
    if version >= 13:
        topics = [(kafka.streams.catalog.peek(name).id_bytes, index, offset) for name, index, offset in topics]
    await client.ask(fetch_request(topics), version)  # the server learns where the partitions start
    request = fetch_request(topics, bytes_max=2500)

    async def fail(*_, **__):
        raise AssertionError("the long way")

    with monkeypatch.context() as patched:
        patched.setattr(kafka.streams, "fetch", fail)
        short = await client.ask(request, version)
    monkeypatch.setattr(kafka.streams.at_tail, "read", lambda *_, **__: None)
    long = await client.ask(request, version)

    assert short == long
    assert offsets(short.responses[0].partitions[0]) == [1]


# -- waiting -------------------------------------------------------------------------------------------------------


async def test_a_waiting_fetch_ends_with_its_client(kafka):
    client = await filled(kafka, 10)
    (key,) = kafka.streams.catalog.peek("t").partitions()
    await client.fetch("t", 1)
    client.send(fetch_request([("t", 0, 1)], wait_ms=60_000, bytes_min=1), 11)
    tail = kafka.streams._tail.get(key)
    await until(lambda: tail.waiters)

    await client.close()

    await until(lambda: not tail.waiters)


async def test_a_long_poll_ends_when_a_record_arrives(kafka):
    client, producer = await filled(kafka), await kafka.client()
    client.send(fetch_request([("t", 0, 0)], wait_ms=20_000, bytes_min=1), 11)
    await producer.produce("t", batch_of(b"new"))

    answer = await client.receive()

    assert values_of(answer.responses[0].partitions[0].records) == [(0, b"new")]


async def test_a_long_poll_ends_when_another_server_accepts_a_record(any_cluster):
    cluster = await any_cluster(2)
    await cluster[0].create("t")
    client, producer = await cluster[0].client(), await cluster[1].client()
    await client.fetch("t", 0)
    client.send(fetch_request([("t", 0, 0)], wait_ms=20_000, bytes_min=1), 11)
    await producer.produce("t", batch_of(b"new"))

    answer = await client.receive()

    assert values_of(answer.responses[0].partitions[0].records) == [(0, b"new")]


async def test_a_long_poll_ends_empty_when_its_time_is_up(kafka):
    client = await filled(kafka)
    loop = asyncio.get_running_loop()
    started = loop.time()

    answer = await client.fetch("t", 0, wait_ms=100, bytes_min=1)

    assert loop.time() - started >= 0.09
    assert (answer.error_code, answer.high_watermark, offsets(answer)) == (0, 0, [])


async def test_a_long_poll_waits_for_min_bytes(kafka):
    client, producer = await filled(kafka), await kafka.client()
    client.send(fetch_request([("t", 0, 0)], wait_ms=20_000, bytes_min=2000), 11)
    for _ in range(3):
        await producer.produce("t", batch_of(b"x" * 1000))

    answer = await client.receive()

    assert len(offsets(answer.responses[0].partitions[0])) >= 2


async def test_a_long_poll_over_many_partitions_ends_by_any_of_them(kafka):
    client, producer = await kafka.client(), await kafka.client()
    await kafka.create("t", 50)
    client.send(fetch_request([("t", at, 0) for at in range(50)], wait_ms=20_000, bytes_min=1), 11)
    await producer.produce("t", batch_of(b"new"), index=37)

    answer = await client.receive()

    assert [p.partition_index for t in answer.responses for p in t.partitions if len(p.records)] == [37]


async def test_an_error_ends_a_long_poll_at_once(kafka):
    client = await filled(kafka)

    answer = await client.ask(fetch_request([("t", 0, 0), ("t", 9, 0)], wait_ms=20_000, bytes_min=1), 11)

    assert [partition.error_code for topic in answer.responses for partition in topic.partitions] == [0, 3]


async def test_a_long_poll_ends_when_its_stream_is_deleted(kafka):
    client = await filled(kafka, 10)
    await client.fetch("t", 0)
    fetched_count = metrics.KAFKA_REQUESTS.labels("FETCH").value
    client.send(fetch_request([("t", 0, 1)], wait_ms=600_000, bytes_min=1), 11)
    await until(lambda: metrics.KAFKA_REQUESTS.labels("FETCH").value > fetched_count)

    other = await kafka.client()
    await other.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
    answer = await client.receive()

    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_waiting_fetch_does_not_hold_other_connections_up(kafka):
    client, other = await filled(kafka, 10), await kafka.client()
    client.send(fetch_request([("t", 0, 1)], wait_ms=20_000, bytes_min=1), 11)

    assert offsets(await other.fetch("t", 0)) == [0]


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 3, 1000])
async def test_offsets_outside_the_partition_are_out_of_range(kafka, offset):
    client = await filled(kafka, 10, 10)

    assert (await client.fetch("t", offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_trimmed_offsets_are_out_of_range_everywhere(any_cluster):
    cluster = await any_cluster(2)
    client, other = await cluster[0].client(), await cluster[1].client()
    await cluster[0].create("t")
    for _ in range(3):
        await client.produce("t", batch_of(b"v"))
    await other.fetch("t", 0)
    r = m.DeleteRecordsRequest

    answer = await client.ask(r(topics=[r.Topic(name="t", partitions=[r.Partition(partition_index=0, offset=2)])]), 2)

    assert answer.topics[0].partitions[0].low_watermark == 2
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = await client.fetch("t", 2)
    assert (found.error_code, found.log_start_offset, offsets(found)) == (0, 2, [2])
    assert (await client.list_offset("t", -2)).offset == 2
    assert (await other.list_offset("t", -2)).offset == 2


async def test_delete_records_goes_to_the_end_and_not_beyond(kafka):
    client = await filled(kafka, 10, 10, 10)
    r = m.DeleteRecordsRequest

    async def delete(offset, index=0, name="t"):
        partition = r.Partition(partition_index=index, offset=offset)
        answer = await client.ask(r(topics=[r.Topic(name=name, partitions=[partition])], timeout_ms=1000), 2)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert await delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(0, index=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(0, name="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(1) == (0, 1)
    assert await delete(0) == (0, 1)  # it does not go back
    assert await delete(-1) == (0, 3)
    assert (await client.list_offset("t", -2)).offset == 3
    assert (await client.produce("t", batch_of(b"v"))).base_offset == 3


async def test_unknown_streams_have_their_codes_by_name_and_by_id(kafka):
    client = await kafka.client()
    topic_id = await kafka.create("t")

    assert (await client.fetch("none", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.fetch(bytes(15) + b"\1", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.fetch(topic_id, 0, index=5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.fetch(topic_id, 0)).error_code == 0


@pytest.mark.parametrize("kind", [Unavailable, Overloaded])
async def test_a_store_that_cannot_answer_now_leads_to_a_code_that_consumers_retry(kafka, monkeypatch, kind):
    """Java consumers throw IllegalStateException for codes that they do not expect in Fetch, such as REQUEST_TIMED_OUT."""
    client = await filled(kafka, 10)

    async def fail(*_, **__):
        raise kind("not now")

    with monkeypatch.context() as patched:
        patched.setattr(kafka.streams.at_tail, "read", lambda *_, **__: None)
        patched.setattr(kafka.streams._reader, "_plan_from_tail", lambda plan: False)
        patched.setattr(kafka.streams._reader._history, "plan", fail)
        read = await client.fetch("t", 0)
        patched.setattr(kafka.streams.catalog, "find", fail)
        looked_up = await client.fetch("t", 0)

    assert (read.error_code, looked_up.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR,) * 2


async def test_records_have_no_leader_epoch_and_every_epoch_ends_at_the_end_kip_320(kafka):
    client = await filled(kafka, 10)
    r = m.OffsetForLeaderEpochRequest

    async def end_of(epoch, current=-1, index=0):
        partition = r.Partition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
        found = (await client.ask(r(topics=[r.Topic(topic="t", partitions=[partition])]), 4)).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    fetched = await client.fetch("t", 0)
    assert bytes(fetched.records)[12:16] == b"\xff" * 4
    assert (await client.fetch("t", 0, epoch=0)).error_code == 0  # librdkafka's value after it got -1
    assert (await client.fetch("t", 0, epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert await end_of(0) == (0, 0, 1)
    assert await end_of(15) == (0, 15, 1)  # a committed offset may have the epoch of another cluster
    assert await end_of(-1) == (0, -1, -1)
    assert await end_of(0, current=2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await end_of(0, index=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "code"),
    [(0, -1, 0), (0, 0, 0), (7, 0, 0), (7, -1, 0), (0, 1, 70), (7, 1, 70)],
)
async def test_sessions_are_never_kept_kip_227(kafka, session_id, session_epoch, code):
    client = await filled(kafka, 10)
    request = fetch_request([("t", 0, 0)], session_id=session_id, session_epoch=session_epoch)

    answer = await client.ask(request, 11)

    assert (answer.error_code, answer.session_id) == (code, 0)
    assert len(answer.responses) == (1 if code == 0 else 0)


# -- ListOffsets ---------------------------------------------------------------------------------------------------


async def test_the_ends_of_a_partition(kafka):
    client = await filled(kafka, 10, 10)

    for timestamp, offset in ((-1, 2), (-2, 0), (-4, 0), (-5, -1), (-6, -1)):
        found = await client.list_offset("t", timestamp)
        epoch = 0 if offset >= 0 else -1
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, offset, -1, epoch), (
            timestamp
        )
    assert (await client.list_offset("t", -7)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await client.list_offset("t", -1, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.list_offset("none", -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_empty_partition_has_no_offset_at_a_time(kafka):
    client = await filled(kafka)

    for timestamp in (0, T0, -3):
        found = await client.list_offset("t", timestamp)
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
async def test_the_first_record_at_or_after_a_time_also_inside_compressed_batches(kafka, compression):
    client = await kafka.client()
    await kafka.create("t")
    for at in range(3):  # batch `at`: offsets 10 at … 10 at + 9, one second apart
        batch = batch_of(*[b"v"] * 10, timestamp=T0 + at * 10_000, step_ms=1000, compression=compression)
        await client.produce("t", batch)

    for timestamp, offset in ((0, 0), (T0, 0), (T0 + 1, 1), (T0 + 9_001, 10), (T0 + 15_000, 15), (T0 + 29_000, 29)):
        found = await client.list_offset("t", timestamp)
        assert found.offset == offset
        assert found.timestamp == T0 + offset * 1000
        assert found.leader_epoch == 0
    assert (await client.list_offset("t", T0 + 29_001)).offset == -1


async def test_the_record_with_the_largest_timestamp_kip_734(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for timestamp in (T0, T0 + 50, T0 + 20):
        await client.produce("t", batch_of(b"a", b"b", timestamp=timestamp))

    found = await client.list_offset("t", -3)

    assert (found.offset, found.timestamp) == (3, T0 + 51)


async def test_a_record_acknowledged_by_one_server_is_below_the_end_on_another(any_cluster):
    cluster = await any_cluster(2)
    client, other = await cluster[0].client(), await cluster[1].client()
    await cluster[0].create("t")
    for at in range(20):
        await client.produce("t", batch_of(b"v"))
        assert (await other.list_offset("t", -1)).offset == at + 1
