"""Check that a batch returned to a reader is the batch that was sent (I6), whatever its stored form was in between."""

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.records import codec as record_codec
from bearlake.records.batch import COMPRESSION_MASK

OFFSET_BYTES = 8
EPOCH_BYTES = (12, 16)
"""Position of the leader epoch. A server writes it and the base offset; the batch's CRC covers neither."""
BATCH_BYTES_MAX = 1 << 20


def is_same_batch(returned: bytes | memoryview, stored: bytes) -> bool:
    """Return whether both have the same bytes except base offset and leader epoch, or, after compaction, equal contents.

    Equal contents are the same records, producer and timestamp type.
    """
    if _unplaced(returned) == _unplaced(stored):
        return True
    ((_, _, now),) = kernel.batches(returned, 0, len(returned))
    ((_, _, before),) = kernel.batches(stored, 0, len(stored))
    fields = ("record_count", "last_offset_delta", "max_timestamp", "producer_id", "producer_epoch", "base_sequence")
    if any(getattr(now, name) != getattr(before, name) for name in fields):
        return False
    if now.attributes & ~COMPRESSION_MASK != before.attributes & ~COMPRESSION_MASK:
        return False
    crc = int.from_bytes(bytes(returned[17:21]), "big")
    if kernel.crc32c(returned, 21, len(returned)) != crc:
        return False
    try:
        return record_codec.decode(bytes(returned), BATCH_BYTES_MAX) == record_codec.decode(stored, BATCH_BYTES_MAX)
    except BearlakeError:
        return False


def _unplaced(batch: bytes | memoryview) -> bytes:
    """Return a batch without base offset and leader epoch, which depend on its position in the log."""
    return bytes(batch[OFFSET_BYTES : EPOCH_BYTES[0]]) + bytes(batch[EPOCH_BYTES[1] :])
