"""Writes the data files of one attempt at a work item, one at a time, under keys that no other attempt uses; stores them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bearlake.compaction.model import WrittenFile
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.compaction import SwapObject
from bearlake.metadata.model import ObjectKind, ObjectRef, Slice
from bearlake.objects import Buffer, ObjectStore
from bearlake.table.value_plan import FileColumns
from bearlake.table.writer import DataFileWriter, Rows

_ATTEMPT_BITS = 32


class Upload(NamedTuple):
    """A complete object, ready to be stored."""

    key: str
    parts: Sequence[Buffer]


async def put_all(steps: Iterator[Upload], store: ObjectStore, workbench: Workbench) -> None:
    """Compute; store each object before the next step, so that only one is in memory."""
    while (upload := await workbench.compute(partial(next, steps, None))) is not None:
        await store.put(*upload)


class Output:
    """Opens a data file for the first rows, and another file after each `finish`."""

    def __init__(self, prefix: str, random_bits: Callable[[int], int], columns: FileColumns | None = None) -> None:
        """`prefix` is the item's `output_prefix`; `random_bits(n)` returns n random bits; `columns`: the typed columns, if any."""
        self._columns = columns
        self._prefix = f"{prefix}-{random_bits(_ATTEMPT_BITS):08x}"
        self._number = 0
        self._writer: DataFileWriter | None = None

    @property
    def row_count(self) -> int:
        """Rows in the open file; 0 if none is open."""
        return 0 if self._writer is None else self._writer.row_count

    @property
    def size_bytes(self) -> int:
        """Bytes written to the open file so far; 0 if none is open."""
        return 0 if self._writer is None else self._writer.size_bytes

    def write(self, rows: Rows) -> None:
        """Add a row group; see `DataFileWriter.write`."""
        if self._writer is None:
            self._writer = DataFileWriter(f"{self._prefix}{self._number:04x}.parquet", self._columns)
            self._number += 1
        self._writer.write(rows)

    def finish(
        self, segments: Sequence[Slice], metadata: Mapping[str, str] | None = None
    ) -> tuple[WrittenFile, Upload]:
        """Finish the open file; the index will name `segments` of it. `metadata` goes into its footer."""
        assert self._writer is not None
        writer, self._writer = self._writer, None
        finished = writer.finish(metadata)
        file = finished.file
        swap = SwapObject(object=ObjectRef(file.key, file.size, ObjectKind.PARQUET), slices=segments)
        return WrittenFile(file=file, swap=swap), Upload(file.key, finished.parts)
