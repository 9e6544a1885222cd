"""What dispatchers must know of an entry: its ordering key, when it may be delivered, which large message it is a chunk of."""

from struct import Struct

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries, framing
from bearlake.streams.subscriptions.model import EntryTraits

_RECORD_COUNT = Struct(">i")
_RECORD_COUNT_AT = 57
NO_TRAITS = EntryTraits()


class EntryReader:
    """A `streams.subscriptions.EntryReader` for entries of any protocol, as Pulsar clients see them."""

    def traits(self, batch: memoryview) -> EntryTraits:
        """See `streams.subscriptions.EntryReader`."""
        try:
            (record_count,) = _RECORD_COUNT.unpack_from(batch, _RECORD_COUNT_AT)
            if record_count == 1:
                return _of_message(batch)
            return EntryTraits(ordering_key=entries.ordering_key(batch), deliver_at_ms=entries.deliver_at_ms(batch))
        except BearlakeError:
            return NO_TRAITS


def _of_message(batch: memoryview) -> EntryTraits:
    """Traits of an entry that is one message, or one chunk of one: they are in its metadata."""
    entry = entries.from_batch(batch, 0)
    if not entry.message_count:
        return NO_TRAITS
    metadata = framing.read_message(memoryview(entry.headers_and_payload)).metadata
    chunk_count = metadata.num_chunks_from_msg
    return EntryTraits(
        ordering_key=entries.ordering_key(batch),
        deliver_at_ms=max(0, metadata.deliver_at_time),
        chunk_of=metadata.uuid.encode() if chunk_count > 1 else b"",
        is_last_chunk=metadata.chunk_id >= chunk_count - 1,
    )
