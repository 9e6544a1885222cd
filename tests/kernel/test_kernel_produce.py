"""Produce requests and responses against kio, which is made from Kafka's own message schemas."""

import datetime
import importlib
import io
import uuid
from types import ModuleType
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from bearlake.errors import Corrupt, Unsupported
from bearlake.kernel import BatchStatus, fallback
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record, encode

VERSIONS = range(3, 14)
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
BATCH = encode([Record(value=b"v", timestamp=1000), Record(timestamp=1700)])
IDEMPOTENT = encode([Record(timestamp=5)], codec=Compression.GZIP, producer=Producer(id=7, epoch=1, base_sequence=3))


def schema(version: int, part: str) -> Any:
    return importlib.import_module(f"kio.schema.produce.v{version}.{part}")


def request(version: int, topics: list[tuple[str, list[bytes | None]]], transactional_id: str | None = None) -> bytes:
    module = schema(version, "request")
    data = []
    for name, batches in topics:
        partitions = tuple(module.PartitionProduceData(index=i, records=records) for i, records in enumerate(batches))
        naming: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"name": name}
        data.append(module.TopicProduceData(partition_data=partitions, **naming))
    entity = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=30_000)),
        topic_data=tuple(data),
    )
    out = io.BytesIO()
    entity_writer(module.ProduceRequest)(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_read_as_kio_wrote_it(kernel: ModuleType, version: int) -> None:
    body = request(version, [("orders", [BATCH, None]), ("größe", [IDEMPOTENT])], "tx")
    frame = b"header" + body

    transactional_id, acks, timeout_ms, entries = kernel.parse_produce(frame, 6, version)

    assert (transactional_id, acks, timeout_ms) == ("tx", -1, 30_000)
    names = [TOPIC_ID.bytes] * 2 if version >= 13 else ["orders", "größe"]
    assert [entry[:2] for entry in entries] == [(names[0], 0), (names[0], 1), (names[1], 0)]
    assert [frame[entry[2] : entry[3]] for entry in entries] == [BATCH, b"", IDEMPOTENT]
    assert [entry[4] for entry in entries] == [BatchStatus.OK, BatchStatus.EMPTY, BatchStatus.OK]
    assert entries[0][5:] == (0, 2, 1000, 1700, -1, -1, -1)
    assert entries[1][5:] == (0, 0, -1, -1, -1, -1, -1)
    assert entries[2][5:] == (1, 1, 5, 5, 7, 1, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_request_has_no_entries(kernel: ModuleType, version: int) -> None:
    assert kernel.parse_produce(request(version, []), 0, version) == (None, -1, 30_000, [])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_bad_batch_gets_a_status_and_its_neighbours_are_accepted(kernel: ModuleType, version: int) -> None:
    body = request(version, [("t", [BATCH[:-1] + b"x", BATCH])])

    entries = kernel.parse_produce(body, 0, version)[3]

    assert [entry[4] for entry in entries] == [BatchStatus.BAD_CRC, BatchStatus.OK]
    assert entries[0][5:] == (0, 0, -1, -1, -1, -1, -1)


@pytest.mark.parametrize(("version", "status"), [(6, BatchStatus.ZSTD_TOO_EARLY), (7, BatchStatus.OK)])
def test_zstd_is_refused_below_version_7(kernel: ModuleType, version: int, status: BatchStatus) -> None:
    """KIP-110."""
    body = request(version, [("t", [encode([Record()], codec=Compression.ZSTD)])])

    assert kernel.parse_produce(body, 0, version)[3][0][4] == status


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_corrupt(kernel: ModuleType, version: int) -> None:
    body = request(version, [("orders", [BATCH, None])])

    for end in range(len(body)):
        with pytest.raises(Corrupt, match="Produce request: "):
            kernel.parse_produce(body[:end], 0, version)


@pytest.mark.parametrize(
    ("version", "body", "complaint"),
    [
        (3, b"\xff\xfe" + request(3, [])[2:], "transactional id at 0 has the length -2"),
        (3, request(3, [])[:-4] + b"\xff\xff\xff\xff", "topic count at 8 has the length -1"),
        (3, request(3, [("t", [])])[:-4] + b"\x7f\xff\xff\xff", "partition index at 19 reaches beyond the end"),
        (3, request(3, [("t", [])]).replace(b"\0\1t", b"\xff\xff"), "topic name at 12 has the length -1"),
        (3, request(3, [("t", [])]).replace(b"\1t", b"\1\xff"), "topic name at 14 is not UTF-8"),
        (9, request(9, [])[:-2] + b"\0\0", "topic count at 7 has the length -1"),
        (9, request(9, [])[:-1] + b"\xff\xff\xff\xff\x7f", "tagged field count at 13 is not a varint of 32 bits"),
        (9, request(9, [])[:-1] + b"\1\5\x7f", "tagged field at 11 reaches beyond the end"),
    ],
)
def test_malformed_structure_is_named_with_its_place(
    kernel: ModuleType, version: int, body: bytes, complaint: str
) -> None:
    with pytest.raises(Corrupt, match=f"Produce request: {complaint}"):
        kernel.parse_produce(body, 0, version)


def test_unknown_tagged_fields_are_skipped(kernel: ModuleType) -> None:
    body = request(9, [])[:-1] + b"\2\5\3abc\6\0"

    assert kernel.parse_produce(body, 0, 9) == (None, -1, 30_000, [])


def test_bytes_after_the_body_are_ignored(kernel: ModuleType) -> None:
    assert kernel.parse_produce(request(9, []) + b"xyz", 0, 9) == (None, -1, 30_000, [])


@pytest.mark.parametrize("version", [-1, 0, 2, 14, 2**40])
def test_other_versions_are_unsupported(kernel: ModuleType, version: int) -> None:
    with pytest.raises(Unsupported, match="supported: 3-13"):
        kernel.parse_produce(b"", 0, version)
    with pytest.raises(Unsupported, match="supported: 3-13"):
        kernel.encode_produce_response(version, 0, [], 0)


def test_a_position_outside_the_frame_is_the_callers_fault(kernel: ModuleType) -> None:
    for position in (-1, 4, 2**70):
        with pytest.raises(ValueError, match="is not inside a frame of 3 bytes"):
            kernel.parse_produce(b"abc", position, 9)


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_a_response_with_the_intended_values(kernel: ModuleType, version: int) -> None:
    first: str | bytes = TOPIC_ID.bytes if version >= 13 else "größe"
    second: str | bytes = b"0123456789abcdef" if version >= 13 else "t"
    results = [(first, 0, 0, 2**40, -1, 5), (first, 1, 2, -1, 1_700_000_000_000, -1), (second, 0, 0, 3, -1, 0)]
    module = schema(version, "response")

    frame = kernel.encode_produce_response(version, 77, results, 250)

    stream = io.BytesIO(frame)
    assert int.from_bytes(stream.read(4), "big") == len(frame) - 4
    header = entity_reader(module.ProduceResponse.__header_schema__)(frame, 4)
    (head, size) = header
    assert head.correlation_id == 77
    entity, rest = entity_reader(module.ProduceResponse)(frame, 4 + size)
    assert 4 + size + rest == len(frame)
    assert entity.throttle_time == datetime.timedelta(milliseconds=250)
    assert [len(topic.partition_responses) for topic in entity.responses] == [2, 1]
    answers = [answer for topic in entity.responses for answer in topic.partition_responses]
    assert [(answer.index, int(answer.error_code), answer.base_offset) for answer in answers] == [
        (index, code, offset) for _, index, code, offset, _, _ in results
    ]
    assert answers[1].log_append_time == datetime.datetime.fromtimestamp(1_700_000_000, tz=datetime.UTC)
    assert answers[0].log_append_time is None
    if version >= 5:
        assert [answer.log_start_offset for answer in answers] == [5, -1, 0]
    if version >= 8:
        assert all(answer.record_errors == () and answer.error_message is None for answer in answers)
    names = [topic.topic_id.bytes if version >= 13 else topic.name for topic in entity.responses]
    assert names == [first, second]


def test_golden_response_frames(kernel: ModuleType) -> None:
    """By hand from ProduceResponse.json."""
    results = [("t", 1, 3, 0x0102030405060708, -1, 9)]

    assert kernel.encode_produce_response(3, 5, results, 6) == bytes.fromhex(
        "00000029 00000005 00000001 0001 74 00000001 00000001 0003 0102030405060708 ffffffffffffffff 00000006"
    )
    assert kernel.encode_produce_response(9, 5, results, 6) == bytes.fromhex(
        "00000030 00000005 00 02 02 74 02 00000001 0003 0102030405060708 ffffffffffffffff 0000000000000009 01 00 00"
        "00 00000006 00"
    )


def test_a_large_response_outgrows_the_first_buffer(kernel: ModuleType) -> None:
    results = [(f"topic-{index // 3}", index, 0, index, -1, 0) for index in range(1000)]

    assert kernel.encode_produce_response(12, 1, results, 0) == fallback.encode_produce_response(12, 1, results, 0)


@pytest.mark.parametrize(
    ("version", "results"),
    [
        (3, [("t", 2**31, 0, 0, 0, 0)]),
        (3, [("t", 0, 2**15, 0, 0, 0)]),
        (3, [("t", 0, 0, 2**63, 0, 0)]),
        (3, [(b"i" * 16, 0, 0, 0, 0, 0)]),
        (3, [("t" * 40_000, 0, 0, 0, 0, 0)]),
        (9, [("\ud800", 0, 0, 0, 0, 0)]),
        (13, [("t", 0, 0, 0, 0, 0)]),
        (13, [(b"i" * 15, 0, 0, 0, 0, 0)]),
        (9, [("t", 0, 0)]),
    ],
)
def test_results_that_do_not_fit_are_refused(kernel: ModuleType, version: int, results: list[Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        kernel.encode_produce_response(version, 0, results, 0)
