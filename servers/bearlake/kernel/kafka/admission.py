"""Admit parsed Produce entries that need no further checks."""

from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.batch.records import check_records
from bearlake.kernel.kafka import PlainRules, ProduceEntry
from bearlake.kernel.log import Append, Hold, PartitionKey

_COMPRESSION_MASK = 0x07


def admit_plain(
    entries: list[ProduceEntry],
    start: int,
    frame: memoryview,
    hold: Hold | None,
    rules: PlainRules,
    appends: list[Append],
    /,
) -> int:
    """Add the plain entries from index `start` on to `appends`, up to the first that has another topic or is not plain.

    An entry is plain if its status is OK, its partition exists, its size is within the limit, its only attribute is the compression
    codec, and its timestamps are within the bounds. If the rules check records, it is also uncompressed and its records are good.
    Returns the index of the first entry that was not added.
    """
    stream_id, first_key, partition_count, bytes_max, earliest, latest, checks_records = rules
    if not 0 <= start < len(entries):
        raise ValueError(f"index {start} is not in a list of {len(entries)} entries")
    for at in range(start, len(entries)):
        topic, index, low, high, status, attributes, count, base, newest, producer_id, epoch, sequence = entries[at]
        if (
            topic != entries[start][0]
            or status
            or not 0 <= index < partition_count
            or high - low > bytes_max
            or attributes & ~_COMPRESSION_MASK
            or newest > latest
            or base < earliest
            or (checks_records and not _has_good_records(frame, low, high, attributes, count))
        ):
            return at
        key = PartitionKey(first_key | index)
        appends.append(Append(key, stream_id, frame[low:high], hold, count, newest, producer_id, epoch, sequence, 0))
    return len(entries)


def _has_good_records(frame: memoryview, low: int, high: int, attributes: int, count: int) -> bool:
    """Whether the records of a batch are good, as far as this can be checked without decompression."""
    if attributes & _COMPRESSION_MASK or not 0 <= low <= high - HEADER_BYTES <= len(frame) - HEADER_BYTES:
        return False
    return check_records(frame[low + HEADER_BYTES : high], count) < 0
