"""Which columns a reader of the log gets, in Arrow: those of Kafka's records, or those of the stream's table.

Rows come from two places, and look the same afterwards: from data files (`read_group`), and from record batches that were decoded as
compaction decodes them (`Columns.of`). A row's `_value` or `_key` among the table's columns is null where the table has none either: where
the typed columns give it back. Among Kafka's columns, both are always complete (I6).

Pure functions for a thread. Source: Spark, "Structured Streaming + Kafka Integration Guide" (names and types of Kafka's columns).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.errors import Conflict, Corrupt
from bearlake.objects import ByteRange
from bearlake.table import rows as table_rows
from bearlake.table.column_arrow import arrow_field, scatter
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_tree import Column
from bearlake.table.file_end import UNREADABLE
from bearlake.table.footer import Footer
from bearlake.table.schema import (
    ARROW_SCHEMA,
    BATCH,
    ERROR,
    HEADERS,
    KEY,
    KEY_SCHEMA_ID,
    OFFSET,
    PARTITION_ID,
    SCHEMA_ID,
    TIMESTAMP,
    VALUE,
)
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_rows import IS_ELIDED, IS_KEY_ELIDED, file_schema, restored
from bearlake.table.writer import Rows

ArrowSchema: TypeAlias = pa.Schema
"""Names and types of columns."""

_SOURCES: Final = {
    "key": KEY,
    "value": VALUE,
    "partition": PARTITION_ID,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": BATCH,
    "headers": HEADERS,
}
_TYPED_ONLY: Final = {SCHEMA_ID: pa.int32(), ERROR: pa.string(), KEY_SCHEMA_ID: pa.int32()}
"""Our columns that only tables with typed columns have."""
_ATTRIBUTES: Final = f"{BATCH}.attributes"
"""Where files have the type of timestamps: the only part of `_batch` that Kafka's columns need."""
_LEFT_OUT: Final = ((IS_ELIDED, VALUE), (IS_KEY_ELIDED, KEY))
"""Which column of rows in memory says where a file leaves out which of ours."""
_LOG_APPEND_TIME_SHIFT = 3
_MILLISECOND_US = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows of one partition: offsets `[start, end)`, and times in µs `[since, until)`; None: any."""

    partition: int
    start: int
    end: int
    since_us: int | None = None
    until_us: int | None = None


class Selected(NamedTuple):
    """Rows as Arrow record batches, and the offset after the last row within the offsets (whatever its time)."""

    batches: list[pa.RecordBatch]
    next_offset: int


def kafka_schema(*, has_headers: bool) -> ArrowSchema:
    """Return Kafka's columns."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", ARROW_SCHEMA.field(TIMESTAMP).type),
        pa.field("timestampType", pa.int32()),
    ]
    if has_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)


def time_schema() -> ArrowSchema:
    """Return those of Kafka's columns that `first_at` needs."""
    return pa.schema([field for field in kafka_schema(has_headers=False) if field.name in ("offset", "timestamp")])


def table_schema(book: ColumnBook | None) -> ArrowSchema:
    """Return the table's columns; `book`: the typed ones."""
    fields = list(ARROW_SCHEMA if book is None else file_schema(book))
    return pa.schema([pa.field(field.name, _variable(field.type)) for field in fields])


def _variable(found: pa.DataType) -> pa.DataType:
    """Return the type with bytes of any length in place of those of a fixed length, and without field ids."""
    if pa.types.is_fixed_size_binary(found):
        return pa.binary()
    if pa.types.is_struct(found):
        return pa.struct([pa.field(field.name, _variable(field.type)) for field in found])
    if pa.types.is_map(found):
        return pa.map_(_variable(found.key_type), _variable(found.item_type))
    if pa.types.is_list(found):
        return pa.list_(pa.field("element", _variable(found.value_type)))
    return found


