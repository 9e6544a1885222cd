"""WAL objects of version 1.

    header, 40 bytes            at 0                index entry, 40 bytes       at 40 + 40 i
     0   8 bytes  magic 89 "BEARWAL"                 0  16 bytes  stream id (UUID)
     8   uint16   version = 1                       16   uint32   partition
    10   uint16   flags = 0                         20   uint32   batch count (>= 1)
    12   uint32   slice count n                     24   uint64   position of the slice in the object
    16   uint64   size of the object                32   uint32   length of the slice in bytes
    24   uint64   epoch of the writing server       36   uint32   CRC32C of the slice
    32   uint32   node id of the writing server
    36   uint32   0                                 at 40 + 40 n: uint32 CRC32C of [0, 40 + 40 n)
                                                    at 44 + 40 n: the first slice
    trailer, 40 bytes           at size - 40
     0   uint64   position of the index part = 0, header included
     8   uint32   length of the index part = 44 + 40 n
    12   uint32   CRC32C of the index part without its own last 4 bytes (the same value as there)
    16   uint64   size of the object
    24   uint16   version = 1
    26   uint16   flags = 0
    28   uint32   CRC32C of the trailer's first 28 bytes
    32   8 bytes  magic "BEARWAL" 0A

Unused fields are zero and a reader refuses other values, so that a check covers every bit of an object.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.wal.format import MAGIC, MAGIC_END, TRAILER_BYTES, Buffer, Index, SliceEntry

VERSION = 1
HEADER = Struct(">8sHHIQQII")
ENTRY = Struct(">16sIIQII")
CRC = Struct(">I")
TRAILER = Struct(">QIIQHH")
LENGTH_MAX = 2**32 - 1
"""Largest slice, in bytes."""
SLICE_COUNT_MAX = 2**20
"""Most slices in one object; the index then takes 40 MiB."""


def index_bytes(slice_count: int) -> int:
    """Length in bytes of header, index and their checksum; the first slice begins there."""
    return HEADER.size + ENTRY.size * slice_count + CRC.size


def fill_in(target: bytearray, entries: bytes, node_id: int, server_epoch: int) -> None:
    """Write header, index and trailer around the slices already in `target`; `entries` holds one packed `ENTRY` per slice."""
    front, back = around(len(target), entries, node_id, server_epoch)
    target[: len(front)] = front
    target[len(target) - TRAILER_BYTES :] = back


def around(size: int, entries: bytes, node_id: int, server_epoch: int) -> tuple[bytes, bytes]:
    """Return the bytes before the slices of an object of `size` bytes, and those after them; `entries` as in `fill_in`."""
    head = HEADER.pack(MAGIC, VERSION, 0, len(entries) // ENTRY.size, size, server_epoch, node_id, 0) + entries
    crc = kernel.crc32c(head)
    trailer = TRAILER.pack(0, len(head) + CRC.size, crc, size, VERSION, 0)
    return head + CRC.pack(crc), trailer + CRC.pack(kernel.crc32c(trailer)) + MAGIC_END


def index_end(head: Buffer) -> int:
    """Return where the index part ends, from the header at the start of `head`."""
    if len(head) < HEADER.size:
        raise Corrupt(f"WAL object: {len(head)} bytes are less than a header")
    _, _, _, slice_count, size, _, _, _ = HEADER.unpack_from(head)
    end = index_bytes(slice_count)
    if slice_count > SLICE_COUNT_MAX or end + TRAILER_BYTES > size:
        raise Corrupt(f"WAL object of {size} bytes: {slice_count} slices are impossible")
    return end


def parse_index(head: Buffer) -> Index:
    """Parse the index from bytes that begin with the header and hold the whole index part."""
    end = index_end(head)
    if len(head) < end:
        raise Corrupt(f"WAL object: {len(head)} bytes are less than the {end} bytes of its index")
    entries_end = end - CRC.size
    if kernel.crc32c(head, 0, entries_end) != CRC.unpack_from(head, entries_end)[0]:
        raise Corrupt("WAL object: the checksum of its index does not match")
    _, version, flags, _, size, server_epoch, node_id, zero = HEADER.unpack_from(head)
    if flags or zero:
        raise Corrupt("WAL object: an unused field of its header is not zero")
    slices = [SliceEntry._make(fields) for fields in ENTRY.iter_unpack(memoryview(head)[HEADER.size : entries_end])]
    _check_slices(slices, end, size - TRAILER_BYTES)
    return Index(version, size, node_id, server_epoch, slices)


def _check_slices(slices: Sequence[SliceEntry], start: int, end: int) -> None:
    """Raise `Corrupt` unless the slices are sorted and cover `[start, end)` without gaps."""
    for left, right in pairwise(slices):
        if left[:2] >= right[:2]:
            raise Corrupt("WAL object: its slices are not sorted by partition")
    for entry in slices:
        if entry.position != start or entry.length == 0 or entry.batch_count == 0:
            raise Corrupt(f"WAL object: a slice at {entry.position} with {entry.length} bytes, expected at {start}")
        start += entry.length
    if start != end:
        raise Corrupt(f"WAL object: its slices end at {start}, expected at {end}")


def parse_trailer(trailer: Buffer) -> tuple[int, int, int, int]:
    """Parse the 40-byte trailer into (index start, index end, index checksum, object size)."""
    if len(trailer) != TRAILER_BYTES:
        raise Corrupt(f"WAL object: a trailer of {len(trailer)} bytes")
    start, length, crc, size, version, flags = TRAILER.unpack_from(trailer)
    if kernel.crc32c(trailer, 0, TRAILER.size) != CRC.unpack_from(trailer, TRAILER.size)[0]:
        raise Corrupt("WAL object: the checksum of its trailer does not match")
    count, rest = divmod(length - index_bytes(0), ENTRY.size)
    if (
        start
        or flags
        or version != VERSION
        or rest
        or not 0 <= count <= SLICE_COUNT_MAX
        or length + TRAILER_BYTES > size
    ):
        raise Corrupt("WAL object: its trailer is impossible")
    return start, length, crc, size
