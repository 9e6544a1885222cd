"""Iterates over the records of fetched batches. Skips control batches and records before the requested offset."""

import asyncio
from collections.abc import Collection

from bearlake import kernel
from bearlake.errors import TooLarge
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.records.codec import Record
from bearlake.streams.fetched import Fetched
from bearlake.telemetry import metrics

AT_ONCE_BYTES = 1024 * 1024
"""Uncompressed bytes of a batch that is decompressed on the event loop; a thread decompresses a larger one."""


class Room:
    """How much one answer may still hold. A compressed batch holds any number of records in few bytes."""

    def __init__(self, record_count: int, byte_count: int) -> None:
        self._records = record_count
        self._bytes = byte_count

    @property
    def is_left(self) -> bool:
        """Whether another record fits; a first record always does."""
        return self._records > 0 and self._bytes > 0

    @property
    def byte_count(self) -> int:
        """How many bytes still fit, at least 1."""
        return max(1, self._bytes)

    def take(self, record: Record) -> bool:
        """Use room for a record; returns False if there is none left."""
        if not self.is_left:
            return False
        self._records -= 1
        self._bytes -= len(record.key or b"") + len(record.value or b"")
        return True


async def take(fetched: Fetched, bytes_max: int, room: Room) -> tuple[list[tuple[int, Record]], int]:
    """Return the next (offset, record)s for which there is room, and where to read next.

    Other callbacks of the event loop run in between. Raises as `records` does.
    """
    start = fetched.range.offset
    found: list[tuple[int, Record]] = []
    for view in fetched.views if room.is_left else ():
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            if record_batch.is_control(header.attributes):
                continue
            opened = await _open(view[position : position + header.length], bytes_max)
            for part in opened.parts():
                for delta, timestamp, key, value, headers in part:
                    record = Record(key=key, value=value, headers=headers, timestamp=timestamp)
                    if base_offset + delta < start:
                        continue
                    if not room.take(record):
                        return found, base_offset + delta
                    found.append((base_offset + delta, record))
                if len(part) == record_codec.PART_RECORD_COUNT:
                    await asyncio.sleep(0)
    return found, next_offset(fetched) if room.is_left or found else start


async def _open(batch: memoryview, bytes_max: int) -> record_codec.Opened:
    try:
        return record_codec.Opened(batch, min(bytes_max, AT_ONCE_BYTES))
    except TooLarge:
        return await asyncio.to_thread(record_codec.Opened, batch, bytes_max)


def count_served(values: Collection[tuple[bytes | None, bytes | None]]) -> None:
    """Count records, as (key, value)s, that a client gets."""
    metrics.REST_RECORDS.labels("out").inc(len(values))
    metrics.FETCH_BYTES.inc(sum(len(key or b"") + len(value or b"") for key, value in values))


def next_offset(fetched: Fetched) -> int:
    """Return where to read next: after the last batch, or the requested offset if there is no batch."""
    after = fetched.range.offset
    for view in fetched.views:
        for _, base_offset, header in kernel.batches(view, 0, len(view)):
            after = max(after, base_offset + header.last_offset_delta + 1)
    return after