class Columns:
    """The columns that a reader wants of one stream's rows."""

    def __init__(self, schema: ArrowSchema, topic: str, book: ColumnBook | None, *, is_typed: bool) -> None:
        """`schema`: names and types. `is_typed`: names are those of the table, whose typed columns are in the `book`; else Kafka's.

        Raises:
            Conflict: there is no such column.
        """
        self._schema = schema
        self._topic = topic
        self._is_typed = is_typed
        self._names = frozenset(schema.names)
        self._book = book
        parts = _parts(book)
        self._typed = [[column for column in part if is_typed and column.name in self._names] for part in parts]
        """The wanted typed columns of values, and of keys."""
        known = {*ARROW_SCHEMA.names, *_TYPED_ONLY, *(column.name for part in parts for column in part)}
        unknown = self._names - (known if is_typed else {*_SOURCES, "topic"})
        if unknown:
            raise Conflict(f"stream {topic} has no column {', '.join(sorted(unknown))}")

    def own_names(self, bounds: Bounds) -> frozenset[str]:
        """Return the names of our columns, or paths in them, that are needed for rows within the bounds."""
        if self._is_typed:
            wanted = self._names & {*ARROW_SCHEMA.names, *_TYPED_ONLY}
        else:
            wanted = frozenset(
                _ATTRIBUTES if source == BATCH else source for name, source in _SOURCES.items() if name in self._names
            )
        times = {TIMESTAMP} if bounds.since_us is not None or bounds.until_us is not None else set()
        return frozenset({*wanted, *times, *table_rows.KEY_COLUMNS})

    @property
    def completed(self) -> frozenset[str]:
        """Those of our columns that are needed complete, although data files may leave out some of their values."""
        return frozenset() if self._is_typed else self.own_names(Bounds(0, 0, 0)) & {VALUE, KEY}

    def typed_names(self, book: ColumnBook) -> frozenset[str]:
        """Return the names of the needed typed columns that rows with this book have."""
        return frozenset(column.name for part in self._present(book) for column in part)

    def _present(self, book: ColumnBook | None) -> list[list[Column]]:
        """Return the needed typed columns of values, and of keys, that rows with this book have."""
        sources = [{column.source for column in part} for part in self._typed]
        return [
            [column for column in part if column.source in found]
            for part, found in zip(_parts(book), sources, strict=True)
        ]

    def of(self, rows: Rows, bounds: Bounds, book: ColumnBook | None) -> Selected:
        """Return the rows within the bounds. `rows`: at least the needed columns, sorted by key. `book`: their typed columns.

        Raises:
            Conflict: a value does not fit the type that the schema gives its column.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        for flag, name in _LEFT_OUT:
            if flag in table.column_names and name in self._names:
                kept = pc.if_else(table[flag], None, table[name])
                table = table.set_column(table.column_names.index(name), ARROW_SCHEMA.field(name), kept)
        table, next_offset = _within(table, bounds)
        if not table.num_rows:
            return Selected([], next_offset)
        try:
            columns = self._typed_columns(table, book) if self._is_typed else self._kafka_columns(table)
            arrays = [
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(columns, self._schema, strict=True)
            ]
        except (pa.ArrowException, ValueError) as error:
            raise Conflict(f"stream {self._topic}: values do not fit the columns of the query: {error}") from error
        batches = pa.Table.from_arrays(arrays, schema=self._schema).combine_chunks().to_batches()
        return Selected(batches, next_offset)

    def _kafka_columns(self, table: pa.Table) -> list[Any]:
        return [self._kafka_column(table, name) for name in self._schema.names]

    def _kafka_column(self, table: pa.Table, name: str) -> Any:
        if name == "topic":
            return pa.repeat(pa.scalar(self._topic, pa.string()), table.num_rows)
        found = table[_SOURCES[name]]
        if name != "timestampType":
            return found
        attributes = pc.struct_field(found, [0 if len(found.type) == 1 else found.type.get_field_index("attributes")])
        return pc.bit_wise_and(pc.shift_right(attributes, _LOG_APPEND_TIME_SHIFT), 1)

    def _typed_columns(self, table: pa.Table, book: ColumnBook | None) -> list[Any]:
        typed: dict[str, Any] = {}
        for goals, fields in zip(self._typed, self._present(book), strict=True):
            typed |= _scattered(table, fields, goals)
        columns = []
        for name in self._schema.names:
            if name in typed:
                columns.append(typed[name])
            elif name in _TYPED_ONLY and name not in table.column_names:
                columns.append(pa.nulls(table.num_rows, _TYPED_ONLY[name]))
            else:
                columns.append(table[name])
        return columns


def _parts(book: ColumnBook | None) -> list[Sequence[Column]]:
    """Return the typed columns of values, and of keys."""
    if book is None:
        return [(), ()]
    return [book.columns, () if book.key is None else book.key.columns]


def _scattered(table: pa.Table, fields: Sequence[Column], goals: Sequence[Column]) -> dict[str, Any]:
    """Return the typed columns `goals` by name, from those that the rows have: null where there is none for them."""
    if not fields:
        return {column.name: pa.nulls(table.num_rows, arrow_field(column).type) for column in goals}
    arrays = [
        pa.concat_arrays([*table[column.name].chunks, pa.array([], table[column.name].type)]) for column in fields
    ]  # without the offset of a slice
    struct = pa.StructArray.from_arrays(arrays, fields=[arrow_field(column) for column in fields])
    return dict(zip((column.name for column in goals), scatter(struct, fields, goals), strict=True))


def ranges_of(footer: Footer, group: int, columns: Columns, bounds: Bounds) -> list[ByteRange]:
    """Return the byte ranges that `read_group` needs."""
    if _is_restored(footer, group, columns):
        found = footer.groups[group]
        return [ByteRange(found.start, found.end)]
    return footer.ranges_of(group, _names(footer, columns, bounds))


def read_group(file: SparseFile, footer: Footer, group: int, columns: Columns, bounds: Bounds) -> Selected:
    """Return the rows of a row group within the bounds; `file` has the bytes of `ranges_of`.

    Raises:
        Corrupt: the rows cannot be decoded, or do not have our format.
        Conflict: as `Columns.of`.
    """
    typed = footer.typed
    book = None if typed is None else typed.columns.book
    try:
        if typed is not None and _is_restored(footer, group, columns):
            names = file_schema(typed.columns.book).names
            rows = restored(table_rows.read_columns(file, footer, group, names), typed, group)
            flags = [flag for flag, _ in _LEFT_OUT if flag in rows.column_names]
            return columns.of(rows.drop_columns(flags), bounds, book)
        rows = table_rows.read_columns(file, footer, group, sorted(_names(footer, columns, bounds)))
        return columns.of(rows, bounds, book)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def first_at(batches: Sequence[pa.RecordBatch], timestamp_ms: int) -> int | None:
    """Return the `offset` of the first row whose `timestamp` is at or after `timestamp_ms`; None: there is none."""
    for batch in batches:
        times = batch.column("timestamp").cast(pa.int64())
        place = pc.index(pc.greater_equal(times, timestamp_ms * _MILLISECOND_US), True).as_py()
        if place >= 0:
            return int(batch.column("offset")[place].as_py())
    return None


def _is_restored(footer: Footer, group: int, columns: Columns) -> bool:
    typed, completed = footer.typed, columns.completed
    if typed is None:
        return False
    return (VALUE in completed and not typed.has_values(group)) or (KEY in completed and not typed.has_keys(group))


def _names(footer: Footer, columns: Columns, bounds: Bounds) -> Collection[str]:
    typed = footer.typed
    own = columns.own_names(bounds)
    if typed is None:
        return own - _TYPED_ONLY.keys()
    if typed.columns.book.key is None:
        own -= {KEY_SCHEMA_ID}
    return own | columns.typed_names(typed.columns.book)


def _within(table: pa.Table, bounds: Bounds) -> tuple[pa.Table, int]:
    keys = table_rows.Keys(table)
    start, end = keys.find((bounds.partition, bounds.start)), keys.find((bounds.partition, bounds.end))
    next_offset = keys.key(end - 1)[1] + 1 if start < end else bounds.start
    table = table.slice(start, end - start)
    masks = list(_masks(table, bounds))
    return (table.filter(masks[0] if len(masks) == 1 else pc.and_(*masks)) if masks else table), next_offset


def _masks(table: pa.Table, bounds: Bounds) -> Iterator[Any]:
    times = table[TIMESTAMP].cast(pa.int64()) if TIMESTAMP in table.column_names else None
    if bounds.since_us is not None:
        yield pc.greater_equal(times, bounds.since_us)
    if bounds.until_us is not None:
        yield pc.less(times, bounds.until_us)
