"""Writes rows that arrive in order of key into data files of about the target size: the common part of merging and cleaning."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import bearlake.table.rows as table_rows
from bearlake.compaction.model import WorkItem, WrittenFile
from bearlake.compaction.output import Output, Upload
from bearlake.compaction.row_passes import Pieces
from bearlake.metadata.model import Slice
from bearlake.table.rows import Key, Keys
from bearlake.table.writer import Rows


class Rewriting(ABC):
    """Writes the rows of successive passes into files. Subclasses build the segments."""

    def __init__(self, item: WorkItem, output: Output) -> None:
        self._item = item
        self._output = output
        self._carried: list[Rows] = []
        self.files: list[WrittenFile] = []
        """The finished files."""
        self.record_bytes = 0
        """Uncompressed bytes of the rows written."""

    def feed(self, pieces: Pieces) -> Iterator[Upload]:
        """Add rows whose keys are after all rows fed before."""
        if not pieces:
            return
        rows = table_rows.in_order(pieces)
        self.record_bytes += rows.nbytes
        columns, bytes_max = self._output.columns, self._item.row_group_bytes
        row_bytes = table_rows.ROW_BYTES + (0 if columns is None else columns.row_bytes(bytes_max))
        *full, rest = table_rows.groups([*self._carried, rows], bytes_max, row_bytes)
        for group in full:
            yield from self._write(group)
        self._carried = [table_rows.compact(rest)]

    def finish(self) -> Iterator[Upload]:
        """Yield the remaining objects."""
        for group in self._carried:
            yield from self._write(group)
        if self._output.row_count:
            yield self._finish_file(None)

    @abstractmethod
    def _add_group(self, rows: Rows, keys: Keys, position: int) -> None:
        """Note a row group before it is written; its first row has index `position` in the open file."""

    @abstractmethod
    def _end_file(self, next_key: Key | None) -> tuple[Sequence[Slice], Mapping[str, str] | None]:
        """Return the segments of the open file and the metadata for its footer. `next_key`: of the next row to write, or None."""

    def _write(self, group: Rows) -> Iterator[Upload]:
        rows = table_rows.compact(group)
        keys = Keys(rows)
        if self._output.size_bytes >= self._item.file_bytes_max:
            yield self._finish_file(keys.key(0))
        self._add_group(rows, keys, self._output.row_count)
        self._output.write(rows)

    def _finish_file(self, next_key: Key | None) -> Upload:
        written, upload = self._output.finish(*self._end_file(next_key))
        self.files.append(written)
        return upload
