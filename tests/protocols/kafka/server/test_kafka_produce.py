"""Produce: refusals, acks, timestamps, idempotence across servers. KIP-98, KIP-467, KIP-516."""

import struct

import pytest

from bearlake.clock import ManualClock
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records import compression as records_compression
from bearlake.records.batch import Compression
from fixtures.kafka_server import batch_of, produce_request, values_of, with_crc
from fixtures.waiting import until

NOW_MS = 1_700_000_000_000


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def field(batch: bytes, at: int, layout: str, value: int) -> bytes:
    size = struct.calcsize(layout)
    return with_crc(batch[:at] + struct.pack(layout, value) + batch[at + size :])


GOOD = batch_of(b"a", b"b")
BAD = [
    ("bad crc", damaged(GOOD), ErrorCode.CORRUPT_MESSAGE),
    ("cut off", GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("magic 0", GOOD[:16] + b"\0" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ("magic 1", GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ("magic 3", GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE),
    ("two batches", GOOD + GOOD, ErrorCode.INVALID_RECORD),
    ("nothing", b"", ErrorCode.INVALID_RECORD),
    ("null", None, ErrorCode.INVALID_RECORD),
    ("control batch", field(GOOD, 21, ">h", 0x30), ErrorCode.INVALID_RECORD),
    ("compression 5", field(GOOD, 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("wrong count", field(GOOD, 57, ">i", 3), ErrorCode.INVALID_RECORD),
    ("no records", field(GOOD, 57, ">i", 0), ErrorCode.INVALID_RECORD),
    ("wrong last delta", field(GOOD, 23, ">i", 7), ErrorCode.INVALID_RECORD),
    ("base offset", b"\0" * 7 + b"\5" + GOOD[8:], ErrorCode.INVALID_RECORD),
    ("log append time", field(GOOD, 21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    ("no epoch", field(GOOD, 43, ">q", 9), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("what", "batch", "code"), BAD, ids=[what for what, _, _ in BAD])
async def test_a_bad_batch_is_refused_with_its_code_and_a_reason(kafka, what, batch, code):
    client = await kafka.client()
    await kafka.create("t")

    for version in (3, 8, 9, 12):
        answer = await client.produce("t", batch, version=version)
        assert answer.error_code == code
        assert answer.base_offset == -1
        if version >= 8:
            assert answer.error_message

    assert (await client.produce("t", GOOD)).base_offset == 0  # the log is empty


async def test_other_batches_of_a_request_with_a_bad_batch_succeed(kafka):
    client = await kafka.client()
    await kafka.create("t", 3)
    request = produce_request("t", GOOD)
    request.topic_data[0].partition_data = [
        m.ProduceRequest.Partition(index=index, records=batch)
        for index, batch in enumerate((GOOD, damaged(GOOD), GOOD, GOOD))
    ]

    partitions = (await client.ask(request, 9)).responses[0].partition_responses

    assert [partition.index for partition in partitions] == [0, 1, 2, 3]
    assert [partition.error_code for partition in partitions] == [0, 2, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_unknown_names_partitions_and_ids_have_their_codes(kafka):
    client = await kafka.client()
    topic_id = await kafka.create("t")

    assert (await client.produce("none", GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce("t", GOOD, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce("t", GOOD, index=-1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce(bytes(15) + b"\1", GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.produce(bytes(16), GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.produce(topic_id, GOOD)).error_code == 0


async def test_a_stream_that_was_deleted_is_unknown_by_name_and_by_id(any_cluster):
    cluster = await any_cluster(2)
    client = await cluster[1].client()
    topic_id = await cluster[0].create("t")
    assert (await client.produce("t", GOOD)).error_code == 0
    cluster[1].tasks[0].cancel()  # this server no longer follows the log
    await cluster[0].streams.catalog.delete((await cluster[0].streams.catalog.resolve("t")).stream)

    assert (await client.produce("t", GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce(topic_id, GOOD)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_stream_created_on_another_server_is_found_by_name_at_once(any_cluster):
    cluster = await any_cluster(2)
    client = await cluster[1].client()
    cluster[1].tasks[0].cancel()  # this server no longer follows the log
    await cluster[0].create("t")

    client.send(produce_request("t", batch_of(b"1")), 9)
    client.send(produce_request("t", batch_of(b"2")), 9)
    offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(2)]

    assert offsets == [0, 1]  # the second request waited for the look-up of the first


async def test_batches_above_the_streams_limit_are_refused_and_the_limit_can_be_raised(kafka):
    client = await kafka.client()
    await kafka.create("t", max_message_bytes="1000")
    large = batch_of(b"x" * 1000)

    assert (await client.produce("t", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await kafka.streams.catalog.alter(
        (await kafka.streams.catalog.resolve("t")).stream, {"max.message.bytes": "2000"}, ()
    )
    assert (await client.produce("t", large)).error_code == 0


async def test_old_produce_versions_are_refused_in_their_own_format(kafka):
    client = await kafka.client()
    await kafka.create("t")

    for version in (0, 1, 2):
        assert (await client.produce("t", GOOD, version=version)).error_code == 43


async def test_zstd_needs_version_7_kip_110(kafka):
    client = await kafka.client()
    await kafka.create("t")
    batch = batch_of(b"a", compression=Compression.ZSTD)

    assert (await client.produce("t", batch, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await client.produce("t", batch, version=7)).error_code == 0


@pytest.mark.parametrize("compression", list(Compression))
async def test_every_compression_is_stored_unchanged(kafka, compression):
    client = await kafka.client()
    await kafka.create("t")
    batch = batch_of(*[b"value %d" % at for at in range(100)], compression=compression)

    assert (await client.produce("t", batch)).base_offset == 0
    answer = await client.fetch("t", 0)

    assert bytes(answer.records)[21:] == batch[21:]
    assert values_of(answer.records)[99] == (99, b"value 99")


# -- acks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [-1, 1])
async def test_acks_1_and_all_are_answered_when_the_batch_is_readable(kafka, acks):
    client = await kafka.client()
    await kafka.create("t")

    assert (await client.produce("t", GOOD, acks=acks)).error_code == 0
    assert values_of((await client.fetch("t", 0)).records) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("acks", [2, -2, 127])
async def test_other_acks_are_refused(kafka, acks):
    client = await kafka.client()
    await kafka.create("t")

    assert (await client.produce("t", GOOD, acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_acks_0_is_not_answered_and_keeps_its_order(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for number in range(20):
        await client.produce("t", batch_of(b"%d" % number), acks=0)
    last = await client.produce("t", batch_of(b"last"))

    assert last.base_offset == 20
    assert [value for _, value in values_of((await client.fetch("t", 0)).records)] == [
        *(b"%d" % number for number in range(20)),
        b"last",
    ]


async def test_acks_0_of_an_unknown_stream_is_stored_although_the_client_disconnects_at_once(any_cluster):
    cluster = await any_cluster(2)
    client = await cluster[1].client()
    cluster[1].tasks[0].cancel()  # this server no longer follows the log: the name must be looked up
    await cluster[0].create("t")

    await client.produce("t", GOOD, acks=0)
    await client.close()

    reader = await cluster[0].client()
    assert values_of((await reader.fetch("t", 0, wait_ms=5_000, bytes_min=1)).records) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("topic", ["none", "t"])
async def test_an_error_with_acks_0_closes_the_connection_as_kafka_does(kafka, topic):
    client = await kafka.client()
    await kafka.create("t")

    await client.produce(topic, damaged(GOOD), acks=0)

    assert await client.is_closed()


async def test_a_transactional_batch_without_a_transactional_id_is_refused(kafka):
    client = await kafka.client()
    await kafka.create("t")

    answer = await client.produce("t", batch_of(b"v", producer=(7, 0, 0), is_transactional=True))

    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# -- timestamps ----------------------------------------------------------------------------------------------------


async def test_timestamps_too_far_from_the_servers_clock_are_refused(kafka_cluster):
    cluster = await kafka_cluster(1, clock=ManualClock(NOW_MS))
    client = await cluster.client()
    await cluster[0].create("t", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="5000")

    for timestamp, code in (
        (NOW_MS, 0),
        (NOW_MS + 1000, 0),
        (NOW_MS + 1001, ErrorCode.INVALID_TIMESTAMP),
        (NOW_MS - 5000, 0),
        (NOW_MS - 5001, ErrorCode.INVALID_TIMESTAMP),
        (-1, 0),
    ):
        assert (await client.produce("t", batch_of(b"v", timestamp=timestamp))).error_code == code, timestamp


async def test_log_append_time_is_stored_and_returned(kafka_cluster):
    cluster = await kafka_cluster(1, clock=ManualClock(NOW_MS))
    client = await cluster.client()
    await cluster[0].create("stamped", message_timestamp_type="LogAppendTime")
    await cluster[0].create("plain")

    answer = await client.produce("stamped", batch_of(b"a", b"b", timestamp=5))
    other = await client.produce("plain", batch_of(b"a", timestamp=NOW_MS))
    found = await client.list_offset("stamped", NOW_MS)

    assert answer.log_append_time_ms == NOW_MS
    assert other.log_append_time_ms == -1
    assert (found.offset, found.timestamp) == (0, NOW_MS)


# -- records -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_full_validation_names_the_bad_record_kip_467(kafka, compression):
    client = await kafka.client()
    await kafka.create("full")
    await kafka.create("header", record_validation="header")
    good = batch_of(b"a", b"b", b"c", compression=compression)
    bad = bad_record(compression)

    answer = await client.produce("full", bad, version=9)

    assert (await client.produce("full", good)).error_code == 0
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.record_errors[0].batch_index_error_message
    assert (await client.produce("header", bad)).error_code == 0  # header validation does not see the bad record


def bad_record(compression):
    """Three records; the second one's offset delta is 9."""
    batch = bytearray(batch_of(b"a", b"b", b"c"))
    body = batch[61:]
    second = body[0] // 2 + 1
    body[second + 3] = 18  # length, attributes, timestamp delta, offset delta
    batch[61:] = records_compression.compress(compression, body)
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[21:23] = struct.pack(">h", compression)
    return with_crc(bytes(batch))


async def test_a_stream_with_key_compaction_requires_keys(kafka):
    client = await kafka.client()
    await kafka.create("t", cleanup_policy="compact")

    answer = await client.produce("t", batch_of(b"a", key=None), version=9)

    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0]
    assert "Compacted topic cannot accept message without key" in answer.record_errors[0].batch_index_error_message
    assert (await client.produce("t", batch_of(None, key=b"k"))).error_code == 0


# -- idempotence ---------------------------------------------------------------------------------------------------


async def test_duplicates_get_their_first_offset_on_any_server_kip_98(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")
    batches = [batch_of(b"%d" % at, producer=(7, 0, at)) for at in range(8)]
    for at, batch in enumerate(batches):
        answer = await clients[at % 2].produce("t", batch)
        assert (answer.error_code, answer.base_offset) == (0, at)

    for at in range(3, 8):  # the store remembers the last five batches
        answer = await clients[(at + 1) % 2].produce("t", batches[at])
        assert (answer.error_code, answer.base_offset) == (0, at)

    await clients[0].fetch("t", 7, wait_ms=10_000, bytes_min=1)  # the log contains the batches of the other server
    assert [value for _, value in values_of((await clients[0].fetch("t", 0)).records)] == [
        b"%d" % at for at in range(8)
    ]


async def test_a_missing_batch_is_noticed_on_any_server(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")

    assert (await clients[0].produce("t", batch_of(b"a", producer=(7, 0, 0)))).error_code == 0
    assert (await clients[1].produce("t", batch_of(b"c", producer=(7, 0, 2)))).error_code == 45
    assert (await clients[1].produce("t", batch_of(b"b", producer=(7, 0, 1)))).error_code == 0


async def test_an_old_epoch_is_fenced_on_any_server(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    await cluster[0].create("t")

    assert (await clients[0].produce("t", batch_of(b"a", producer=(7, 1, 0)))).error_code == 0
    answer = await clients[1].produce("t", batch_of(b"b", producer=(7, 0, 1)))

    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_pipelined_batches_of_a_producer_keep_their_order(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for at in range(200):
        client.send(produce_request("t", batch_of(b"%d" % at, producer=(7, 0, at))), 9)

    answers = [(await client.receive()).responses[0].partition_responses[0] for _ in range(200)]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, at) for at in range(200)]


async def test_producer_ids_differ_between_servers(any_cluster):
    cluster = await any_cluster(2)
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [await (await node.client()).ask(request, 4) for node in cluster.nodes for _ in range(3)]

    assert len({answer.producer_id for answer in answers}) == 6
    assert {answer.producer_epoch for answer in answers} == {0}


async def test_describe_producers_returns_the_last_sequence_kip_664(kafka):
    client = await kafka.client()
    await kafka.create("t")
    await client.produce("t", batch_of(b"a", b"b", producer=(7, 3, 0)))
    r = m.DescribeProducersRequest

    answer = await client.ask(r(topics=[r.Topic(name="t", partition_indexes=[0, 9])]), 0)

    found, missing = answer.topics[0].partitions
    assert [
        (producer.producer_id, producer.producer_epoch, producer.last_sequence) for producer in found.active_producers
    ] == [(7, 3, 1)]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_receive_buffers_are_released_when_the_batches_are_stored(kafka):
    client = await kafka.client()
    await kafka.create("t")
    for at in range(30):
        client.send(produce_request("t", batch_of(b"x" * 100_000, b"%d" % at)), 9)
    for _ in range(30):
        assert (await client.receive()).responses[0].partition_responses[0].error_code == 0

    await client.close()

    await until(lambda: kafka.server.connections.slabs.used_bytes == 0)
