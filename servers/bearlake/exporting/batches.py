"""From a batch of the source to the batch that is sent to the target: same records, offsets without gaps, another producer.

A batch whose offsets have no gaps keeps its bytes but for the producer's fields; the others are encoded again, with the same codec.
Kafka refuses batches of clients with gaps, with log append time, and with the bits that only brokers set.

Layout: `kernel/batch`. Source of the rules: Apache Kafka, LogValidator.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from bearlake import kernel
from bearlake.importing.batches import Piece
from bearlake.records import codec as record_codec
from bearlake.records.batch import ATTRIBUTE_LOG_APPEND_TIME, COMPRESSION_MASK, Compression
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX

_BASE = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_AT = 12
_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_ATTRIBUTES = Struct(">h")
_DELTA = Struct(">i")
_DELTA_AT = 23
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_COUNT = Struct(">i")
_COUNT_AT = 57
_SEQUENCES = 1 << 31


class Stretch(NamedTuple):
    """Records at consecutive offsets of the source."""

    start: int
    record_count: int


class Outgoing(NamedTuple):
    """A batch to send: its bytes, and which offsets of the source its records have."""

    batch: bytearray
    stretches: Sequence[Stretch]

    @property
    def record_count(self) -> int:
        """Number of its records."""
        return sum(stretch.record_count for stretch in self.stretches)


class Sender(NamedTuple):
    """The producer of a partition: its id, its epoch, and the target's offset that has sequence 0."""

    id: int
    epoch: int
    base: int


def outgoing(piece: Piece, start: int = 0) -> Outgoing:
    """Return what is sent for a batch with records: those from offset `start` on, of which there may be none.

    Raises `Corrupt`, `TooLarge` if the batch must be decoded and cannot be.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(piece.batch, _ATTRIBUTES_AT)
    (delta,) = _DELTA.unpack_from(piece.batch, _DELTA_AT)
    (count,) = _COUNT.unpack_from(piece.batch, _COUNT_AT)
    base = piece.end - 1 - delta
    if base >= start and count == delta + 1 and not attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return Outgoing(bytearray(piece.batch), [Stretch(base, count)])
    fields = [item for item in record_codec.fields(piece.batch, UNCOMPRESSED_BYTES_MAX) if base + item[0] >= start]
    if not fields:
        return Outgoing(bytearray(), [])
    records = [
        record_codec.Record(key=key, value=value, headers=headers, timestamp=timestamp)
        for _, timestamp, key, value, headers in fields
    ]
    encoded = record_codec.encode(records, codec=Compression(attributes & COMPRESSION_MASK))
    return Outgoing(bytearray(encoded), _stretches(base, [item[0] for item in fields]))


def _stretches(base: int, deltas: Sequence[int]) -> list[Stretch]:
    found: list[Stretch] = []
    for delta in deltas:
        offset = base + delta
        if found and found[-1].start + found[-1].record_count == offset:
            found[-1] = Stretch(found[-1].start, found[-1].record_count + 1)
        else:
            found.append(Stretch(offset, 1))
    return found


def sign(batch: bytearray, sender: Sender, offset: int) -> None:
    """Make the batch the sender's, for the target's offset `offset`: the sequence is the distance to `sender.base`."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _BASE.pack_into(batch, 0, 0)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, -1)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes & COMPRESSION_MASK)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, sender.id, sender.epoch, (offset - sender.base) % _SEQUENCES)
    _CRC.pack_into(batch, _CRC_AT, kernel.crc32c(batch, _ATTRIBUTES_AT))


def producer_of(batch: memoryview) -> int:
    """Return the producer id of a batch; -1 if it has none."""
    producer, _, _ = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
    return int(producer)
