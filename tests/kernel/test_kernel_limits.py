"""Limits of the kernel against hostile input: counts are bounded before anything is made of them, and records are checked."""

from struct import Struct
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bearlake.errors import Corrupt
from bearlake.kernel import BatchHeader, BatchStatus
from bearlake.kernel.batch import RECORDS_MAX
from bearlake.kernel.kafka import ELEMENTS_MAX
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.append import Append

STREAM = bytes(range(16))
CHECKED = (STREAM, 1 << 20, 4, 1 << 20, -1, 2_000, 1)
UNCHECKED = (*CHECKED[:-1], 0)
COUNTS = Struct(">i30xi")
"""Last offset delta and record count, from byte 23 of a batch on."""


def claiming(kernel: ModuleType, batch: bytes, record_count: int) -> bytes:
    """A batch whose header claims `record_count` records, with a matching checksum."""
    changed = bytearray(batch)
    COUNTS.pack_into(changed, 23, record_count - 1, record_count)
    return resealed(kernel, changed)


def resealed(kernel: ModuleType, batch: bytearray) -> bytes:
    batch[17:21] = kernel.crc32c(batch, 21).to_bytes(4, "big")
    return bytes(batch)


def entry_of(kernel: ModuleType, frame: bytes, start: int, end: int) -> tuple[Any, ...]:
    header = kernel.inspect(frame, start, end)
    assert isinstance(header, BatchHeader)
    return ("t", 0, start, end, 0, header.attributes, header.record_count, -1, -1, -1, -1, -1)


def admitted(kernel: ModuleType, rules: tuple[Any, ...], batch: bytes) -> int:
    frame = b"before" + batch + b"after"
    appends: list[Append] = []
    entry = entry_of(kernel, frame, 6, 6 + len(batch))
    kernel.admit_plain([entry], 0, memoryview(frame), None, rules, appends)
    return len(appends)


def test_a_compressed_batch_may_not_claim_more_records_than_the_limit(kernel: ModuleType) -> None:
    batch = encode([Record(value=b"a")], codec=Compression.LZ4)

    assert not isinstance(kernel.inspect(claiming(kernel, batch, RECORDS_MAX), 0, len(batch)), int)
    assert kernel.inspect(claiming(kernel, batch, RECORDS_MAX + 1), 0, len(batch)) == BatchStatus.BAD_COUNT
    assert kernel.inspect(claiming(kernel, batch, 2**31 - 1), 0, len(batch)) == BatchStatus.BAD_COUNT


def test_records_of_an_uncompressed_batch_are_checked_on_the_fast_path(kernel: ModuleType) -> None:
    good = encode([Record(value=b"one"), Record(value=b"two")])
    bad = bytearray(good)
    bad[61] = 0x7F

    assert admitted(kernel, CHECKED, good) == 1
    assert admitted(kernel, CHECKED, resealed(kernel, bad)) == 0
    assert admitted(kernel, UNCHECKED, resealed(kernel, bad)) == 1


def test_a_compressed_batch_leaves_the_fast_path_if_records_are_checked(kernel: ModuleType) -> None:
    batch = encode([Record(value=b"one")], codec=Compression.ZSTD)

    assert admitted(kernel, CHECKED, batch) == 0
    assert admitted(kernel, UNCHECKED, batch) == 1


def test_checking_records_reads_nothing_outside_the_frame(kernel: ModuleType) -> None:
    entries = [
        ("t", 0, low, high, 0, 0, 1, -1, -1, -1, -1, -1) for low, high in ((-70, 10), (0, 10), (0, 900), (90, 60))
    ]
    for entry in entries:
        appends: list[Append] = []

        at = kernel.admit_plain([entry], 0, memoryview(bytes(100)), None, CHECKED, appends)

        assert (at, appends) == (0, [])


def request(partitions: int, topics: int = 1, tags: int = 0) -> bytes:
    """The body of a Produce request, version 9: each partition is 6 bytes long and has null records."""
    body = bytearray(b"\0\xff\xff\0\0\0\1")
    body += varint(topics + 1)
    partition = b"\0\0\0\0\0" + varint(tags) + b"\0\0" * tags
    for _ in range(topics):
        body += b"\2t" + varint(partitions + 1) + partition * partitions + b"\0"
    return bytes(body) + b"\0"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


@pytest.mark.parametrize(
    ("partitions", "topics", "tags"), [(ELEMENTS_MAX, 1, 0), (0, ELEMENTS_MAX + 1, 0), (1, 1, ELEMENTS_MAX)]
)
def test_a_produce_request_has_a_bounded_number_of_elements(
    kernel: ModuleType, partitions: int, topics: int, tags: int
) -> None:
    with pytest.raises(Corrupt, match="more than 20000 topics, partitions and tagged fields"):
        kernel.parse_produce(request(partitions, topics, tags), 0, 9)


def test_a_produce_request_may_have_as_many_elements_as_the_limit(kernel: ModuleType) -> None:
    assert len(kernel.parse_produce(request(ELEMENTS_MAX - 1), 0, 9)[3]) == ELEMENTS_MAX - 1


def test_requests_taken_together_stop_at_the_limit_of_entries(kernel: ModuleType) -> None:
    body = request(ELEMENTS_MAX // 2)
    header = b"\0\0\0\x09\0\0\0\1\0\2me\0"
    frame = (len(header) + len(body)).to_bytes(4, "big") + header + body

    buffer, call = kernel.WriteBuffer(1 << 20), kernel.ProduceResults((8, -1, -1))
    admission = SimpleNamespace(rules=lambda topic: UNCHECKED, flags=lambda entry: 0)

    end, is_full, _ = kernel.take_produces(
        buffer, call, frame * 5, None, 0, 5 * len(frame), 9, header[8:], 1 << 20, 64, 0, admission, 0
    )

    assert (end, is_full, call.request_count, len(call)) == (2 * len(frame), False, 2, ELEMENTS_MAX)


def test_parts_of_a_batch_are_its_records(kernel: ModuleType) -> None:
    body = encode([Record(value=b"%d" % at, timestamp=at) for at in range(10)])[61:]
    whole = kernel.decode_records(body, 10, 0)

    parts, position = [], 0
    for start in range(0, 10, 4):
        part, position = kernel.decode_part(body, position, start, min(10, start + 4), 0)
        parts.append(part)

    assert [len(part) for part in parts] == [4, 4, 2]
    assert [record for part in parts for record in part] == whole
    assert position == len(body)


def test_a_part_names_its_malformed_record(kernel: ModuleType) -> None:
    body = encode([Record(value=b"a"), Record(value=b"b")])[61:]

    with pytest.raises(Corrupt, match="record 7 of a batch is malformed"):
        kernel.decode_part(body[:-1], len(body) // 2, 7, 8, 0)
    for position in (-1, len(body) + 1):
        with pytest.raises(ValueError, match="position"):
            kernel.decode_part(body, position, 0, 1, 0)
