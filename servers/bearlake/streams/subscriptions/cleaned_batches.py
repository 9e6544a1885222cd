"""Batches of which key compaction has removed records: for consumers of subscriptions, their runs of records are entries of their own.

An entry is acknowledged as a whole or by the number of a message in it, so each of its offsets must have a message. Pulsar's clients would
show an application the place of a removed message as an empty message (C++), or wait for its acknowledgement for ever (Java, Shared).
An entry's base offset stays the offset of its first record, so the id of a message still names its offset (decision 207).
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from bearlake.kernel import RecordFields
from bearlake.records import codec
from bearlake.records.codec import Record

RUN_COUNT_MAX = 1_000
"""Runs that one call makes of a batch: a batch may have a million records. The caller reads on behind them."""

_BASE_OFFSET = Struct(">q")
_RECORD_COUNT = Struct(">i")
_RECORD_COUNT_AT = 57


class Part(NamedTuple):
    """Offsets `[base, end)` of a batch: a run of records as a batch of its own, or None: these offsets have no records."""

    base: int
    end: int
    batch: memoryview | None


def has_gaps(batch: memoryview, offset_count: int) -> bool:
    """Return whether a batch that covers so many offsets has fewer records."""
    (record_count,) = _RECORD_COUNT.unpack_from(batch, _RECORD_COUNT_AT)
    return bool(0 <= record_count < offset_count)


def split(batch: memoryview, base: int, end: int, start: int, bytes_max: int) -> list[Part]:
    """Return the parts of a batch with the offsets `[base, end)` that end above `start`: its runs of records, and what lies between them.

    At most `RUN_COUNT_MAX` runs, from the first one on; with fewer, the last part ends at `end`.

    Raises:
        Corrupt: the batch or a record is malformed.
        TooLarge: the records have more than `bytes_max` bytes uncompressed.
    """
    found: list[Part] = []
    at, run_count = base, 0
    for run in _runs(codec.fields(batch, bytes_max)):
        first, next_ = base + run[0][0], base + run[-1][0] + 1
        before, at = at, next_
        if next_ <= start:
            continue
        if run_count == RUN_COUNT_MAX:
            return found
        if max(before, start) < first:
            found.append(Part(before, first, None))
        found.append(Part(first, next_, memoryview(_batch(run, first))))
        run_count += 1
    if at < end:
        found.append(Part(at, end, None))
    return found


def _runs(records: Sequence[RecordFields]) -> Iterator[Sequence[RecordFields]]:
    first = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or records[at][0] != records[at - 1][0] + 1:
            yield records[first:at]
            first = at


def _batch(run: Sequence[RecordFields], base: int) -> bytearray:
    records = [
        Record(key=key, value=value, headers=headers, timestamp=timestamp) for _, timestamp, key, value, headers in run
    ]
    batch = bytearray(codec.encode(records))
    _BASE_OFFSET.pack_into(batch, 0, base)
    return batch
