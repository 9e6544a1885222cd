"""Values in odd forms, of several writers in one file, hundreds in a row group: consumers get the same bytes, and `_error` is right.

The bytes are those of `avro_odd.py`; whether they are a value at all is decided by a reader that shares no code with the kernel.
"""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import read_rows
from bearlake.table.sparse import SparseFile
from bearlake.table.value_codecs import SchemaUnusable
from bearlake.table.value_plan import FileColumns, WriterSchema
from bearlake.table.writer import DataFileWriter
from fixtures.avro_odd import OddAvro, StrictReader
from fixtures.typed_values import ValueFile, book_of, framed, plan_of, served, writer_schema

ROW_COUNT = 200
SEEDS = range(24)
NEWER = {
    "type": "record",
    "name": "Newer",
    "fields": [{"name": "f0", "type": "double"}, {"name": "f1", "type": "long"}],
}


class World:
    """Some schemas, and values of them."""

    def __init__(self, seed: int, *, spoils: float) -> None:
        self._random = Random(seed)
        self._made = OddAvro(self._random)
        self._spoils = spoils
        self.records = {id_: self._schema() for id_ in range(1, 4)}
        self.schemas: dict[int, WriterSchema] = {id_: writer_schema(found) for id_, found in self.records.items()}

    def _schema(self) -> Any:
        while True:
            found = self._made.record()
            try:
                plan_of({1: writer_schema(found)})
            except SchemaUnusable:
                continue
            return found

    def value(self) -> bytes | None:
        """A value, a tombstone, or bytes of no schema."""
        if self._random.random() < 0.05:
            return self._random.choice((None, b"", b"\0\0\0", framed(9, b"\2")))
        id_ = self._random.choice(list(self.records))
        octets = self._made.value(self.records[id_])
        return framed(id_, self._made.spoiled(octets) if self._random.random() < self._spoils else octets)

    def group(self) -> list[list[bytes | None]]:
        """The values of a row group, in batches."""
        values = [self.value() for _ in range(ROW_COUNT)]
        return [values[:70], values[70:71], values[71:]]

    def is_legal(self, value: bytes) -> bool:
        """Whether the value is one of the schema that it names."""
        id_ = value[4] if len(value) >= 5 and value[:4] == bytes(4) else 0
        return id_ in self.records and StrictReader(value[5:]).is_legal(self.records[id_])


async def merged(file: ValueFile, old: FileColumns, new: FileColumns) -> tuple[MemoryObjectStore, ObjectRef]:
    """The file as a merge writes it whose columns are those of a later schema, too."""
    store = MemoryObjectStore()
    ref = await file.put(store)
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(ref)
    whole = ByteRange(0, ref.size)
    sparse = SparseFile(ref.size, [whole], await store.read(ref.key, [whole]))
    writer = DataFileWriter("merged", new)
    for group in range(len(footer.groups)):
        writer.write(read_rows(sparse, footer, group, new))
    finished = writer.finish()
    await store.put(finished.file.key, finished.parts)
    return store, ObjectRef(finished.file.key, finished.file.size, ObjectKind.PARQUET)


@pytest.mark.parametrize("spoils", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
async def test_odd_values_are_served_as_they_were_produced_and_have_the_right_errors(seed: int, spoils: float) -> None:
    world = World(seed, spoils=spoils)
    plan = plan_of(world.schemas)
    groups = [world.group(), world.group()]
    values = [value for group in groups for batch in group for value in batch]

    file = ValueFile(plan, groups)

    store = MemoryObjectStore()
    expected = b"".join(file.batches)
    assert await served(store, await file.put(store)) == expected
    rows = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)), columns=["_value", "_schema_id", "_error"])
    for value, row in zip(values, rows.to_pylist(), strict=True):
        has_columns = row["_schema_id"] is not None and row["_error"] is None
        assert has_columns == (value is not None and world.is_legal(value)), (value, row)
        assert row["_value"] == value or (row["_value"] is None and has_columns)
    later = world.schemas | {4: writer_schema(NEWER)}
    store, ref = await merged(file, plan.columns, FileColumns(book=book_of(later), schemas=world.schemas))
    assert await served(store, ref) == expected


def test_the_reader_and_the_values_are_what_they_say() -> None:
    """About half of the values are legal, and a good part of them is left out."""
    world = World(3, spoils=0.3)
    groups = [world.group() for _ in range(3)]
    values = [value for group in groups for batch in group for value in batch]

    file = ValueFile(plan_of(world.schemas), groups)

    legal = sum(value is not None and world.is_legal(value) for value in values)
    rows = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)), columns=["_value", "_schema_id"]).to_pylist()
    elided = sum(row["_value"] is None and row["_schema_id"] is not None for row in rows)
    assert len(values) / 5 < legal < len(values)
    assert 0 < elided < legal
    assert json.dumps(world.records)
