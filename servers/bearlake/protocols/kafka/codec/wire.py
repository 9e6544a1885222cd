"""What generated code calls: variable-length integers, records by reference, refusals.

Source: Kafka protocol guide (primitive types); KIP-482 (compact lengths, tagged fields).
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Buffer = bytes | bytearray | memoryview
Records = Buffer | Sequence[Buffer]

STRING_BYTES_MAX = 32_767
"""Of any string, compact or not, as in Kafka."""

ELEMENTS_MAX = 1_000_000
"""Of all arrays and tagged fields of one message together. An element of 3 bytes can become an object of 150: this bounds a decoded message
to some 200 MB beside its frame, and is far above the largest message that makes sense (100,000 partitions)."""

INLINE_BYTES_MAX = 1024
"""Records up to this size are copied into the chunk around them: another chunk costs the socket about as much."""


class Malformed(ValueError):
    """Bytes that break the rules; the codec adds where and raises `Corrupt`."""


def read_varint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """The unsigned varint whose first byte, with its high bit set, was `first`; `position` is behind that byte."""
    value, shift = first & 127, 7
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                raise Malformed("a varint exceeds 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("a varint has more than 5 bytes")


def skip_tags(view: memoryview, position: int) -> int:
    """Skip a section of tagged fields; returns the position behind it."""
    count, position = _varint(view, position)
    if count > ELEMENTS_MAX:
        refuse_tags(count)
    for _ in range(count):
        _, position = _varint(view, position)
        size, position = _varint(view, position)
        if size > len(view) - position:
            refuse_length(size, len(view) - position)
        position += size
    return position


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    first = view[position]
    return read_varint(view, position + 1, first) if first > 127 else (first, position + 1)


def refuse_length(length: int, left: int) -> None:
    """Raise for a length that is negative (null), or beyond what is left, or of a string that is too long."""
    if length < 0:
        raise Malformed("null is not allowed here")
    if length > left:
        raise Malformed(f"{length} bytes announced, {left} left")
    raise Malformed(f"{length} bytes exceed the limit of {STRING_BYTES_MAX}")


def refuse_count(count: int, left: int, budget: int) -> None:
    """Raise for an array that is null, or whose elements cannot fit into what is left, or into the budget of elements."""
    if count < 0:
        raise Malformed("null is not allowed here")
    if budget < 0 and count <= left:
        raise Malformed(f"{count} more elements exceed the limit of {ELEMENTS_MAX} per message")
    raise Malformed(f"{count} elements announced, {left} bytes left")


def refuse_tags(count: int) -> None:
    """Raise for a number of tagged fields that would keep the server busy for nothing."""
    raise Malformed(f"{count} tagged fields exceed the limit of {ELEMENTS_MAX} elements per message")


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def write_length(out: bytearray, length: int) -> None:
    """Append the compact length of an array or of bytes: the length plus one (zero is null)."""
    write_varint(out, length + 1)


def write_string_length(out: bytearray, length: int) -> None:
    """Append the length of a compact string of 127 bytes or more."""
    if length > STRING_BYTES_MAX:
        raise Malformed(f"a string of {length} bytes exceeds the limit of {STRING_BYTES_MAX}")
    write_varint(out, length + 1)


def write_records(out: bytearray, cuts: list[tuple[int, Buffer]], records: Records, is_compact: bool) -> None:
    """Append the length of `records`, and the buffers themselves: as cuts, by reference, or copied where they are small."""
    parts: Sequence[Buffer] = (records,) if isinstance(records, bytes | bytearray | memoryview) else records
    size = sum(map(len, parts))
    if is_compact:
        write_varint(out, size + 1)
    else:
        out += struct.pack(">i", size)
    for part in parts:
        if len(part) > INLINE_BYTES_MAX:
            cuts.append((len(out), part))
        else:
            out += part


def chunks(out: bytearray, cuts: list[tuple[int, Buffer]]) -> list[Buffer]:
    """`out` with every cut's buffer put in at its position, as a list of buffers without copies."""
    if not cuts:
        return [out]
    view = memoryview(out)
    found: list[Buffer] = []
    start = 0
    for position, buffer in cuts:
        if position > start:
            found.append(view[start:position])
        found.append(buffer)
        start = position
    if start < len(out):
        found.append(view[start:])
    return found


@lru_cache(512)
def many(codes: str, count: int, method: str) -> Callable[..., Any]:
    """`struct.Struct.method` of an array: `codes` with {} for the count."""
    # Any: `pack` and `unpack_from` have different types.
    found: Callable[..., Any] = getattr(struct.Struct(">" + codes.format(count)), method)
    return found
