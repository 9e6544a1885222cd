"""What reading one data file may cost, whatever the file says: steps of loops over its counts, and bytes that its pages become.

A few bytes of a file can stand for millions of runs, lengths or pages, and for any number of bytes in memory that are decoded one after the
other. So all row groups of a file share one budget, whichever bytes their columns share. It has room for any small file that an engine
writes, and grows with the file. Without steps, costs are estimated on the safe side; without bytes, the file is refused.
"""

from typing import Final

from bearlake.errors import Invalid

GIB: Final = 1024 * 1024 * 1024

_STEPS: Final = 4_000_000
"""Steps of any file. A step is a run, a length or a text, and takes about 0.3 µs of CPU time."""
_BYTES: Final = 4 * GIB
"""Decoded bytes of any file; a core decodes about 1 GiB per second."""
_RATIO: Final = 1_000
"""Decoded bytes for each byte of the file: engines write row groups of some gigabytes at most, into tens of megabytes at least."""
_STEP_RATIO: Final = 2
"""Steps for each byte of the file, which may be read twice."""
_BYTES_PER_STEP: Final = 256
"""Bytes that are decompressed in the time of a step."""


class FileBudget:
    """The budget of one file. For one thread at a time."""

    def __init__(self, file_bytes: int) -> None:
        self._steps = _STEPS + _STEP_RATIO * file_bytes
        self._bytes = _BYTES + _RATIO * file_bytes
        self._spent = 0

    def steps(self, count: int) -> bool:
        """Take steps, and return whether there are so many."""
        if count > self._steps:
            return False
        self._steps -= count
        return True

    def decompression(self, byte_count: int) -> bool:
        """Take the steps of a decompression, and return whether there are so many."""
        return self.steps(1 + byte_count // _BYTES_PER_STEP)

    def decoded(self, byte_count: int, group: int) -> None:
        """So many bytes are decoded for a row group. Raises `Invalid`: no engine's files become so many."""
        self._spent += byte_count
        if self._spent > self._bytes:
            raise Invalid(
                f"data file, row group {group}: its pages become {self._spent} bytes of memory, one after the other; "
                f"{self._bytes} bytes are the most for a file of its size"
            )
