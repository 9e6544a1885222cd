"""What the footers of files say that another engine adds to a stream's table: row counts, partitions and offsets.

A manifest is a claim of the engine that committed it, and a footer is written with the rows. So a commit is refused if the two differ. Both
come from the engine: whoever writes false statistics into a footer passes. Rows are not read.

Blocks, and bounds what it reads in count and bytes. Source: Apache Parquet format, "File Format"; Iceberg table spec, "Parquet";
decision 222.
"""

import asyncio
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, FileFormat

from bearlake.errors import Corrupt, NotFound
from bearlake.objects import ByteRange
from bearlake.table import schema
from bearlake.table.file_end import UNREADABLE, read_foreign
from bearlake.table.io import StoreBridge
from bearlake.table.warehouse.model import forbidden
from bearlake.table.warehouse.settings import WarehouseSettings

FIRST_BYTES: Final = 64 * 1024
"""First read from the end of a file; a longer footer costs a second one."""
_BATCH_COUNT: Final = 8
_END: Final = Struct("<I4s")
"""The last bytes of a Parquet file: the footer's length and the magic."""
_MAGIC: Final = b"PAR1"
_TYPES: Final = {schema.PARTITION_ID: "INT32", schema.OFFSET: "INT64"}


class Contents(NamedTuple):
    """Rows of a file, and inclusive bounds of its partitions and offsets. A file without rows, and one of deletes, has no bounds."""

    row_count: int
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None


class Footers:
    """Reads the footers of one commit's files; each file once."""

    def __init__(self, bridge: StoreBridge, settings: WarehouseSettings) -> None:
        self._bridge = bridge
        self._settings = settings
        self._seen: set[str] = set()
        self._footer_bytes = 0

    def read(self, files: Sequence[DataFile]) -> Iterable[tuple[DataFile, Contents]]:
        """Yield what the files contain, without those that this object has read before; deletes have no bounds.

        Raises:
            Refused: too many files, or bytes of footers; a file that is absent, no Parquet file, or of another size; one whose footer is
                too large or damaged.
            Unavailable: the object store did not answer in time.
        """
        new = [file for file in files if file.file_path not in self._seen]
        self._seen.update(file.file_path for file in new)
        if len(self._seen) > self._settings.file_count_max:
            raise forbidden(
                f"the commit adds more than {self._settings.file_count_max} files (catalog.warehouse.file_count_max)"
            )
        for at in range(0, len(new), _BATCH_COUNT):
            group = new[at : at + _BATCH_COUNT]
            tails = self._bridge.call(lambda group=group: self._tails(group))  # type: ignore[misc]
            for file, tail in zip(group, tails, strict=True):
                yield file, _parse(file, tail)

    async def _tails(self, files: Sequence[DataFile]) -> Sequence[memoryview]:
        try:
            async with asyncio.TaskGroup() as tasks:
                reads = [tasks.create_task(self._tail(file)) for file in files]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [read.result() for read in reads]

    async def _tail(self, file: DataFile) -> memoryview:
        """Return the last bytes of the file, with the whole footer."""
        path, size, store = file.file_path, file.file_size_in_bytes, self._bridge.store
        if file.file_format != FileFormat.PARQUET:
            raise forbidden(f"the file {path} must be a Parquet file")
        key = self._bridge.locations.key(path)
        try:
            found = await store.size(key)
            if found != size or size < _END.size + len(_MAGIC):
                raise forbidden(f"the file {path} has {found} bytes, and the commit says {size}")
            start = max(0, size - FIRST_BYTES)
            (tail,) = await store.read(key, [ByteRange(start, size)])
            length, magic = _END.unpack(tail[-_END.size :])
            if magic != _MAGIC or length > size - _END.size - len(_MAGIC):
                raise forbidden(f"the file {path} does not end like a Parquet file")
            if length > self._settings.footer_bytes_max:
                raise forbidden(f"the footer of {path} has {length} bytes (catalog.warehouse.footer_bytes_max)")
            self._footer_bytes += length
            if self._footer_bytes > self._settings.footers_bytes_max:
                raise forbidden(
                    f"the footers of the commit's files have more than {self._settings.footers_bytes_max} bytes"
                    " (catalog.warehouse.footers_bytes_max)"
                )
            if length + _END.size > size - start:
                (tail,) = await store.read(key, [ByteRange(size - length - _END.size, size)])
        except NotFound as error:
            raise forbidden(f"the file {path} does not exist") from error
        return tail


def _parse(file: DataFile, tail: memoryview) -> Contents:
    try:
        metadata = read_foreign(tail)
        fields = metadata.schema.to_arrow_schema()
        if not metadata.num_rows or file.content != file.content.DATA:
            return Contents(metadata.num_rows, None, None)
        _check_fields(file, fields)
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        bounds = {name: [_bounds(file, group, name) for group in groups if group.num_rows] for name in _TYPES}
    except (*UNREADABLE, Corrupt) as error:
        raise forbidden(f"the footer of {file.file_path} cannot be read") from error
    partitions, offsets = (
        (min(low for low, _ in found), max(high for _, high in found)) if found else None
        for found in (bounds[schema.PARTITION_ID], bounds[schema.OFFSET])
    )
    return Contents(metadata.num_rows, partitions, offsets)


def _check_fields(file: DataFile, fields: pa.Schema) -> None:
    """Engines find columns by field id: require ours at the names that we look at, and nowhere else."""
    for name in _TYPES:
        number = str(schema.FIELD_IDS[name]).encode()
        if [field.name for field in fields if (field.metadata or {}).get(schema.METADATA_KEY) == number] != [name]:
            raise forbidden(f"the file {file.file_path} must have {name} as the column with field id {number.decode()}")


def _bounds(file: DataFile, group: pq.RowGroupMetaData, name: str) -> tuple[int, int]:
    columns = [group.column(at) for at in range(group.num_columns)]
    found = [column for column in columns if column.path_in_schema == name]
    if len(found) != 1 or found[0].physical_type != _TYPES[name]:
        raise forbidden(f"the file {file.file_path} must have one column {name} of type {_TYPES[name]}")
    statistics = found[0].statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        raise forbidden(f"the footer of {file.file_path} must have statistics of {name}, without nulls")
    return int(statistics.min_raw), int(statistics.max_raw)
