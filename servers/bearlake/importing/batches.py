"""From the bytes of a source's Fetch response to the pieces of a partition, each with the offsets that it has in the source.

    pieces = Pieces(offset, aborted)            # one response, read with isolation level read_committed
    for piece in pieces.of(records): …          # back to back: each begins where the previous one ended

A piece is a batch of the source, byte for byte (a control batch, too), or an empty batch in its place:

- for offsets that the source no longer has (key compaction, deleted records), as Kafka's own cleaner leaves them (decision 225);
- for a batch of an aborted transaction (decision 226).

Pure functions, without I/O. Source of the rules for aborted batches: KIP-98; Apache Kafka, CompletedFetch.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name says which error
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import BearlakeError, Corrupt, Invalid, Unsupported
from bearlake.importing.settings import GAP_OFFSETS_MAX
from bearlake.kernel import HEADER_BYTES, BatchHeader
from bearlake.records.batch import is_control, is_transactional
from bearlake.streams.history_pieces import empty_batch

EMPTY_BATCH_OFFSETS_MAX = 2**31 - 1
"""Offsets of one empty batch: its last offset delta is an int32."""

_SPAN = Struct(">qi")
_SPAN_END = 12
_MAGIC_AT = 16
_CRC = Struct(">I")
_CRC_AT = 17
_CRC_START = 21
_CONTROL_KEY = Struct(">hh")
_ABORT = 0


class Aborted(NamedTuple):
    """An aborted transaction of the source: its producer, and its first offset in the partition."""

    producer_id: int
    first_offset: int


class Piece(NamedTuple):
    """A batch to append at the offsets `[start, end)`; `max_timestamp` in ms, -1 if there is none."""

    start: int
    end: int
    batch: memoryview
    max_timestamp: int
    is_empty: bool
    """Whether the batch stands for offsets without records that readers see."""


def gap(start: int, end: int, offsets_max: int = GAP_OFFSETS_MAX) -> Iterator[Piece]:
    """Yield empty batches for the offsets `[start, end)`; nothing if there are none. Raises `Invalid` beyond `offsets_max`."""
    if end - start > offsets_max:
        raise Invalid(
            f"the source has no records for {end - start} offsets from {start} on: expected at most {offsets_max} "
            "(imports.source.gap_offsets_max)"
        )
    while start < end:
        stop = min(end, start + EMPTY_BATCH_OFFSETS_MAX)
        yield Piece(start, stop, empty_batch(0, stop - start), -1, True)
        start = stop


class Pieces:
    """The pieces of one response. `end` is the offset at which the next response begins."""

    def __init__(
        self,
        end: int,
        aborted: Sequence[Aborted] = (),
        *,
        may_overlap: bool = False,
        gap_offsets_max: int = GAP_OFFSETS_MAX,
    ) -> None:
        """`end`: the end of the target's partition. `aborted`: as the source has given them, in any order.

        `may_overlap`: the first batch may begin before `end`, and is yielded whole. `gap_offsets_max`: as in the settings.
        """
        self.end = end
        self._gap_offsets_max = gap_offsets_max
        self._may_overlap = may_overlap
        self._waiting = sorted(aborted, key=lambda item: item.first_offset, reverse=True)
        self._open: set[int] = set()
        """Producers of aborted transactions whose marker has not come yet."""

    def of(self, records: memoryview) -> Iterator[Piece]:
        """Yield the pieces of a response. A batch that the response cuts off is left to the next response.

        Raises:
            Unsupported: the source has a message set of magic 0 or 1, from before Kafka 0.11.
            Corrupt: a checksum or the structure of a batch is wrong, or batches overlap.
            Invalid: a gap has more offsets than allowed.
        """
        whole = _whole_end(records)
        for position, base, header in kernel.batches(records, 0, whole):
            batch = records[position : position + header.length]
            _check_crc(batch, base)
            end = base + header.last_offset_delta + 1
            is_aborted = self._is_aborted(header, base, end, batch)
            if end <= self.end:
                continue  # before the offset that was asked for
            if base < self.end and not self._may_overlap:
                raise Corrupt(f"the source's batch at offset {base} begins before the end of the target, {self.end}")
            yield from gap(self.end, base, self._gap_offsets_max)
            if is_aborted or header.record_count == 0:
                yield from gap(base, end)
            else:
                yield Piece(base, end, batch, header.max_timestamp, False)
            self.end = end

    def _is_aborted(self, header: BatchHeader, base: int, end: int, batch: memoryview) -> bool:
        """Return whether the batch has records of an aborted transaction; follows its marker."""
        if not is_transactional(header.attributes):
            return False
        while self._waiting and self._waiting[-1].first_offset < end:
            self._open.add(self._waiting.pop().producer_id)
        if header.producer_id not in self._open:
            return False
        if not is_control(header.attributes):
            return True
        if _is_abort(batch, header, base):
            self._open.discard(header.producer_id)
        return False


def _whole_end(records: memoryview) -> int:
    """Return the end of the whole batches. Raises `Unsupported`, `Corrupt`."""
    position = 0
    while len(records) - position > _MAGIC_AT:
        base, length = _SPAN.unpack_from(records, position)
        if records[position + _MAGIC_AT] < 2:
            raise Unsupported(f"offset {base} of the source is in the format of before Kafka 0.11: expected magic 2")
        if length < HEADER_BYTES - _SPAN_END:
            raise Corrupt(f"the source's batch at offset {base} has an impossible length, {length}")
        if position + _SPAN_END + length > len(records):
            break
        position += _SPAN_END + length
    return position


def _check_crc(batch: memoryview, base: int) -> None:
    if kernel.crc32c(batch, _CRC_START) != _CRC.unpack_from(batch, _CRC_AT)[0]:
        raise Corrupt(f"the checksum of the source's batch at offset {base} does not match")


def _is_abort(batch: memoryview, header: BatchHeader, base: int) -> bool:
    """Whether a control batch is the marker of an abort. Raises `Corrupt`."""
    try:
        records = kernel.decode_records(batch[HEADER_BYTES:], header.record_count, header.base_timestamp)
        _, kind = _CONTROL_KEY.unpack_from(records[0][2] or b"")
    except (BearlakeError, LookupError, ValueError, StructError) as error:
        raise Corrupt(f"the source's marker at offset {base} cannot be read") from error
    return bool(kind == _ABORT)
