"""A file with only some ranges in memory: presents the ranges read from an object to Parquet's reader."""

from bisect import bisect_right
from collections.abc import Sequence

from bearlake.objects import ByteRange


class SparseFile:
    """A read-only file of `size` bytes. Reading a range that is not loaded raises `OSError`.

    The loaded ranges do not overlap. There may be as many as columns, so they are found in logarithmic time.
    """

    closed = False

    def __init__(self, size: int, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        self._size = size
        self._parts = sorted(zip(ranges, parts, strict=True), key=lambda part: part[0])
        self._starts = [loaded.start for loaded, _ in self._parts]
        self._position = 0

    def read(self, count: int = -1) -> memoryview:
        """Return the next `count` bytes (-1: to the end), without a copy."""
        start = self._position
        end = self._size if count < 0 else min(self._size, start + count)
        found = self.loaded(ByteRange(start, end))
        if found is None:
            raise OSError(f"bytes [{start}, {end}) were not loaded")
        self._position = end
        return found

    def loaded(self, requested: ByteRange) -> memoryview | None:
        """Return the bytes of a range; None if not all of them are loaded."""
        at = bisect_right(self._starts, requested.start) - 1
        if at < 0 or requested.end > self._parts[at][0].end:
            return None
        loaded, part = self._parts[at]
        return part[requested.start - loaded.start : requested.end - loaded.start]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position, as `io.IOBase.seek` does."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def close(self) -> None:
        """Do nothing; there is nothing to close."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True
