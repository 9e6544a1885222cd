"""The last message of a partition that readers can get: neither a marker, nor part of an aborted or open transaction.

Clients read until they have the message with this id, so an id that is never delivered would make them wait forever. The search goes back
from the last stable offset, in growing steps, as far as needed: an aborted transaction may have any number of batches. What was searched is
remembered per partition, so a client that asks again and again costs little. Nothing is remembered of a stream with key compaction: a
cleaning may remove a message that was the last one, such as a tombstone, and leave none above it.

Source: Pulsar, `PersistentTopic.getLastDispatchablePosition`.
"""

from functools import partial
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import NotFound, OutOfRange, Unavailable
from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.protocols.pulsar import entries, message_ids
from bearlake.protocols.pulsar.opening import Opener
from bearlake.protocols.pulsar.proto.commands_pb2 import MessageIdData
from bearlake.records.batch import is_control
from bearlake.streams.catalog import StreamView
from bearlake.streams.configs import has_key_compaction
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.cleaned_batches import has_gaps

PARTITION_COUNT_MAX = 10_000
"""Partitions that are remembered, at about 200 bytes each; the oldest one is forgotten first."""
STEP_GROWTH = 8
"""Each step back covers this many times the offsets of the step before; the first step is one batch."""
STEP_BYTES = 1024 * 1024
"""Bytes (but at least one batch) that one read takes."""


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    is_message: bool
    content: memoryview


class _Last(NamedTuple):
    end: int
    """Everything below this offset was searched."""
    base_offset: int
    """The entry of the last message; -1: there is none."""
    last_offset: int
    batch_index: int
    view: StreamView | None = None
    """The stream when it was searched. Other configs make another view."""


_NOTHING = _Last(0, -1, -1, -1)


class LastMessages:
    """Finds last messages. Use it from the event loop's thread only."""

    def __init__(self, streams: Streams, opener: Opener) -> None:
        self._streams = streams
        self._opener = opener
        self._known: dict[PartitionKey, _Last] = {}

    async def find(self, partition: PartitionKey) -> MessageIdData:
        """The id of the last message; entry 2^64-1 if there is none. Raises `NotFound`, `Unavailable`, and the errors of reads."""
        bounds = (await self._streams.bounds([partition])).get(partition)
        if bounds is None:
            raise NotFound("the topic has been deleted")
        view = self._streams.catalog.peek_number(stream_number(partition))
        known = self._recall(partition, view)
        found = await self._search(partition, max(bounds.start, known.end), bounds.last_stable)
        if found is not None:
            known = await self._last(found)
        self._remember(partition, known._replace(end=max(known.end, bounds.last_stable), view=view))
        last = MessageIdData(ledger_id=stream_number(partition), entry_id=message_ids.NONE)
        if known.last_offset >= bounds.start:
            last.entry_id, last.batch_index = known.base_offset, known.batch_index
        return last

    async def _search(self, partition: PartitionKey, start: int, end: int) -> _Batch | None:
        """Return the last batch with messages in `[start, end)`."""
        width = 1
        while end > start:
            first = max(start, end - width)
            found = None
            offset, reached = first, end
            while offset < end:
                for batch in await self._read(partition, offset, 1 if width == 1 else STEP_BYTES):
                    reached = min(reached, batch.base_offset)
                    if batch.base_offset < end:
                        found = batch if batch.is_message else found
                    offset = max(offset, batch.last_offset + 1)
            if found is not None:
                return found
            end = min(first, reached)
            width *= STEP_GROWTH
        return None

    async def _read(self, partition: PartitionKey, offset: int, bytes_max: int) -> list[_Batch]:
        """Read batches from the one that holds `offset`, or from the start if a trim has passed `offset`; at least one batch."""
        while True:
            (found,) = await self._streams.fetch(
                [FetchRange(partition, offset, bytes_max)],
                bytes_min=1,
                bytes_max=bytes_max,
                wait_ms=self._streams.settings.writer.deadline_ms,
            )
            if isinstance(found.error, OutOfRange) and offset < found.error.start:
                offset = found.error.start
                continue
            if found.error is not None:
                raise found.error
            if not found.views:
                raise Unavailable(f"the message at offset {offset} is not readable yet")
            return [
                _Batch(
                    base_offset,
                    base_offset + header.last_offset_delta,
                    header.record_count > 0 and not is_control(header.attributes),
                    view[at : at + header.length],
                )
                for view in found.views
                for at, base_offset, header in kernel.batches(view, 0, len(view))
            ]

    async def _last(self, batch: _Batch) -> _Last:
        batch = await self._last_run(batch)
        read = partial(entries.from_records, batch.content, batch.base_offset, entries.ANY_BYTES)
        entry = await self._opener.opened(batch.content, read)
        index = batch.last_offset - batch.base_offset if entry.is_batch else -1
        return _Last(0, batch.base_offset, batch.last_offset, index)

    async def _last_run(self, batch: _Batch) -> _Batch:
        """Return the last run of records of a batch of which key compaction has removed some (`cleaned_batches.py`)."""
        base, at, end = batch.base_offset, batch.base_offset, batch.last_offset + 1
        if not has_gaps(batch.content, end - base):
            return batch
        content = batch.content
        while at < end:
            for part in await self._opener.split(content, base, end, at):
                at = part.end
                if part.batch is not None:
                    batch = _Batch(part.base, part.end - 1, True, part.batch)
        return batch

    def _recall(self, partition: PartitionKey, view: StreamView | None) -> _Last:
        known = self._known.get(partition)
        if known is None or known.view is not view or view is None or has_key_compaction(view.stream.configs):
            return _NOTHING
        return known

    def _remember(self, partition: PartitionKey, last: _Last) -> None:
        self._known.pop(partition, None)
        while len(self._known) >= PARTITION_COUNT_MAX:
            del self._known[next(iter(self._known))]
        self._known[partition] = last
