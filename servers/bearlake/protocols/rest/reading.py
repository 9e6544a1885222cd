"""Iterates over the records of fetched batches. Skips control batches and records before the requested offset."""

from collections.abc import Iterator
from itertools import chain

from bearlake import kernel
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.records.codec import Record
from bearlake.streams.fetch import Fetched


def records(fetched: Fetched, bytes_max: int) -> Iterator[tuple[int, Record]]:
    """Yield (offset, record) in order; `fetched` must have no error.

    Raises:
        Corrupt: a batch is malformed.
        TooLarge: a batch has more than `bytes_max` bytes uncompressed.
    """
    start = fetched.range.offset
    for view in fetched.views:
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            if record_batch.is_control(header.attributes):
                continue
            batch = view[position : position + header.length]
            for delta, timestamp, key, value, headers in chain.from_iterable(record_codec.parts(batch, bytes_max)):
                if base_offset + delta >= start:
                    yield base_offset + delta, Record(key=key, value=value, headers=headers, timestamp=timestamp)


def next_offset(fetched: Fetched) -> int:
    """Return where to read next: after the last batch, or the requested offset if there is no batch."""
    after = fetched.range.offset
    for view in fetched.views:
        for _, base_offset, header in kernel.batches(view, 0, len(view)):
            after = max(after, base_offset + header.last_offset_delta + 1)
    return after
