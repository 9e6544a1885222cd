"""Writes the data files of a current table: rows of one bucket → a Parquet file and its manifest entry.

The encodings are those of the stream's table (`writer.py`), without its row groups' order: rows have none. Texts and keys may repeat, so
typed texts have dictionaries. A file may have no rows, if it only remembers deleted keys.
"""

from collections.abc import Mapping

import pyarrow as pa

from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_rows import current_schema
from bearlake.table.schema import OFFSET, PARTITION_ID, TIMESTAMP
from bearlake.table.writer import FinishedFile, OutputFile


class CurrentFileWriter:
    """Writes one data file."""

    def __init__(self, key: str, columns: CurrentColumns) -> None:
        """`key`: under which the file will be stored."""
        schema = current_schema(columns)
        self._file = OutputFile(key, schema, dictionaries=[PARTITION_ID], deltas=[OFFSET, TIMESTAMP])

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, without the footer."""
        return self._file.size_bytes

    def write(self, rows: pa.Table) -> None:
        """Write one row group of at least one row."""
        self._file.write(rows)

    def finish(self, metadata: Mapping[str, str]) -> FinishedFile:
        """Write the footer, with `metadata` as key-value metadata. The writer cannot be used afterwards."""
        return self._file.finish(metadata)
