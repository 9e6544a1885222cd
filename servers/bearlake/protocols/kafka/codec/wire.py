"""Functions that generated code calls: variable-length integers, records by reference, errors.

Source: Kafka protocol guide (primitive types); KIP-482 (compact lengths, tagged fields).
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Buffer = bytes | bytearray | memoryview
Records = Buffer | Sequence[Buffer]

STRING_BYTES_MAX = 32_767
"""The longest string in bytes, compact or not, as in Kafka."""

ELEMENTS_MAX = 1_000_000
"""Largest total number of array elements and tagged fields in one message. An element of 3 bytes can become an object of 150 bytes. The
limit therefore bounds a decoded message to about 200 MB plus its frame. The largest sensible message has 100,000 partitions."""

INLINE_BYTES_MAX = 1024
"""Records up to this size (bytes) are copied into the surrounding chunk: a separate chunk costs about as much when it is sent."""


class Malformed(ValueError):
    """Bytes that violate the wire format; the codec adds the position and raises `Corrupt`."""


def read_varint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read an unsigned varint of several bytes; `first` is its first byte, `position` the position after that byte.

    Returns the value and the position after the varint.
    """
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
    """Skip a section of tagged fields; returns the position after it."""
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
    """Raise `Malformed`: a length is negative (null), exceeds the remaining bytes, or exceeds the limit for strings."""
    if length < 0:
        raise Malformed("null is not allowed here")
    if length > left:
        raise Malformed(f"{length} bytes announced, but only {left} left")
    raise Malformed(f"{length} bytes exceed the limit of {STRING_BYTES_MAX}")


def refuse_count(count: int, left: int, budget: int) -> None:
    """Raise `Malformed`: an array is null, or its elements exceed the remaining bytes or the element budget."""
    if count < 0:
        raise Malformed("null is not allowed here")
    if budget < 0 and count <= left:
        raise Malformed(f"{count} more elements exceed the limit of {ELEMENTS_MAX} per message")
    raise Malformed(f"{count} elements announced, but only {left} bytes left")


def refuse_tags(count: int) -> None:
    """Raise `Malformed`: the number of tagged fields exceeds the element budget."""
    raise Malformed(f"{count} tagged fields exceed the limit of {ELEMENTS_MAX} elements per message")


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def write_length(out: bytearray, length: int) -> None:
    """Append the compact length of an array or of bytes: the length plus one (0 is null)."""
    write_varint(out, length + 1)


def write_string_length(out: bytearray, length: int) -> None:
    """Append the length of a compact string of 127 bytes or more."""
    if length > STRING_BYTES_MAX:
        raise Malformed(f"a string of {length} bytes exceeds the limit of {STRING_BYTES_MAX}")
    write_varint(out, length + 1)


def write_records(out: bytearray, cuts: list[tuple[int, Buffer]], records: Records, is_compact: bool) -> None:
    """Append the length of `records` and their buffers: large buffers by reference as `cuts`, small buffers as copies."""
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
    """`out` with the buffer of every cut inserted at its position, as a list of buffers without copies."""
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
    """The `struct.Struct` method for an array; `codes` has {} in place of the count."""
    # Any: `pack` and `unpack_from` have different types.
    found: Callable[..., Any] = getattr(struct.Struct(">" + codes.format(count)), method)
    return found
