"""Reads Thrift's compact protocol, in which Parquet's footers and page headers are written.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from collections.abc import Iterator
from typing import Final

STOP: Final = 0
TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
INT32: Final = 5
INT64: Final = 6
INTEGERS: Final = frozenset({4, INT32, INT64})
"""Types of integers of 16, 32 and 64 bits."""
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
_SET: Final = 10
STRUCT: Final = 12

_DOUBLE_BYTES = 8
_DEPTH_MAX = 16
_LONG_LIST = 15
_ELEMENT_BYTES: Final = {STRUCT: 160, BINARY: 40, _SET: 40, LIST: 40}
"""Memory (bytes) of a list's element in a library that parses it, besides its text, by type. Of numbers, 8."""
_VARINT_BYTES_MAX = 10


class Malformed(Exception):
    """The bytes are not a struct of the compact protocol, or are of a type that Parquet does not have."""


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at`, and the position behind it. Raises `Malformed`, or `IndexError` at the end of the data."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed("a number has more than 64 bits")


def zigzag(data: memoryview, at: int) -> tuple[int, int]:
    """Return the signed number at `at`, and the position behind it. Raises as `varint`."""
    value, at = varint(data, at)
    return value >> 1 ^ -(value & 1), at


class Cursor:
    """A position in the data. Every method moves behind what it reads, and raises `Malformed` or `IndexError`."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0
        self.memory_bytes = 2 * len(data)
        """About the memory that what was read so far takes in a library that parses it: an element of a list can be one byte."""

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of the fields of a struct. The caller reads or skips each value before it asks for the next field."""
        number = 0
        while (head := self._byte()) != STOP:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            yield number, head & 0x0F

    def integer(self, kind: int) -> int:
        """Read an integer of 32 bits. Raises `Malformed` also if the type is another one."""
        if kind != INT32:
            raise Malformed(f"a number has the type {kind}")
        return self._zigzag()

    def size_of_binary(self, kind: int) -> int:
        """Skip a binary, and return its length. Raises `Malformed` also if the type is another one."""
        if kind != BINARY:
            raise Malformed(f"a binary has the type {kind}")
        size = self._varint()
        self._skip_bytes(size)
        return size

    def structs(self, kind: int) -> Iterator[None]:
        """Yield once per struct of a list; the caller reads it before it asks for the next one."""
        element, count = self._list(kind)
        if element != STRUCT and count:
            raise Malformed(f"a list of structs has elements of the type {element}")
        for _ in range(count):
            yield

    def integers(self, kind: int) -> Iterator[int]:
        """Yield the integers of 32 bits of a list; the caller takes all."""
        element, count = self._list(kind)
        return (self.integer(element) for _ in range(count))

    def count_of_list(self, kind: int) -> int:
        """Skip a list of numbers of 64 bits, and return its length."""
        element, count = self._list(kind)
        if element != INT64 and count:
            raise Malformed(f"a list of numbers has elements of the type {element}")
        for _ in range(count):
            self._varint()
        return count

    def must_be_struct(self, kind: int) -> None:
        """Raise `Malformed` if the type is another one."""
        if kind != STRUCT:
            raise Malformed(f"a struct has the type {kind}")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value of a field."""
        if depth > _DEPTH_MAX:
            raise Malformed("structs are nested too deeply")
        if kind in INTEGERS:
            self._varint()
        elif kind == BINARY:
            self._skip_bytes(self._varint())
        elif kind == BYTE:
            self._skip_bytes(1)
        elif kind == DOUBLE:
            self._skip_bytes(_DOUBLE_BYTES)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, _SET):
            element, count = self._list(LIST)
            for _ in range(count):
                self.skip(BYTE if element in (TRUE, FALSE) else element, depth + 1)
        elif kind not in (TRUE, FALSE):
            raise Malformed(f"there is no type {kind}")

    def _list(self, kind: int) -> tuple[int, int]:
        """Return the type of a list's elements, and how many there are."""
        if kind != LIST:
            raise Malformed(f"a list has the type {kind}")
        head = self._byte()
        count = head >> 4
        if count == _LONG_LIST:
            count = self._varint()
        if count > len(self._data) - self._at:  # an element has at least a byte
            raise Malformed("a list is longer than the data")
        self.memory_bytes += count * _ELEMENT_BYTES.get(head & 0x0F, 8)
        return head & 0x0F, count

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value, self._at = varint(self._data, self._at)
        return value

    def _zigzag(self) -> int:
        value, self._at = zigzag(self._data, self._at)
        return value

    def _skip_bytes(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise Malformed("a value is longer than the data")
