"""Writes the data files of a current table: rows of one bucket → a Parquet file and its manifest entry.

The encodings are those of the stream's table (`writer.py`), without its row groups' order: rows have none. Texts and keys may repeat, so
typed texts have dictionaries. A file may have no rows, if it only remembers deleted keys.
"""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_rows import current_schema
from bearlake.table.leaves import delta_paths, dictionary_paths
from bearlake.table.schema import BOUNDED_COLUMNS, OFFSET, PARTITION_ID, TIMESTAMP
from bearlake.table.writer import COMPRESSION_LEVEL, FinishedFile, Parts, data_file


class CurrentFileWriter:
    """Writes one data file."""

    def __init__(self, key: str, columns: CurrentColumns) -> None:
        """`key`: under which the file will be stored."""
        self._key = key
        self._schema = current_schema(columns)
        self._sink = Parts()
        self._output = pa.PythonFile(self._sink, mode="w")
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._output,
            self._schema,
            version="2.6",
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[PARTITION_ID, *dictionary_paths(self._schema)],
            column_encoding=dict.fromkeys([OFFSET, TIMESTAMP, *delta_paths(self._schema)], "DELTA_BINARY_PACKED"),
            write_statistics=list(BOUNDED_COLUMNS),
            store_schema=False,
            metadata_collector=self._footers,
        )
        self.row_count = 0
        """Rows written so far."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, without the footer."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """Write one row group of at least one row."""
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.row_count += rows.num_rows

    def finish(self, metadata: Mapping[str, str]) -> FinishedFile:
        """Write the footer, with `metadata` as key-value metadata. The writer cannot be used afterwards."""
        if metadata:
            self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()
        self._output.close()
        (footer,) = self._footers
        file = data_file(self._key, self._sink.size, footer, self._schema)
        return FinishedFile(parts=self._sink.parts, file=replace(file, row_count=self.row_count))
