"""The data files of one attempt at a work item, one after the other, under keys that no other attempt uses; and how they are put."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from bearlake.compaction.model import WrittenFile
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.compaction import SwapObject
from bearlake.metadata.model import ObjectKind, ObjectRef, Slice
from bearlake.objects import Buffer, ObjectStore
from bearlake.table.writer import DataFileWriter, Rows

_ATTEMPT_BITS = 32


class Upload(NamedTuple):
    """An object that is complete and waits to be put."""

    key: str
    parts: Sequence[Buffer]


async def put_all(steps: Iterator[Upload], store: ObjectStore, workbench: Workbench) -> None:
    """Compute; put each object that comes out before the next step, so that one at a time is in memory."""
    while (upload := await workbench.compute(partial(next, steps, None))) is not None:
        await store.put(*upload)


class Output:
    """Opens a data file with the first rows, and another one after `finish`."""

    def __init__(self, prefix: str, random_bits: Callable[[int], int]) -> None:
        """`prefix` is the item's `output_prefix`; `random_bits(n)` returns n random bits."""
        self._prefix = f"{prefix}-{random_bits(_ATTEMPT_BITS):08x}"
        self._number = 0
        self._writer: DataFileWriter | None = None

    @property
    def row_count(self) -> int:
        """Rows in the file that is open; 0 when none is."""
        return 0 if self._writer is None else self._writer.row_count

    @property
    def size_bytes(self) -> int:
        """Bytes of the file that is open so far; 0 when none is."""
        return 0 if self._writer is None else self._writer.size_bytes

    def write(self, rows: Rows) -> None:
        """Add a row group, see `DataFileWriter.write`."""
        if self._writer is None:
            self._writer = DataFileWriter(f"{self._prefix}{self._number:04x}.parquet")
            self._number += 1
        self._writer.write(rows)

    def finish(self, segments: Sequence[Slice]) -> tuple[WrittenFile, Upload]:
        """End the file that is open; `segments` are what the index shall name of it."""
        assert self._writer is not None
        writer, self._writer = self._writer, None
        finished = writer.finish()
        file = finished.file
        swap = SwapObject(object=ObjectRef(file.key, file.size, ObjectKind.PARQUET), slices=segments)
        return WrittenFile(file=file, swap=swap), Upload(file.key, finished.parts)
