from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid, TooLarge
from bearlake.records.batch import BatchHeader, Compression, TimestampType, timestamp_type
from bearlake.records.codec import Producer, Record, decode, encode, first_at, first_bad_record, stamp

GOLDEN = Path(__file__).parent / "golden"
LIMIT = 1 << 20
CODECS = list(Compression)


def inspected(batch: bytes | bytearray) -> BatchHeader:
    header = kernel.inspect(batch, 0, len(batch))
    assert isinstance(header, BatchHeader)
    return header


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.bin")), ids=lambda path: path.stem)
def test_batches_of_other_libraries_are_decoded(path: Path) -> None:
    batch = path.read_bytes()

    records = decode(batch, LIMIT)

    header = inspected(batch)
    assert header[5:] == (4711, 3, 42, 103)
    assert header.max_timestamp == 1_700_000_001_099
    assert records[0] == Record(key=b"key", value=b"value", timestamp=1_700_000_000_000, offset_delta=0)
    assert records[1] == Record(
        value=b"only a value",
        headers=(("name", b"content"), ("é", b"")),
        timestamp=1_700_000_000_500,
        offset_delta=1,
    )
    assert records[2] == Record(
        key=b"only a key", headers=(("null", None),), timestamp=1_699_999_999_900, offset_delta=2
    )
    assert [record.offset_delta for record in records] == list(range(103))
    assert records[-1].value == b"repeated " * 20
    assert first_bad_record(batch, LIMIT) == -1


def test_every_codec_has_a_golden_batch() -> None:
    stems = {path.stem.split("-")[-1] for path in GOLDEN.glob("*.bin")}

    assert stems == {codec.name.lower() for codec in Compression}


def test_an_uncompressed_golden_batch_is_encoded_byte_for_byte() -> None:
    batch = (GOLDEN / "aiokafka-none.bin").read_bytes()

    encoded = encode(decode(batch, LIMIT), producer=Producer(id=4711, epoch=3, base_sequence=42))

    assert encoded[16:] == batch[16:]  # the leader epoch differs, which readers ignore
    assert encoded[:12] == batch[:12]


RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=40),
        value=st.none() | st.binary(max_size=400),
        headers=st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
        timestamp=st.integers(-1, 2**63 - 2),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(records=RECORDS, codec=st.sampled_from(CODECS))
def test_records_survive_a_round_trip_and_other_libraries_read_them(records: list[Record], codec: Compression) -> None:
    producer = Producer(id=9, epoch=1, base_sequence=5, is_transactional=True)

    batch = encode(records, codec=codec, producer=producer)

    header = inspected(batch)
    assert header.attributes == codec | 0x10
    assert header[5:] == (9, 1, 5, len(records))
    assert [content(record) for record in decode(batch, LIMIT)] == [content(record) for record in records]
    theirs: Any = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(read.timestamp, read.key, read.value, tuple(read.headers)) for read in theirs] == [
        content(record) for record in records
    ]


def content(record: Record) -> tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    return record.timestamp, record.key, record.value, record.headers


def test_header_keys_that_are_not_utf8_survive() -> None:
    record = Record(headers=(("\udcff\udc80é", b"x"),))

    assert decode(encode([record]), LIMIT)[0].headers == record.headers


def test_gaps_between_offsets_survive() -> None:
    batch = encode([Record(offset_delta=2), Record(), Record(offset_delta=9)])

    assert [record.offset_delta for record in decode(batch, LIMIT)] == [2, 3, 9]
    assert kernel.batches(batch, 0, len(batch))[0][2].last_offset_delta == 9


@pytest.mark.parametrize(
    "records",
    [
        [],
        [Record(offset_delta=1), Record(offset_delta=1)],
        [Record(offset_delta=-1)],
        [Record(offset_delta=2**31)],
        [Record(timestamp=-2)],
        [Record(timestamp=2**63)],
        [Record(headers=(("\ud800", b"x"),))],
    ],
)
def test_invalid_batches_are_refused(records: list[Record]) -> None:
    with pytest.raises(Invalid):
        encode(records)


def test_a_producer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Invalid):
        encode([Record()], producer=Producer(id=1, epoch=2**15, base_sequence=0))


@pytest.mark.parametrize("codec", CODECS)
def test_more_records_than_allowed_are_too_large(codec: Compression) -> None:
    batch = encode([Record(value=bytes(100_000))], codec=codec)

    with pytest.raises(TooLarge):
        decode(batch, 99_999)
    assert len(decode(batch, 100_100)) == 1


def test_a_stamped_batch_has_log_append_time_and_a_valid_crc() -> None:
    batch = encode([Record(timestamp=5), Record(timestamp=9)])

    stamped = stamp(memoryview(batch), 777)

    header = kernel.batches(stamped, 0, len(stamped))[0][2]
    assert timestamp_type(header.attributes) is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (5, 777)
    assert kernel.crc32c(stamped, 21) == int.from_bytes(stamped[17:21], "big")
    assert [record.timestamp for record in decode(stamped, LIMIT)] == [777, 777]
    assert inspected(batch).max_timestamp == 9


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_the_first_record_at_a_time_is_found(codec: Compression) -> None:
    batch = encode([Record(timestamp=10), Record(timestamp=30), Record(timestamp=20)], codec=codec)

    found = [first_at(batch, timestamp, LIMIT) for timestamp in (0, 10, 11, 30, 31)]

    assert found == [(0, 10), (0, 10), (1, 30), (1, 30), None]


def test_a_time_in_a_stamped_batch_is_its_first_records() -> None:
    batch = stamp(encode([Record(timestamp=10), Record(timestamp=30)]), 20)

    assert first_at(batch, 15, LIMIT) == first_at(batch, 20, LIMIT) == (0, 20)
    assert first_at(batch, 21, LIMIT) is None


def test_a_record_that_contradicts_its_header_is_found() -> None:
    batch = bytearray(encode([Record(value=b"v")] * 3))
    batch[57:61] = (2).to_bytes(4, "big")

    assert first_bad_record(batch, LIMIT) == 2
    with pytest.raises(Corrupt):
        decode(batch, LIMIT)


@settings(deadline=None, max_examples=500)
@given(
    codec=st.sampled_from(CODECS),
    position=st.integers(0, 400),
    value=st.integers(0, 255),
    end=st.one_of(st.just(10_000), st.integers(0, 400)),
)
def test_damaged_batches_raise_nothing_but_corrupt_and_too_large(
    codec: Compression, position: int, value: int, end: int
) -> None:
    batch = bytearray(
        encode([Record(key=b"k" * 20, value=bytes(range(100))), Record(headers=(("h", b"x"),))], codec=codec)
    )
    batch[position % len(batch)] = value

    for call in (decode, first_bad_record, lambda damaged, limit: first_at(damaged, 0, limit)):
        try:
            call(bytes(batch[:end]), 10_000)
        except (Corrupt, TooLarge):
            continue
