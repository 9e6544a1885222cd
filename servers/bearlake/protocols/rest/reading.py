"""Fetched batches as records with their offsets. Control batches are no records; what lies before the asked offset is left out."""

from collections.abc import Iterator

from bearlake import kernel
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.records.codec import Record
from bearlake.streams.fetch import Fetched


def records(fetched: Fetched, bytes_max: int) -> Iterator[tuple[int, Record]]:
    """(offset, record) of an answer without error, in order.

    Raises:
        Corrupt: a batch is malformed.
        TooLarge: a batch has more than `bytes_max` bytes uncompressed.
    """
    start = fetched.range.offset
    for view in fetched.views:
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            if record_batch.is_control(header.attributes):
                continue
            for record in record_codec.decode(view[position : position + header.length], bytes_max):
                offset = base_offset + (record.offset_delta or 0)
                if offset >= start:
                    yield offset, record


def next_offset(fetched: Fetched) -> int:
    """Where to read on: behind the last batch of the answer, the asked offset if there is none."""
    after = fetched.range.offset
    for view in fetched.views:
        for _, base_offset, header in kernel.batches(view, 0, len(view)):
            after = max(after, base_offset + header.last_offset_delta + 1)
    return after
