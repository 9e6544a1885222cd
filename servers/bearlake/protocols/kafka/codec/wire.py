"""What generated code calls: variable-length integers, records by reference, refusals.

Source: Kafka protocol guide (primitive types); KIP-482 (compact lengths, tagged fields).
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

Buffer = bytes | bytearray | memoryview
Records = Buffer | Sequence[Buffer]

STRING_BYTES_MAX = 32_767
"""Of any string, compact or not, as in Kafka."""

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


def skip_tags(view: memoryview, position: int, count: int) -> int:
    """Skip `count` tagged fields; returns the position behind them."""
    for _ in range(count):
        position, _tag = _varint(view, position)
        position, size = _varint(view, position)
        position += size
        if position > len(view):
            refuse_length(size, len(view) - position + size)
    return position


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = view[position]
    position += 1
    if value > 127:
        value, position = read_varint(view, position, value)
    return position, value


def refuse_length(length: int, left: int) -> None:
    """Raise for a length that is negative (null) or beyond what is left."""
    if length < 0:
        raise Malformed("null is not allowed here")
    if length > left:
        raise Malformed(f"{length} bytes announced, {left} left")
    raise Malformed(f"{length} bytes exceed the limit of {STRING_BYTES_MAX}")


def refuse_count(count: int, left: int) -> None:
    """Raise for an array whose elements cannot fit into what is left."""
    raise Malformed("null is not allowed here" if count < 0 else f"{count} elements announced, {left} bytes left")


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


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


def chunks(out: bytearray, cuts: Iterable[tuple[int, Buffer]]) -> list[Buffer]:
    """`out` with every cut's buffer put in at its position, as a list of buffers without copies."""
    if not cuts:
        return [out]
    view, found, start = memoryview(out), [], 0
    for position, buffer in cuts:
        if position > start:
            found.append(view[start:position])
        found.append(buffer)  # type: ignore[arg-type]
        start = position
    if start < len(out):
        found.append(view[start:])
    return found  # type: ignore[return-value]


@lru_cache(512)
def many(codes: str, count: int, method: str) -> Callable[..., Any]:
    """`struct.Struct.method` of an array: `codes` with {} for the count."""
    # Any: `pack` and `unpack_from` have different types.
    found: Callable[..., Any] = getattr(struct.Struct(">" + codes.format(count)), method)
    return found
