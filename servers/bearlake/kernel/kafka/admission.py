"""Admit parsed Produce entries that need no further checks."""

from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.batch.records import check_records
from bearlake.kernel.kafka import PlainRules, ProduceEntry
from bearlake.kernel.log import Append, Hold, PartitionKey

COMPRESSION_MASK = 0x07
TRANSACTIONAL = 0x10


def admit_plain(
    entries: list[ProduceEntry],
    start: int,
    frame: memoryview,
    hold: Hold | None,
    rules: PlainRules,
    appends: list[Append],
    /,
) -> int:
    """Add the plain entries from index `start` on to `appends`, up to the first that has another topic or is not plain (`is_plain`).

    Returns the index of the first entry that was not added.
    """
    if not 0 <= start < len(entries):
        raise ValueError(f"index {start} is not in a list of {len(entries)} entries")
    for at in range(start, len(entries)):
        if entries[at][0] != entries[start][0] or not is_plain(rules, entries[at], frame):
            return at
        appends.append(append_of(rules, entries[at], frame, hold, 0))
    return len(entries)


def is_plain(rules: PlainRules, entry: ProduceEntry, frame: memoryview) -> bool:
    """Whether a batch needs no further checks.

    Its status is OK, its partition exists, its size is within the limit, its only attribute is the compression codec, and its timestamps
    are within the bounds. If the rules check records, it is also uncompressed and its records are good.
    """
    _, _, partition_count, bytes_max, earliest, latest, checks_records = rules
    _, index, low, high, status, attributes, count, base, newest, *_ = entry
    return not (
        status
        or not 0 <= low <= high <= len(frame)
        or not 0 <= index < partition_count
        or high - low > bytes_max
        or attributes & ~COMPRESSION_MASK
        or newest > latest
        or base < earliest
        or (checks_records and not _has_good_records(frame, low, high, attributes, count))
    )


def append_of(rules: PlainRules, entry: ProduceEntry, frame: memoryview, hold: Hold | None, flags: int) -> Append:
    """Return a batch as it is stored, unchanged."""
    stream_id, first_key, *_ = rules
    _, index, low, high, _, _, count, _, newest, producer_id, epoch, sequence = entry
    key = PartitionKey(first_key | index)
    return Append(key, stream_id, frame[low:high], hold, count, newest, producer_id, epoch, sequence, flags)


def _has_good_records(frame: memoryview, low: int, high: int, attributes: int, count: int) -> bool:
    """Whether the records of a batch are good, as far as this can be checked without decompression."""
    if attributes & COMPRESSION_MASK or not 0 <= low <= high - HEADER_BYTES <= len(frame) - HEADER_BYTES:
        return False
    return check_records(frame[low + HEADER_BYTES : high], count) < 0
