"""The entry properties that dispatchers need: ordering key, delivery time, and the large message that the entry is a chunk of."""

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries
from bearlake.streams.subscriptions.model import EntryTraits

NO_TRAITS = EntryTraits()


class EntryReader:
    """Implements `streams.subscriptions.EntryReader` for entries of any protocol, as Pulsar clients see them."""

    def __init__(self, uncompressed_bytes_max: int) -> None:
        """An entry of more than `uncompressed_bytes_max` bytes uncompressed has no traits."""
        self._uncompressed_bytes_max = uncompressed_bytes_max

    def traits(self, batch: memoryview) -> EntryTraits:
        """Read the ordering key, delivery time and chunk of an entry; no traits for an unreadable entry."""
        try:
            found = entries.routing(batch, self._uncompressed_bytes_max)
        except BearlakeError:
            return NO_TRAITS
        return EntryTraits(
            ordering_key=found.ordering_key,
            deliver_at_ms=found.deliver_at_ms,
            chunk_of=found.chunk_uuid,
            is_last_chunk=found.chunk_id >= found.chunk_count - 1,
        )
