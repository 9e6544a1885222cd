"""A file of which only some ranges are in memory: what was read of an object, as Parquet's reader wants to see it."""

from collections.abc import Sequence

from bearlake.objects import ByteRange


class SparseFile:
    """A read-only file of `size` bytes. Reads of a range that was not loaded raise `OSError`."""

    closed = False

    def __init__(self, size: int, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        self._size = size
        self._parts = list(zip(ranges, parts, strict=True))
        self._position = 0

    def read(self, count: int = -1) -> memoryview:
        """The next `count` bytes (-1: to the end), without a copy."""
        start = self._position
        end = self._size if count < 0 else min(self._size, start + count)
        for loaded, part in self._parts:
            if loaded.start <= start and end <= loaded.end:
                self._position = end
                return part[start - loaded.start : end - loaded.start]
        raise OSError(f"bytes [{start}, {end}) were not loaded")

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position, as `io.IOBase.seek`."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def close(self) -> None:
        """Nothing to close."""

    def readable(self) -> bool:
        """Yes."""
        return True

    def writable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """Yes."""
        return True
