"""What an export sends for a batch of the source."""

import pytest

from bearlake import kernel
from bearlake.exporting.batches import Sender, Stretch, outgoing, producer_of, sign
from bearlake.importing.batches import Piece
from bearlake.kernel import BatchHeader
from bearlake.records import codec as record_codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record


def piece(records: list[Record], base: int, codec: Compression = Compression.NONE, *, stamp_ms: int = 0) -> Piece:
    """A batch of a transactional producer at offset `base`."""
    producer = Producer(id=7, epoch=3, base_sequence=5, is_transactional=True)
    batch: bytes | bytearray = record_codec.encode(records, codec=codec, producer=producer)
    if stamp_ms:
        batch = record_codec.stamp(batch, stamp_ms)
    delta = int.from_bytes(batch[23:27], "big")
    return Piece(base, base + delta + 1, memoryview(bytes(batch)), 0, False)


def header_of(batch: bytearray) -> BatchHeader:
    """The header of the only batch."""
    ((_, base, header),) = kernel.batches(memoryview(batch), 0, len(batch))
    assert base == 0
    return header


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_without_gaps_keeps_its_records_section_byte_for_byte(codec: Compression) -> None:
    source = piece([Record(value=b"a" * 100, timestamp=5), Record(key=b"k", timestamp=9)], 40, codec)

    sent = outgoing(source)
    sign(sent.batch, Sender(id=11, epoch=0, base=100), 107)

    header = header_of(sent.batch)
    assert sent.stretches == [Stretch(40, 2)]
    assert bytes(sent.batch[61:]) == bytes(source.batch[61:])
    assert (header.producer_id, header.base_sequence, header.attributes) == (11, 7, codec)
    assert producer_of(memoryview(sent.batch)) == 11
    assert kernel.crc32c(sent.batch, 21) == int.from_bytes(sent.batch[17:21], "big")


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_with_gaps_is_encoded_again_without_them(codec: Compression) -> None:
    records = [
        Record(value=b"a", timestamp=5, offset_delta=0, headers=(("h", None),)),
        Record(value=None, key=b"k", timestamp=4, offset_delta=3),
        Record(value=b"", timestamp=7, offset_delta=4),
    ]

    sent = outgoing(piece(records, 10, codec))
    sign(sent.batch, Sender(id=1, epoch=2, base=0), 0)

    assert sent.stretches == [Stretch(10, 1), Stretch(13, 2)]
    assert sent.record_count == 3
    found = record_codec.decode(sent.batch, 1 << 20)
    assert [(item.offset_delta, item.timestamp, item.key, item.value) for item in found] == [
        (0, 5, None, b"a"),
        (1, 4, b"k", None),
        (2, 7, None, b""),
    ]
    assert found[0].headers == (("h", None),)
    assert header_of(sent.batch).attributes == codec


def test_log_append_time_becomes_the_create_time_of_each_record() -> None:
    sent = outgoing(piece([Record(timestamp=1), Record(timestamp=2)], 0, stamp_ms=99))

    assert [item.timestamp for item in record_codec.decode(sent.batch, 1 << 20)] == [99, 99]
    assert header_of(sent.batch).attributes == 0


def test_sequences_go_on_at_zero_after_the_largest_int32() -> None:
    sent = outgoing(piece([Record()], 0))
    sign(sent.batch, Sender(id=1, epoch=0, base=1), (1 << 31) + 1)

    assert header_of(sent.batch).base_sequence == 0
