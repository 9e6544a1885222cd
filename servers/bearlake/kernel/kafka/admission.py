"""Parsed Produce entries that enter the log as they are."""

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
    """Add the batches from place `start` on to `appends`, up to the first one of another topic or that is not plain; returns its place.

    Plain is what needs no second look: good status, a partition that exists, no more bytes than allowed, no attributes but
    a compression, timestamps inside the bounds.
    """
    stream_id, first_key, partition_count, bytes_max, earliest, latest = rules
    if not 0 <= start < len(entries):
        raise ValueError(f"{start} is not a place among {len(entries)} entries")
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
        ):
            return at
        key = PartitionKey(first_key | index)
        appends.append(Append(key, stream_id, frame[low:high], hold, count, newest, producer_id, epoch, sequence, 0))
    return len(entries)
