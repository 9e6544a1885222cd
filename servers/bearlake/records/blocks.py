"""Compressed blocks as Pulsar's clients write them: raw blocks without Kafka's framing; the message metadata carries the uncompressed size.

The size and the content must agree: this module never allocates or returns more than the given size.
Source: Apache Pulsar, CompressionCodecProvider: LZ4 and snappy are raw blocks, zlib as in RFC 1950, zstd as in RFC 8878; the Java client's
CompressionCodecZLib does not finish its zlib streams, it flushes them.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from bearlake.errors import Corrupt

Buffer = bytes | bytearray | memoryview

_ZSTD_LEVEL = 3
_ZLIB_LEVEL = 6
_ZLIB_FLUSHED = b"\x00\x00\xff\xff"
"""The last bytes of a flushed zlib stream (Z_SYNC_FLUSH), which lacks the final block and checksum."""


class BlockCodec(IntEnum):
    """Compression of a block, with Pulsar's numbers."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


def _inflate_into(block: Buffer, target: bytearray) -> int:
    if bytes(block[-len(_ZLIB_FLUSHED) :]) != _ZLIB_FLUSHED:
        return int(cramjam.zlib.decompress_into(block, target))
    content = zlib.decompressobj().decompress(block, len(target) + 1)
    target[: len(content)] = content
    return len(content)


# cramjam has no stubs for its codec modules: (input, output) -> bytes written
_INTO: dict[BlockCodec, Callable[[Any, Any], int]] = {
    BlockCodec.LZ4: cramjam.lz4.decompress_block_into,
    BlockCodec.ZLIB: _inflate_into,
    BlockCodec.ZSTD: cramjam.zstd.decompress_into,
    BlockCodec.SNAPPY: cramjam.snappy.decompress_raw_into,
}
_FAULTS = (cramjam.DecompressionError, zlib.error, OSError)


def decompress(codec: BlockCodec, block: Buffer, size: int) -> Buffer:
    """Decompress a block to exactly `size` bytes; returns the block itself if the codec is NONE. The caller bounds `size`.

    Raises:
        Corrupt: the block is not valid for the codec, or holds more or less than `size` bytes.
    """
    if codec is BlockCodec.NONE:
        if len(block) != size:
            raise Corrupt(f"a block of {len(block)} bytes, {size} expected")
        return block
    target = bytearray(size)
    try:
        written = _INTO[codec](block, target)
    except _FAULTS as fault:
        raise Corrupt(f"{codec.name.lower()} block of {size} bytes: {fault}") from fault
    if written != size:
        raise Corrupt(f"{codec.name.lower()} block of {written} bytes, {size} expected")
    return target


def compress(codec: BlockCodec, content: Buffer) -> Buffer:
    """Compress the content into one block, at the codec's usual level; returns the content itself if the codec is NONE."""
    match codec:
        case BlockCodec.NONE:
            return content
        case BlockCodec.LZ4:
            return bytes(cramjam.lz4.compress_block(content, store_size=False))
        case BlockCodec.ZLIB:
            return bytes(cramjam.zlib.compress(content, level=_ZLIB_LEVEL))
        case BlockCodec.ZSTD:
            return bytes(cramjam.zstd.compress(content, level=_ZSTD_LEVEL))
        case BlockCodec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(content))
