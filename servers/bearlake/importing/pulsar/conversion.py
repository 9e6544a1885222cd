"""From an entry of the source to the piece of a partition: the record batch that `protocols/pulsar` stores for it, and its place.

An entry stays one batch, so boundaries, compression and batch indexes stay as they were. What no server can read is kept as it is, as one
record, which Pulsar clients get back byte for byte: encrypted entries, chunks of compressed messages, and payloads that are not what their
metadata says (Pulsar's brokers store any bytes). Pure functions.
"""

from collections.abc import Mapping
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid, TooLarge, Unsupported
from bearlake.importing.batches import Piece
from bearlake.importing.pulsar.connection import Entry
from bearlake.importing.pulsar.positions import marked
from bearlake.protocols.pulsar import entries, framing
from bearlake.protocols.pulsar.entries import StoredEntry
from bearlake.protocols.pulsar.framing import Message

_VERSION_BYTES = 8
_ABSENT = 0x40


class Limits(NamedTuple):
    """`entry_bytes_max`: an entry in a frame to a client here. `uncompressed_bytes_max`: one that becomes records."""

    entry_bytes_max: int
    uncompressed_bytes_max: int


def message_of(entry: Entry) -> Message:
    """Parse an entry's message. Raises `Corrupt`: also if its checksum does not match."""
    try:
        return framing.read_message(entry.message)
    except Corrupt as error:
        raise Corrupt(f"entry {entry.place} of the source: {error}") from error


def work_of(entry: Entry, message: Message, limits: Limits) -> int:
    """Return how many bytes `piece_of` converts: those of the entry, or more if they are compressed."""
    return max(len(entry.message), min(message.metadata.uncompressed_size, limits.uncompressed_bytes_max))


def piece_of(entry: Entry, message: Message, start: int, versions: Mapping[bytes, bytes], limits: Limits) -> Piece:
    """Return the piece of an entry that gets the offsets from `start` on. `versions`: versions of schemas here, by those of the source.

    Raises:
        Invalid: the entry cannot be stored here, whatever is done with it.
    """
    metadata, payload = message
    if len(entry.message) > limits.entry_bytes_max:
        raise Invalid(
            f"entry {entry.place} of the source has {len(entry.message)} bytes: clients here take at most "
            f"{limits.entry_bytes_max} (pulsar.message_bytes_max)"
        )
    if metadata.schema_version:
        metadata.schema_version = versions.get(metadata.schema_version) or _absent(metadata.schema_version)
    try:
        stored = entries.to_batch(metadata, payload, limits.uncompressed_bytes_max)
    except (Corrupt, Invalid, TooLarge, Unsupported):
        stored = _opaque(entry, message)
    batch = marked(stored.batch, entry.place)
    return Piece(start, start + stored.record_count, memoryview(batch), stored.max_timestamp, False)


def _absent(version: bytes) -> bytes:
    """Return a version that no schema here has or will have: under its own number, another schema would read the message."""
    return bytes((version[0] | _ABSENT, *version[1:])) if len(version) == _VERSION_BYTES else version


def _opaque(entry: Entry, message: Message) -> StoredEntry:
    try:
        return StoredEntry(*kernel.encode_entry(message.metadata.SerializeToString(), message.payload, True))
    except (Corrupt, ValueError) as error:
        raise Invalid(f"entry {entry.place} of the source cannot be stored: {error}") from error
