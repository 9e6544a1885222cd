"""The last bytes of a Parquet file, and what our data files have there besides.

    pages …  CRC-32Cs of column chunks  trailer  footer  its length (4)  PAR1
             └ of our files only: 4 bytes per chunk, by row group, little-endian ┘

Parquet's readers look at pages and footer only, by position, so nobody minds what lies between them. The trailer has the number of the
CRCs, a CRC-32C of them and of everything behind the trailer, and a magic. A file without it is one of an earlier version or of another
engine, unless the footer says that there are CRCs.

Source: Apache Parquet format, "File Format"; decisions 337 and 347.
"""

from struct import Struct
from typing import Final, NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt

CRC: Final = Struct("<I")
CRCS_NAME: Final = b"bearlake.crcs"
"""Key-value metadata of the footer: where the CRCs begin. Without it, damage of the trailer would make them unknown (decision 347)."""
MAGIC: Final = b"PAR1"
_END = Struct("<I4s")
"""The footer's length and the magic."""
_CRCS_MAGIC = b"BLCRCS01"
_TRAILER = Struct("<II8s")


class Tail(NamedTuple):
    """The end of a file. `crcs`: the bytes of the CRCs; None: the file has none."""

    footer: memoryview
    crcs: memoryview | None


def block(crcs: bytes, end: bytes) -> bytes:
    """Return the CRCs with their trailer. `end`: the footer with its length and the magic."""
    return crcs + _TRAILER.pack(len(crcs) // CRC.size, kernel.crc32c(crcs + end), _CRCS_MAGIC)


def needed(tail: memoryview, size: int) -> int:
    """Return how many of the last bytes of a file of `size` bytes are needed; if they are more than `tail` has, ask again with so many.

    Raises:
        Corrupt: not the end of a Parquet file, or a number of CRCs that the footer cannot have.
    """
    length, magic = _END.unpack(tail[-_END.size :]) if len(tail) >= _END.size else (0, b"")
    if magic != MAGIC or length + _END.size + len(MAGIC) > size:
        raise Corrupt("it does not end like a Parquet file")
    end = int(length) + _END.size
    with_trailer = min(size, end + _TRAILER.size)
    if with_trailer > len(tail):
        return with_trailer
    trailer = _trailer(tail, end)
    if trailer is None:
        return end
    crc_bytes = trailer[0] * CRC.size
    if crc_bytes > length:  # a chunk takes more than 4 bytes of footer; do not read a whole file for a wrong number
        raise Corrupt("it has more CRCs than column chunks")
    return min(size, with_trailer + crc_bytes)


def split(tail: memoryview) -> Tail:
    """Return the parts of a file's end; `tail` has the bytes that are `needed`.

    Raises:
        Corrupt: the footer, or the CRCs, are not those that were written.
    """
    (length, _) = _END.unpack(tail[-_END.size :])
    end = length + _END.size
    footer = tail[-end : -_END.size]
    trailer = _trailer(tail, end)
    if trailer is None:
        return Tail(footer, None)
    count, expected = trailer
    place = len(tail) - end - _TRAILER.size
    crcs = tail[max(0, place - count * CRC.size) : place]
    if kernel.crc32c(bytes(crcs) + bytes(tail[-end:])) != expected:
        raise Corrupt("footer of a data file: its CRC does not match")
    return Tail(footer, crcs)


def _trailer(tail: memoryview, end: int) -> tuple[int, int] | None:
    """Return number and CRC of the trailer; None: the file has none."""
    place = len(tail) - end - _TRAILER.size
    if place < 0:
        return None
    count, crc, magic = _TRAILER.unpack(tail[place : place + _TRAILER.size])
    return (count, crc) if magic == _CRCS_MAGIC else None
