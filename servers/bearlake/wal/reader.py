"""Reads WAL objects of any version, whole or by byte ranges.

From the front, `index_range(head)` returns the byte range of the index, and `read_index` checks and parses the index. From the end,
`index_range_from_tail(tail)` returns the same range and proves that the object is complete. Then call `read_slice` for each slice, or
`verify` for the whole object. For any input bytes, this module raises only `Corrupt` and `Unsupported` (a newer version).
"""

from struct import Struct

from bearlake import kernel
from bearlake.errors import Corrupt, Unsupported
from bearlake.wal import v1
from bearlake.wal.format import MAGIC, MAGIC_END, TRAILER_BYTES, Buffer, Index, SliceEntry

_START = Struct(">8sH")
_TRAILER_VERSION_AT = 24
_VERSION = Struct(">H")
_BATCH_CRC_AT = 17
_BATCH_CRC_START = 21
_CRC = Struct(">I")


def index_range(head: Buffer) -> tuple[int, int]:
    """Return the byte range `[start, end)` that `read_index` needs; `head` holds the object's first bytes, at least 40.

    Raises:
        Corrupt: these are not the first bytes of a WAL object.
        Unsupported: the object has a newer version.
    """
    _check_start(head)
    return 0, v1.index_end(head)


def index_range_from_tail(tail: Buffer) -> tuple[int, int, int]:
    """Return the byte range `[start, end)` that `read_index` needs, and the object's size; `tail`: its last `TRAILER_BYTES` bytes or more.

    Raises:
        Corrupt: these are not the last bytes of a WAL object.
        Unsupported: the object has a newer version.
    """
    if len(tail) < TRAILER_BYTES:
        raise Corrupt(f"WAL object: {len(tail)} bytes are less than a trailer")
    trailer = memoryview(tail)[len(tail) - TRAILER_BYTES :]
    if trailer[-len(MAGIC_END) :] != MAGIC_END:
        raise Corrupt("WAL object: it does not end in the magic")
    _check_version(_VERSION.unpack_from(trailer, _TRAILER_VERSION_AT)[0])
    start, end, _, size = v1.parse_trailer(trailer)
    return start, end, size


def read_index(head: Buffer) -> Index:
    """Parse the object's index; `head` starts at the object's first byte and reaches the end of the index or beyond.

    Raises:
        Corrupt: the checksum does not match, or the bytes are inconsistent or too few.
        Unsupported: the object has a newer version.
    """
    _check_start(head)
    return v1.parse_index(head)


def read_slice(buffer: Buffer, entry: SliceEntry, origin: int = 0) -> memoryview:
    """Return the slice's bytes after checking their checksum; `buffer` holds the object's bytes from position `origin` on.

    Raises:
        Corrupt: the buffer does not hold the slice, or the slice's bytes were changed (`kernel.rebase` changes them, too).
    """
    start = entry.position - origin
    end = start + entry.length
    if start < 0 or end > len(buffer):
        raise Corrupt(f"WAL object: the slice at {entry.position} is not in the {len(buffer)} bytes from {origin} on")
    if kernel.crc32c(buffer, start, end) != entry.crc:
        raise Corrupt(f"WAL object: the checksum of the slice at {entry.position} does not match")
    return memoryview(buffer)[start:end]


def verify(whole: Buffer) -> Index:
    """Check every byte of an object: trailer, index, slices, and each batch's structure and CRC; returns the index.

    Raises:
        Corrupt: a check failed; the message says which check and where.
        Unsupported: the object has a newer version.
    """
    index = read_index(whole)
    start, end, size = index_range_from_tail(whole)
    if not index.size == size == len(whole) or (start, end) != index_range(whole):
        raise Corrupt(f"WAL object of {len(whole)} bytes: header and trailer contradict it")
    for entry in index.slices:
        _verify_batches(read_slice(whole, entry), entry)
    return index


def _verify_batches(view: memoryview, entry: SliceEntry) -> None:
    found = kernel.batches(view, 0, len(view))
    if len(found) != entry.batch_count:
        raise Corrupt(f"WAL object: the slice at {entry.position} has {len(found)} batches, not {entry.batch_count}")
    for position, _, header in found:
        crc = kernel.crc32c(view, position + _BATCH_CRC_START, position + header.length)
        if crc != _CRC.unpack_from(view, position + _BATCH_CRC_AT)[0]:
            raise Corrupt(f"WAL object: the CRC of the batch at {entry.position + position} does not match")


def _check_start(head: Buffer) -> None:
    if len(head) < _START.size:
        raise Corrupt(f"WAL object: {len(head)} bytes are less than a header")
    magic, version = _START.unpack_from(head)
    if magic != MAGIC:
        raise Corrupt("WAL object: it does not begin with the magic")
    _check_version(version)


def _check_version(version: int) -> None:
    if version != v1.VERSION:
        raise Unsupported(f"WAL object of version {version}; expected {v1.VERSION}")
