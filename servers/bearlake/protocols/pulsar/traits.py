"""What dispatchers must know of an entry: its ordering key, when it may be delivered, which large message it is a chunk of."""

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries
from bearlake.streams.subscriptions.model import EntryTraits

NO_TRAITS = EntryTraits()


class EntryReader:
    """A `streams.subscriptions.EntryReader` for entries of any protocol, as Pulsar clients see them."""

    def __init__(self, uncompressed_bytes_max: int) -> None:
        """`uncompressed_bytes_max`: of a larger entry nothing is known."""
        self._uncompressed_bytes_max = uncompressed_bytes_max

    def traits(self, batch: memoryview) -> EntryTraits:
        """Read what a dispatcher must know of an entry: keys, delivery time, and the number of messages."""
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
