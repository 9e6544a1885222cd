"""The form of LZ4 sections that every client of Kafka reads: one frame with independent blocks, without a dictionary."""

from struct import Struct

from bearlake.kernel.buffers import Buffer

_WORD = Struct("<I")
_FLAGS_AT = 4
_HEADER_BYTES, _SIZE_BYTES = 7, 8
_VERSION_MASK, _VERSION = 0xC0, 0x40
_IS_INDEPENDENT, _HAS_BLOCK_CHECKSUMS, _HAS_SIZE, _HAS_CHECKSUM, _HAS_DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_IS_RAW = 0x80000000


def is_plain(section: Buffer, /) -> bool:
    """Whether a section that can be decompressed has this form. It looks at the sizes of the blocks only.

    Source: lz4_Frame_format.md (1.6.2); Apache Kafka, Lz4BlockInputStream (refuses linked blocks, and ends with the first frame).
    """
    view = memoryview(section).cast("B")
    flags = view[_FLAGS_AT] if len(view) >= _HEADER_BYTES else 0
    if flags & _VERSION_MASK != _VERSION or not flags & _IS_INDEPENDENT or flags & _HAS_DICTIONARY:
        return False
    position = _HEADER_BYTES + (_SIZE_BYTES if flags & _HAS_SIZE else 0)
    behind_block = _WORD.size + (_WORD.size if flags & _HAS_BLOCK_CHECKSUMS else 0)
    while position + _WORD.size <= len(view):
        (length,) = _WORD.unpack_from(view, position)
        if length == 0:
            return position + _WORD.size + (_WORD.size if flags & _HAS_CHECKSUM else 0) == len(view)
        position += behind_block + (length & ~_IS_RAW)
    return False
