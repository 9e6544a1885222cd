"""Compresses and decompresses records sections with cramjam.

Decompression never returns, or allocates for its output, more than the caller allows, whatever the input claims. The formats are those of
Kafka's clients: gzip; LZ4 frames with independent blocks (the Java client reads no others); zstd frames; snappy either raw (librdkafka)
or in the Xerial framing (Java). `compress` writes the Xerial framing.
cramjam is loaded with the first section that needs it (decision 362).
Source: Apache Kafka, CompressionType and its streams; xerial/snappy-java, SnappyOutputStream.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from struct import Struct
from typing import Any

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel import is_plain_lz4
from bearlake.records.batch import Compression

Buffer = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_BLOCK_BYTES = 32 * 1024
"""Uncompressed bytes per block, the default of Xerial's library."""

_XERIAL_VERSIONS = Struct(">ii")
_XERIAL_LENGTH = Struct(">i")
_XERIAL_HEADER_BYTES = len(XERIAL_MAGIC) + _XERIAL_VERSIONS.size

_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3

SCRATCH_BYTES = 1024 * 1024
"""Memory (bytes) that a thread keeps in a `Scratch`."""

_FIRST_RATIO = 4
_FIRST_BYTES_MIN = 16 * 1024
# Rust's io::Write::write_all fails with this text when the output is full; other texts mean damaged input.
_IS_FULL = "failed to write whole buffer"


@cache
def _cramjam() -> Any:  # Any: cramjam has no stubs for its codec modules
    import cramjam

    return cramjam


@cache
def _faults() -> tuple[type[Exception], ...]:
    return (_cramjam().DecompressionError, OSError)


@cache
def _into() -> Mapping[Compression, Callable[[Any, Any], int]]:
    """By codec: (input, output) -> bytes written."""
    cramjam = _cramjam()
    return {
        Compression.GZIP: cramjam.gzip.decompress_into,
        Compression.LZ4: cramjam.lz4.decompress_into,
        Compression.ZSTD: cramjam.zstd.decompress_into,
    }


class Scratch(threading.local):
    """Memory for results that a thread needs only briefly.

    The system supplies new memory page by page, which takes longer than to decompress LZ4: 267 us and 35 us for 90 KiB.
    """

    def __init__(self) -> None:
        self._memory: memoryview | None = None

    def take(self, size: int) -> memoryview:
        """Return `size` bytes, which have any content; the thread's next call may return the same ones."""
        if size > SCRATCH_BYTES:
            return memoryview(bytearray(size))
        if self._memory is None:
            self._memory = memoryview(bytearray(SCRATCH_BYTES))
        return self._memory[:size]


def decompress(codec: Compression, body: Buffer, bytes_max: int, scratch: Scratch | None = None) -> Buffer:
    """Decompress `body`; returns `body` itself if the codec is NONE. With `scratch`, the result is valid until its next use.

    Raises:
        Corrupt: `body` is not a sequence of whole frames of the codec.
        TooLarge: the uncompressed size exceeds `bytes_max`.
    """
    if codec is Compression.NONE:
        if len(body) > bytes_max:
            raise TooLarge("records section", len(body), bytes_max)
        return body
    if codec is Compression.SNAPPY:
        return _unsnap(memoryview(body), bytes_max, scratch)
    capacity = min(bytes_max, max(_FIRST_BYTES_MIN if scratch is None else SCRATCH_BYTES, _FIRST_RATIO * len(body)))
    while True:
        target = _new(capacity, scratch)
        try:
            return target[: _into()[codec](body, target)]
        except _faults() as fault:
            if _IS_FULL not in str(fault):
                raise Corrupt(f"{codec.name.lower()}: {fault}") from fault
            if capacity >= bytes_max:
                raise TooLarge("uncompressed records section", capacity + 1, bytes_max) from fault
        capacity = min(bytes_max, capacity * _FIRST_RATIO)


def refuse_unusual(codec: Compression, body: Buffer) -> None:
    """Raise `Corrupt` if `body`, which can be decompressed, is in a form that Kafka's Java client does not read.

    Consumers would stop at it for good.
    """
    if codec is Compression.LZ4 and not is_plain_lz4(body):
        raise Corrupt("lz4: expected one frame with independent blocks; Kafka's clients read no other")


def _new(size: int, scratch: Scratch | None) -> memoryview:
    return memoryview(bytearray(size)) if scratch is None else scratch.take(size)


def compress(codec: Compression, body: Buffer) -> Buffer:
    """Compress `body` at the codec's usual level; returns `body` itself if the codec is NONE."""
    match codec:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return bytes(_cramjam().gzip.compress(body, level=_GZIP_LEVEL))
        case Compression.SNAPPY:
            return _snap(memoryview(body))
        case Compression.LZ4:
            frame = _cramjam().lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            frame.compress(bytes(body))  # cramjam's compressor accepts only bytes
            return bytes(frame.finish())
        case Compression.ZSTD:
            return bytes(_cramjam().zstd.compress(body, level=_ZSTD_LEVEL))


def _snap(body: memoryview) -> bytes:
    parts = [XERIAL_MAGIC, _XERIAL_VERSIONS.pack(1, 1)]
    for start in range(0, len(body), XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(body[start : start + XERIAL_BLOCK_BYTES]))
        parts += [_XERIAL_LENGTH.pack(len(block)), block]
    return b"".join(parts)


def _unsnap(body: memoryview, bytes_max: int, scratch: Scratch | None) -> memoryview:
    """Decompress in two passes: sum the block sizes before allocating the output."""
    snappy = _cramjam().snappy
    try:
        blocks = list(_xerial_blocks(body)) if body[: len(XERIAL_MAGIC)] == XERIAL_MAGIC else [body]
        sizes = [snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > bytes_max:
            raise TooLarge("uncompressed records section", total, bytes_max)
        target = _new(total, scratch)
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, target[position : position + size])
            position += size
    except _faults() as fault:
        raise Corrupt(f"snappy: {fault}") from fault
    return target


def _xerial_blocks(body: memoryview) -> Iterator[memoryview]:
    position = _XERIAL_HEADER_BYTES
    if len(body) < position:
        raise Corrupt(f"snappy: {len(body)} bytes are less than a Xerial header")
    while position < len(body):
        start = position + _XERIAL_LENGTH.size
        if start > len(body):
            raise Corrupt(f"snappy: the Xerial block at {position} is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(body, position)
        position = start + length
        if length <= 0 or position > len(body):
            raise Corrupt(f"snappy: the Xerial block at {start} has {length} bytes of {len(body) - start}")
        yield body[start:position]
