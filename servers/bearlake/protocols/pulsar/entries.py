"""Entries: what a Pulsar client sends and receives as one, stored as one record batch.

How its messages become records, and what Kafka, REST, gRPC and SQL see of them, is said in `kernel/pulsar/encode.py`; what Pulsar
sees of their records in `kernel/pulsar/decode.py`. This module decides about compression. A compressed entry is stored under
Kafka's codec of the same name, but zlib under zstd. An encrypted entry, and a chunk of a compressed message, are nobody's but the
clients' to read: they are stored as they came, as one opaque record.

Entries leave the server uncompressed, and their metadata says so, unless they are larger than a client takes.
"""

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
"""Default limit of an entry as clients take it (Pulsar's `maxMessageSize`)."""
UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default limit of an entry's uncompressed payload."""
ANY_BYTES = 1 << 62
"""No limit, for entries that are not sent as they are."""

_STORED_CODECS = {
    BlockCodec.LZ4: Compression.LZ4,
    BlockCodec.ZLIB: Compression.ZSTD,  # gzip would be a seventh as fast (38 to 268 MB/s), and no smaller
    BlockCodec.ZSTD: Compression.ZSTD,
    BlockCodec.SNAPPY: Compression.SNAPPY,
}

_READ_RATIO = 4
"""Limit of a payload, in bytes for one of uncompressed records: those of other protocols grow by times and sequence ids."""

_LENGTH = Struct(">i")
_LENGTH_AT, _LENGTH_END = 8, 12
_CHECKSUM = Struct(">I")
_CHECKSUM_AT, _CHECKSUM_START = 17, 21
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_CODEC_AT = 22
"""Their low byte."""
_MAGIC = Struct(">HI")
_CHECKSUMMED = 0x0E01
_SIZE = Struct(">I")
_HEAD_BYTES = _MAGIC.size + _SIZE.size


class StoredEntry(NamedTuple):
    """A record batch, with base offset 0 and without a producer; `max_timestamp` is in ms, -1 if there is none."""

    batch: bytes
    record_count: int
    max_timestamp: int


class ReadEntry(NamedTuple):
    """What stands behind a MESSAGE command, from its magic and checksum on; empty if there is no message in it.

    `message_count` is what it costs of a consumer's permits. `is_batch`: its messages are told apart by a batch index, else there is none.
    """

    headers_and_payload: bytes
    message_count: int
    is_batch: bool


class Routing(NamedTuple):
    """What decides who gets an entry, and when.

    `ordering_key`: what Key_Shared subscriptions go by, that of the entry or its first message, else the partition key, else b"".
    `deliver_at_ms`: Shared subscriptions do not deliver it before this time since 1970; 0: it may be delivered at once.
    `chunk_uuid`: which large message this is a chunk of; b"" if it is none. Then it is the chunk `chunk_id` of `chunk_count`, from 0 on.
    """

    ordering_key: bytes
    deliver_at_ms: int
    chunk_uuid: bytes
    chunk_id: int
    chunk_count: int


def to_batch(
    metadata: MessageMetadata, payload: Buffer, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> StoredEntry:
    """The record batch that an entry is stored as: one record for each message of a batch, in order, else one.

    Raises:
        Invalid: metadata or payload are not what they should be, or the payload is not of the size that the metadata says.
        TooLarge: the payload has more than `uncompressed_bytes_max` bytes uncompressed.
        Unsupported: an unknown codec.
    """
    is_opaque = _is_opaque(metadata)
    is_compressed = metadata.compression != NONE and not is_opaque
    size = metadata.uncompressed_size if is_compressed else len(payload)
    if size > uncompressed_bytes_max:
        raise TooLarge("uncompressed entry", size, uncompressed_bytes_max)
    if is_compressed:
        payload = blocks.decompress(BlockCodec(metadata.compression), payload, size)
    batch, record_count, max_timestamp = kernel.encode_entry(metadata.SerializeToString(), payload, is_opaque)
    if len(batch) > uncompressed_bytes_max + HEADER_BYTES:  # else it could not be read
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
    """The entry that a record batch is, whatever protocol wrote it.

    It is compressed if else it were larger than `message_bytes_max`, which is the most that clients take.

    Raises:
        Corrupt: a record is malformed, or the batch's compression.
        TooLarge: it is larger even so, or has more than `uncompressed_bytes_max` bytes uncompressed.
    """
    records = _records(batch, uncompressed_bytes_max)
    payload_bytes_max = _READ_RATIO * uncompressed_bytes_max
    frame, message_count, is_batch = kernel.decode_entry(batch, records, base_offset, payload_bytes_max)
    if len(frame) > message_bytes_max:
        frame = _smaller(frame, message_bytes_max)
    return ReadEntry(frame, message_count, is_batch)


def routing(batch: memoryview, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX) -> Routing:
    """What decides who gets the entry that a record batch is, and when.

    Raises:
        Corrupt, TooLarge: as `from_batch`.
    """
    return Routing(*kernel.entry_routing(batch, _records(batch, uncompressed_bytes_max)))


def _is_opaque(metadata: MessageMetadata) -> bool:
    """Whether only a client can read the payload."""
    return bool(metadata.encryption_keys) or (metadata.num_chunks_from_msg > 1 and metadata.compression != NONE)


def _compressed(batch: bytes, codec: Compression) -> bytes:
    """The batch with its records compressed, if that makes it smaller."""
    records = compression.compress(codec, memoryview(batch)[HEADER_BYTES:])
    size = HEADER_BYTES + len(records)
    if size >= len(batch):
        return batch
    packed = bytearray(batch[:HEADER_BYTES]) + records
    _LENGTH.pack_into(packed, _LENGTH_AT, size - _LENGTH_END)
    _ATTRIBUTES.pack_into(packed, _ATTRIBUTES_AT, codec)
    _CHECKSUM.pack_into(packed, _CHECKSUM_AT, kernel.crc32c(packed, _CHECKSUM_START))
    return bytes(packed)


def _records(batch: memoryview, bytes_max: int) -> Buffer | None:
    """The uncompressed records section; None if it is so in the batch."""
    number = batch[_CODEC_AT] & COMPRESSION_MASK
    if number == Compression.NONE:
        return None
    try:
        codec = Compression(number)
    except ValueError as error:
        raise Corrupt(f"record batch with {error}") from error
    return compression.decompress(codec, batch[HEADER_BYTES:], bytes_max)


def _smaller(frame: bytes, bytes_max: int) -> bytes:
    """The same entry, its payload compressed by zstd; not of a chunk, which clients put together before they uncompress."""
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
