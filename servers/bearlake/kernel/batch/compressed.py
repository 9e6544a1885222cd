"""Check the records of a whole batch, compressed or not, with memory of a bounded size."""

from struct import Struct

import cramjam

from bearlake.kernel.batch import HEADER_BYTES, zstd
from bearlake.kernel.batch.lz4 import is_plain
from bearlake.kernel.batch.records import check_records
from bearlake.kernel.buffers import Buffer, view_of

SECTION_BYTES_MAX = 1024 * 1024
"""Largest uncompressed size (bytes) of a compressed records section that `check_batch` checks."""

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_COUNT = Struct(">i")
_LENGTH_AT, _LENGTH_END, _ATTRIBUTES_AT, _COUNT_AT = 8, 12, 21, 57
_CODEC_MASK = 0x07
_LZ4, _ZSTD = 3, 4


def check_batch(batch: Buffer, size_max: int, /) -> int:
    """Return the uncompressed size (bytes) of the batch's records section if it is at most `size_max`, and its records are good.

    Returns -1 if that is not so or not known: then the caller finds out by `check_records` of the decompressed section. It is never
    known of gzip, snappy, LZ4 in another form than `lz4.is_plain`, and compressed sections above `SECTION_BYTES_MAX`. The native kernel
    decodes LZ4 itself; both kernels decode zstd by `zstd.decompress`.
    The header's checksum is not checked.
    """
    view = view_of(batch)
    if len(view) < HEADER_BYTES or _LENGTH.unpack_from(view, _LENGTH_AT)[0] + _LENGTH_END != len(view):
        return -1
    (attributes,) = _ATTRIBUTES.unpack_from(view, _ATTRIBUTES_AT)
    (record_count,) = _COUNT.unpack_from(view, _COUNT_AT)
    section = view[HEADER_BYTES:]
    if attributes & _CODEC_MASK:
        opened = _open(section, attributes & _CODEC_MASK, min(size_max, SECTION_BYTES_MAX))
        if opened is None:
            return -1
        section = view_of(opened)
    if record_count < 0 or len(section) > size_max or check_records(section, record_count) >= 0:
        return -1
    return len(section)


def is_checkable(attributes: int) -> bool:
    """Whether `check_batch` knows the codec of a batch with these attributes."""
    codec = attributes & _CODEC_MASK
    return codec in (0, _LZ4, _ZSTD)


def _open(section: memoryview, codec: int, room: int) -> Buffer | None:
    if room < 0:
        return None
    if codec == _ZSTD:
        return zstd.decompress(section, room)
    if codec != _LZ4 or not is_plain(section):
        return None
    target = memoryview(bytearray(room))
    try:
        return target[: cramjam.lz4.decompress_into(section, target)]
    except (cramjam.DecompressionError, OSError):
        return None
