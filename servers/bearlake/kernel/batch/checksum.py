"""CRC32C (Castagnoli), table-driven, eight bytes at a time.

Source: RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, reflected 0x82F63B78); "slicing-by-8" of Kounavis and Berry, 2005.
"""

from struct import Struct

from bearlake.kernel.buffers import Buffer, check_bounds, view_of

_POLYNOMIAL = 0x82F63B78


def _tables() -> list[list[int]]:
    first = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(7):
        tables.append([value >> 8 ^ first[value & 0xFF] for value in tables[-1]])
    return tables


_TABLES = _tables()
_WORDS = Struct("<II")


def crc32c(buffer: Buffer, start: int = 0, end: int | None = None, /) -> int:
    """Return the CRC32C of bytes `[start, end)` of `buffer` (`end` None: to the end); 0 for no bytes."""
    view = view_of(buffer)
    if end is None:
        end = len(view)
    check_bounds(len(view), start, end)
    t0, t1, t2, t3, t4, t5, t6, t7 = _TABLES
    crc = 0xFFFFFFFF
    whole = end - (end - start) % 8
    for low, high in _WORDS.iter_unpack(view[start:whole]):
        low ^= crc
        crc = (
            t7[low & 0xFF] ^ t6[low >> 8 & 0xFF] ^ t5[low >> 16 & 0xFF] ^ t4[low >> 24]
            ^ t3[high & 0xFF] ^ t2[high >> 8 & 0xFF] ^ t1[high >> 16 & 0xFF] ^ t0[high >> 24]
        )  # fmt: skip
    for byte in view[whole:end]:
        crc = crc >> 8 ^ t0[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
