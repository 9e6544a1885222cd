"""The entry properties that dispatchers need: ordering key, delivery time, and the large message that the entry is a chunk of."""

from collections.abc import Sequence
from functools import partial

from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.entries import Buffer
from bearlake.protocols.pulsar.opening import Opener
from bearlake.records.batch import Compression
from bearlake.streams import subscriptions
from bearlake.streams.subscriptions.cleaned_batches import Part
from bearlake.streams.subscriptions.model import EntryTraits

NO_TRAITS = EntryTraits()


class EntryReader(subscriptions.EntryReader):
    """Reads entries of any protocol, as Pulsar clients see them. An unreadable entry has no traits."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    @override
    def traits(self, batch: memoryview) -> EntryTraits | None:
        try:
            if entries.codec_of(batch) == Compression.NONE:  # only the first record is read
                return _traits(batch, None)
            return self._opener.at_once(batch, partial(_traits, batch))
        except BearlakeError:
            return NO_TRAITS

    @override
    async def read(self, batch: memoryview) -> EntryTraits:
        try:
            return await self._opener.opened(batch, partial(_traits, batch))
        except BearlakeError:
            return NO_TRAITS

    @override
    async def split(self, batch: memoryview, base: int, end: int, start: int) -> Sequence[Part]:
        return await self._opener.split(batch, base, end, start)


def _traits(batch: memoryview, records: Buffer | None, bytes_max: int = 0) -> EntryTraits:
    found = entries.routing_of(batch, records)
    return EntryTraits(
        ordering_key=found.ordering_key,
        deliver_at_ms=found.deliver_at_ms,
        chunk_of=found.chunk_uuid,
        is_last_chunk=found.chunk_id >= found.chunk_count - 1,
    )
