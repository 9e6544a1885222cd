"""Packed rows of integers: what a commit hands on about its batches without a Python object for each of them.

    byte   0                 8                         8 * width * rows
           +-----------------+---------- … ------------+
           | row 0, field 0  | row 0, field 1 …        |     fields: signed 64-bit integers, little-endian
           +-----------------+---------- … ------------+

`Rows` is a sequence of tuples, so that code on slow paths need not know of the packing. A tuple is made each time a row is read. C code
reads and writes the bytes.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct, pack
from typing import Any, ClassVar, Self, TypeVar, overload

from typing_extensions import override

from bearlake.kernel.log import BatchCommit

Row_co = TypeVar("Row_co", bound=tuple[int, ...], covariant=True)


class Rows(Sequence[Row_co]):
    """An immutable sequence of rows. It equals every other sequence of the same rows.

    A subclass names its rows: `width`, the number of fields, and `make`.
    """

    __slots__ = ("packed",)
    __hash__ = None  # type: ignore[assignment]  # it equals lists

    width: ClassVar[int]
    make: ClassVar["staticmethod[[tuple[int, ...]], Any]"]
    """Returns a row as the tuple that it is read as."""
    _struct: ClassVar[Struct]

    def __init_subclass__(cls, *, width: int) -> None:
        super().__init_subclass__()
        cls.width = width
        cls._struct = Struct(f"<{width}q")

    def __init__(self, packed: bytes = b"", /) -> None:
        """Raises `ValueError` for bytes that are not whole rows."""
        if len(packed) % self._struct.size:
            raise ValueError(f"{len(packed)} bytes are not whole rows of {self.width} fields")
        self.packed = packed

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Self:
        """Return the rows in packed form; rows that are packed already are returned as they are. Fields must be 64-bit integers."""
        if isinstance(rows, cls):
            return rows
        flat = [field for row in rows for field in row]
        if len(flat) != len(rows) * cls.width:
            raise ValueError(f"a row has {cls.width} fields")
        return cls(pack(f"<{len(flat)}q", *flat))

    def __len__(self) -> int:
        return len(self.packed) // self._struct.size

    @overload
    def __getitem__(self, at: int) -> Row_co: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row_co]: ...

    @override
    def __getitem__(self, at: int | slice) -> Row_co | list[Row_co]:
        if isinstance(at, slice):
            return [self[index] for index in range(len(self))[at]]
        row: Row_co = self.make(self._struct.unpack_from(self.packed, range(len(self))[at] * self._struct.size))
        return row

    @override
    def __iter__(self) -> Iterator[Row_co]:
        return map(self.make, self._struct.iter_unpack(self.packed))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self.packed == other.packed
        if isinstance(other, Sequence):
            return list(self) == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class CommitRows(Rows[BatchCommit], width=len(BatchCommit._fields)):
    """Batches to commit."""

    __slots__ = ()
    make = staticmethod(partial(tuple.__new__, BatchCommit))
