"""Entries: the unit that a Pulsar client sends and receives (one message or one batch), stored as one record batch.

`kernel/pulsar/encode.py` describes how messages become records, and what Kafka, REST, gRPC and SQL see of them;
`kernel/pulsar/decode.py` describes what Pulsar clients see of records from other protocols. This module handles compression. A compressed
entry is stored with Kafka's codec of the same name; zlib becomes zstd. Only clients can read an encrypted entry or a chunk of a compressed
message. Such an entry is stored unchanged, as one opaque record.

Entries leave the server uncompressed, and their metadata says so, unless they are larger than the limit of clients.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.pulsar.proto.metadata_pb2 import NONE, ZSTD, MessageMetadata
from bearlake.records import blocks, compression
from bearlake.records.batch import COMPRESSION_MASK, HEADER_BYTES, Compression
from bearlake.records.blocks import BlockCodec

Buffer = bytes | bytearray | memoryview

MESSAGE_BYTES_MAX = 5 * 1024 * 1024
"""Default limit of an entry in a frame to a client, in bytes (Pulsar's `maxMessageSize`)."""
UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default limit of an entry's uncompressed payload, in bytes."""
ANY_BYTES = 1 << 62
"""No limit, for entries that are not sent in a frame."""

_STORED_CODECS = {
    BlockCodec.LZ4: Compression.LZ4,
    BlockCodec.ZLIB: Compression.ZSTD,  # gzip would have a seventh of the speed (38 against 268 MB/s), without a better ratio
    BlockCodec.ZSTD: Compression.ZSTD,
    BlockCodec.SNAPPY: Compression.SNAPPY,
}

_READ_RATIO = 4
"""Largest payload, as a multiple of the limit for uncompressed records: records of other protocols grow by timestamps and sequence ids."""

_LENGTH = Struct(">i")
_LENGTH_AT, _LENGTH_END = 8, 12
_CHECKSUM = Struct(">I")
_CHECKSUM_AT, _CHECKSUM_START = 17, 21
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_CODEC_AT = 22
"""The low byte of the attributes."""
_MAGIC = Struct(">HI")
_CHECKSUMMED = 0x0E01
_SIZE = Struct(">I")
_HEAD_BYTES = _MAGIC.size + _SIZE.size


class StoredEntry(NamedTuple):
    """A record batch with base offset 0 and without a producer; `max_timestamp` is in ms, -1 if there is none."""

    batch: bytes
    record_count: int
    max_timestamp: int


Prepared = Callable[[], StoredEntry]
"""Returns the entry that a thread has made of a SEND, or raises its error."""


class ReadEntry(NamedTuple):
    """The bytes after a MESSAGE command, from magic and checksum on; empty if the entry has no messages.

    `message_count` is the number of permits that the entry uses. `is_batch`: whether its messages have a batch index.
    """

    headers_and_payload: bytes
    message_count: int
    is_batch: bool


class Routing(NamedTuple):
    """The properties of an entry that decide which consumer gets it, and when.

    `ordering_key`: the key for Key_Shared: the ordering key of the entry or of its first message, else the partition key, else b"".
    `deliver_at_ms`: Shared subscriptions do not deliver the entry before this time (ms since 1970); 0: deliver at once.
    `chunk_uuid`: the id of the large message that the entry is a chunk of; b"" if the entry is not a chunk.
    `chunk_id`, `chunk_count`: the number of the chunk, from 0 on, and the number of chunks.
    """

    ordering_key: bytes
    deliver_at_ms: int
    chunk_uuid: bytes
    chunk_id: int
    chunk_count: int


def to_batch(
    metadata: MessageMetadata, payload: Buffer, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> StoredEntry:
    """Convert an entry to its record batch: one record per message of a batch, in order; else one record.

    Raises:
        Invalid: the metadata or the payload is malformed, or the payload does not have the size in the metadata.
        TooLarge: the payload has more than `uncompressed_bytes_max` bytes uncompressed.
        Unsupported: the codec is unknown.
    """
    is_opaque = _is_opaque(metadata)
    is_compressed = metadata.compression != NONE and not is_opaque
    size = metadata.uncompressed_size if is_compressed else len(payload)
    if not is_opaque and metadata.num_messages_in_batch > kernel.RECORDS_MAX:
        raise TooLarge("messages of an entry", metadata.num_messages_in_batch, kernel.RECORDS_MAX)
    if size > uncompressed_bytes_max:
        raise TooLarge("uncompressed entry", size, uncompressed_bytes_max)
    if is_compressed:
        payload = blocks.decompress(BlockCodec(metadata.compression), payload, size)
    batch, record_count, max_timestamp = kernel.encode_entry(metadata.SerializeToString(), payload, is_opaque)
    if len(batch) > uncompressed_bytes_max + HEADER_BYTES:  # a larger batch could not be read
        raise TooLarge("uncompressed entry as records", len(batch), uncompressed_bytes_max + HEADER_BYTES)
    if is_compressed:
        batch = _compressed(batch, _STORED_CODECS[BlockCodec(metadata.compression)])
    return StoredEntry(batch, record_count, max_timestamp)


def from_batch(
    batch: memoryview,
    base_offset: int,
    *,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> ReadEntry:
    """Convert a record batch of any protocol to an entry.

    Compresses the payload if the entry would exceed `message_bytes_max`, the limit of clients.

    Raises:
        Corrupt: a record or the compressed data is malformed.
        TooLarge: the entry exceeds `message_bytes_max` even compressed, or `uncompressed_bytes_max` uncompressed.
    """
    records = records_of(batch, uncompressed_bytes_max)
    return from_records(batch, base_offset, message_bytes_max, records, uncompressed_bytes_max)


def from_records(
    batch: memoryview, base_offset: int, message_bytes_max: int, records: Buffer | None, uncompressed_bytes_max: int
) -> ReadEntry:
    """Convert as `from_batch` does; `records` is what `records_of` returns."""
    payload_bytes_max = _READ_RATIO * uncompressed_bytes_max
    frame, message_count, is_batch = kernel.decode_entry(batch, records, base_offset, payload_bytes_max)
    if len(frame) > message_bytes_max:
        frame = _smaller(frame, message_bytes_max)
    return ReadEntry(frame, message_count, is_batch)


def routing(batch: memoryview, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX) -> Routing:
    """The routing properties of the entry in a record batch.

    Raises:
        Corrupt, TooLarge: as in `from_batch`.
    """
    return routing_of(batch, records_of(batch, uncompressed_bytes_max))


def routing_of(batch: memoryview, records: Buffer | None) -> Routing:
    """As `routing`; `records` is what `records_of` returns."""
    return Routing(*kernel.entry_routing(batch, records))


def codec_of(batch: memoryview) -> int:
    """The number of the codec that compresses the records of a batch; 0: they are not compressed."""
    return batch[_CODEC_AT] & COMPRESSION_MASK


def records_of(batch: memoryview, bytes_max: int) -> Buffer | None:
    """The uncompressed records section; None if the batch is not compressed.

    Raises:
        Corrupt: the codec is unknown, or the compressed data is malformed.
        TooLarge: the section has more than `bytes_max` bytes, whatever the data claims; no more are decompressed.
    """
    number = codec_of(batch)
    if number == Compression.NONE:
        return None
    try:
        codec = Compression(number)
    except ValueError as error:
        raise Corrupt(f"record batch with {error}") from error
    return compression.decompress(codec, batch[HEADER_BYTES:], bytes_max)


def _is_opaque(metadata: MessageMetadata) -> bool:
    """Whether only a client can read the payload."""
    return bool(metadata.encryption_keys) or (metadata.num_chunks_from_msg > 1 and metadata.compression != NONE)


def _compressed(batch: bytes, codec: Compression) -> bytes:
    """The batch with compressed records, if that makes the batch smaller."""
    records = compression.compress(codec, memoryview(batch)[HEADER_BYTES:])
    size = HEADER_BYTES + len(records)
    if size >= len(batch):
        return batch
    packed = bytearray(batch[:HEADER_BYTES]) + records
    _LENGTH.pack_into(packed, _LENGTH_AT, size - _LENGTH_END)
    _ATTRIBUTES.pack_into(packed, _ATTRIBUTES_AT, codec)
    _CHECKSUM.pack_into(packed, _CHECKSUM_AT, kernel.crc32c(packed, _CHECKSUM_START))
    return bytes(packed)


def _smaller(frame: bytes, bytes_max: int) -> bytes:
    """The same entry with its payload compressed by zstd. Raises `TooLarge` for an opaque entry or a chunk."""
    view = memoryview(frame)
    (size,) = _SIZE.unpack_from(view, _MAGIC.size)
    start = _HEAD_BYTES + size
    metadata = MessageMetadata.FromString(bytes(view[_HEAD_BYTES:start]))
    if _is_opaque(metadata) or metadata.num_chunks_from_msg > 1:
        raise TooLarge("entry", len(frame), bytes_max)
    metadata.compression = ZSTD
    metadata.uncompressed_size = len(frame) - start
    head = metadata.SerializeToString()
    covered = b"".join((_SIZE.pack(len(head)), head, blocks.compress(BlockCodec.ZSTD, view[start:])))
    packed = _MAGIC.pack(_CHECKSUMMED, kernel.crc32c(covered)) + covered
    if len(packed) > bytes_max:
        raise TooLarge("entry", len(packed), bytes_max)
    return packed
