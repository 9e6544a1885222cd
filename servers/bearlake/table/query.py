"""SQL over the tables of streams: the engine behind `bearlake sql`.

Runs DuckDB in this process, with a view for each stream that the statement names. A view covers the files that PyIceberg plans for the
newest snapshot. DuckDB itself reads files of a local store, with columns matched by field id; files of other stores are read through
pyarrow and our object store. PyIceberg reads files in which other engines have deleted rows, and omits those rows.
The statement is one SELECT. It has no access to files, the network or extensions, and its memory is bounded.

Why not DataFusion: only one of its releases works with PyIceberg 0.12, and the others crash. Both engines have the types that we need
(timestamptz, list of structs, binary).
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bearlake.errors import Invalid, Overloaded, Unavailable, Unsupported
from bearlake.metadata.model import Stream
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_iceberg import new_schema, staged_schema
from bearlake.table.dataset import open_dataset
from bearlake.table.deleted_rows import planned_files
from bearlake.table.iceberg import IcebergTables
from bearlake.table.io import StoreBridge
from bearlake.table.naming import is_current
from bearlake.table.query_session import QuerySession

_FOREIGN_SUGGESTION = re.compile(r"(Table with name .* does not exist!)\nDid you mean .*")
"""The engine suggests tables of its own: it does not know the streams that the statement does not name."""

_TYPES: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMP WITH TIME ZONE",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    BinaryType: "BLOB",
    FixedType: "BLOB",
}

_TABLE_NAME = re.compile(r'"table_name":("(?:[^"\\]|\\.)*")')
"""A table in a statement's tree. In the tree's own texts, such as constants, quotation marks are escaped."""
_TABLE_FUNCTION = re.compile(r'"type":"TABLE_FUNCTION",.*?"function_name":("(?:[^"\\]|\\.)*")', re.DOTALL)
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})
"""Functions that a statement may use as tables. Others read files, settings, addresses in memory, or run texts and trees (decision 277)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows of a query as Python values: bytes, aware datetimes (UTC), lists, dictionaries. `types` are DuckDB's type names."""

    columns: Sequence[str]
    types: Sequence[str]
    rows: Sequence[tuple[Any, ...]]  # Any: any type that the statement selects
    is_truncated: bool
    """Whether there were more rows than `TableSettings.query_row_count_max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTable:
    """A table with files of the log's tail. `table` None: there is no table yet. `paths`: the files, on this machine, with `columns`."""

    table: Table | None
    columns: ColumnBook | None = None
    paths: Sequence[str] = ()


class QueryProgress:
    """How far a query is, for a caller that shows it. `query` gives it the engine's connection."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    def follow(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Report on the statement of this connection from now on."""
        connection.execute("set enable_progress_bar = true")
        connection.execute("set enable_progress_bar_print = false")
        self._connection = connection

    @property
    def fraction(self) -> float | None:
        """The part of the statement that is done (0 to 1), as the engine estimates it; None: unknown."""
        if self._connection is None:
            return None
        try:
            percent = self._connection.query_progress()
        except duckdb.Error:  # the statement has ended, and its connection with it
            return None
        return percent / 100 if percent > 0 else None


async def query(
    tables: IcebergTables,
    streams: Sequence[Stream],
    sql: str,
    *,
    will_have_table: Callable[[Stream], bool] = lambda _: True,
    live: Callable[[Stream], Awaitable[LiveTable]] | None = None,
    progress: QueryProgress | None = None,
) -> QueryResult:
    """Run one statement over the tables of `streams`, among them streams derived for current tables (`naming.current_stream`).

    A table is named like its stream (quoted if the name has dots).

    A stream whose table does not exist yet, but `will_have_table`, is an empty table. `live` adds to a table what compaction has not
    reached yet (None: nothing is added). `progress` says how far the statement is.

    Raises:
        Invalid: the statement is invalid, or names a table that is not the table of a stream.
        Overloaded: the query needs more than `query_memory_bytes_max`, even with temporary files.
        Unsupported: a table has a type, or deletes of another engine, that cannot be read.
        Unavailable: the catalog or the object store did not answer, or the query exceeded `query_deadline_ms`.
        Any exception of `live`.
    """
    session = QuerySession(tables.settings)
    try:
        names = await tables.run("query", lambda: session.run(lambda connection: _tables_of(connection, sql)))
        mentioned = _mentioned(streams, names)
        found: dict[int, LiveTable] = {}
        if live is not None:
            found = {
                stream.number: await live(stream)
                for stream in mentioned
                if will_have_table(stream) and not is_current(stream)
            }

        def statement(connection: duckdb.DuckDBPyConnection) -> QueryResult:
            if progress is not None:
                progress.follow(connection)
            return _query(connection, tables, streams, mentioned, found, sql, will_have_table)

        def run() -> QueryResult:
            try:
                return session.run(statement)
            finally:
                session.end()  # here, not on the event loop: freeing a large result takes time

        return await tables.run("query", run, deadline_ms=tables.settings.query_deadline_ms)
    finally:
        session.end()


def _query(
    connection: duckdb.DuckDBPyConnection,
    tables: IcebergTables,
    streams: Sequence[Stream],
    mentioned: Sequence[Stream],
    live: Mapping[int, LiveTable],
    sql: str,
    will_have_table: Callable[[Stream], bool],
) -> QueryResult:
    try:
        paths: list[str] = []
        for stream in mentioned:
            found = live.get(stream.number)
            if found is None:
                found = LiveTable(table=tables.lookup().find(stream))
            if found.table is not None or will_have_table(stream):
                paths += _define(connection, tables, stream, found)
        connection.execute("set allowed_paths = ?", [paths])
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        return _result(connection.sql(sql), tables.settings.query_row_count_max)
    except duckdb.OutOfMemoryException as error:
        raise Overloaded(f"the query needs more memory than tables.query_memory_bytes_max: {error}") from error
    except (duckdb.InterruptException, duckdb.IOException) as error:
        raise Unavailable(f"the query was stopped: {error}") from error
    except duckdb.CatalogException as error:
        known = ", ".join(_name(stream.name) for stream in streams if will_have_table(stream)) or "none"
        text = _FOREIGN_SUGGESTION.sub(r"\1", str(error))
        raise Invalid(f"{text}\nStreams with a table: {known}{_note_on_case(sql, streams)}") from error
    except duckdb.Error as error:
        raise Invalid(str(error)) from error


def _tables_of(connection: duckdb.DuckDBPyConnection, sql: str) -> frozenset[str]:
    """Return the names of tables in the statement, as it writes them, by the engine's parser; also those that it defines by `with`.

    Raises `Invalid` unless the text is one SELECT with functions that may be tables: `copy … to` could overwrite the files that views read.
    """
    try:
        kinds = [statement.type for statement in connection.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise Invalid(f"expected one SELECT, found {' and '.join(kind.name for kind in kinds[:3]) or 'nothing'}")
        ((tree,),) = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchall()
    except duckdb.Error as error:
        raise Invalid(str(error)) from error
    if not tree.startswith('{"error":false'):
        raise Invalid(f"the statement cannot be read: {tree[:300]}")
    if others := {json.loads(name).lower() for name in _TABLE_FUNCTION.findall(tree)} - _TABLE_FUNCTIONS:
        known = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise Invalid(f"{', '.join(sorted(others))} cannot be a table: tables are streams, and the functions {known}")
    return frozenset(json.loads(name) for name in _TABLE_NAME.findall(tree))


def _mentioned(streams: Sequence[Stream], names: Collection[str]) -> list[Stream]:
    """Return the streams that the statement reads, whose tables have these `names`.

    In SQL, case does not matter; in names of streams, it does. Of streams whose names differ only in case, the statement means the one
    that it writes exactly so. If it writes several of them, none becomes a table: statements about other streams must not fail.
    """
    lowered = {name.lower() for name in names}
    found: dict[str, list[Stream]] = {}
    for stream in streams:
        if stream.name.lower() in lowered:
            found.setdefault(stream.name.lower(), []).append(stream)
    mentioned = []
    for alike in found.values():
        exact = alike if len(alike) == 1 else [stream for stream in alike if stream.name in names]
        if len(exact) == 1:
            mentioned += exact
    return mentioned


def _note_on_case(sql: str, streams: Sequence[Stream]) -> str:
    """Return a hint for a statement that does not say which of several streams it means."""
    lowered = Counter(stream.name.lower() for stream in streams if _has_word(sql, stream.name, re.IGNORECASE))
    if max(lowered.values(), default=0) < 2:
        return ""
    return "\nSome names differ only in case: write one of them exactly, and one in each statement"


def _has_word(sql: str, name: str, flags: int = 0) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, flags) is not None


def _result(relation: duckdb.DuckDBPyRelation | None, row_count_max: int) -> QueryResult:
    if relation is None:  # a statement without a result
        return QueryResult(columns=[], types=[], rows=[], is_truncated=False)
    types = [str(found) for found in relation.types]
    try:
        found = relation.limit(row_count_max + 1).to_arrow_table()
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    except (OverflowError, ValueError, pa.ArrowException) as error:
        # Python's times have the years 1 to 9999 and no nanoseconds, and Arrow's types 64 levels.
        raise Invalid(f"{error}: cast such values, for example to varchar") from error
    return QueryResult(
        columns=list(relation.columns),
        types=types,
        rows=rows[:row_count_max],
        is_truncated=len(rows) > row_count_max,
    )


def _define(connection: duckdb.DuckDBPyConnection, tables: IcebergTables, stream: Stream, live: LiveTable) -> list[str]:
    """Create the stream's view; return the local files that the view reads."""
    table = live.table
    columns = new_schema(live.columns) if table is None else staged_schema(table, live.columns)
    parts, paths = ([], []) if table is None else _parts(connection, tables, stream, table, columns)
    if live.paths:
        parts.append(_from_files(live.paths, columns))
        paths += live.paths
    if not parts:
        parts.append(_no_rows(columns))
    connection.execute(f"create view {_name(stream.name)} as {' union all by name '.join(parts)}")
    return paths


def _parts(
    connection: duckdb.DuckDBPyConnection, tables: IcebergTables, stream: Stream, table: Table, columns: Schema
) -> tuple[list[str], list[str]]:
    """Return what selects the rows of a table's files, and the local files that it reads."""
    tasks = planned_files(table.scan())
    plain = [task for task in tasks if not task.delete_files]
    parts, paths = list[str](), list[str]()
    if plain and urlsplit(plain[0].file.file_path).scheme == "file":
        paths = [_path(tables.bridge, task) for task in plain]
        parts.append(_from_files(paths, columns))
    elif plain and len(table.metadata.schemas) == 1:  # with a single schema, names identify columns as field ids do
        keys = [tables.locations.key(task.file.file_path) for task in plain]
        types = schema_to_pyarrow(table.schema(), include_field_ids=False)
        parts.append(_register(connection, f"{stream.name} files", open_dataset(tables.bridge, keys, types)))
    else:
        plain = []
    if len(plain) < len(tasks):
        read = {task.file.file_path for task in plain}
        others = [task for task in tasks if task.file.file_path not in read]
        parts.append(_register(connection, f"{stream.name} rows", _scan(table, others)))
    return parts, paths


def _from_files(paths: Sequence[str], columns: Schema) -> str:
    return f"from read_parquet([{', '.join(map(_text, paths))}], schema = {_columns(columns)})"


def _no_rows(schema: Schema) -> str:
    columns = (f"null::{_type(field.field_type)} as {_name(field.name)}" for field in schema.fields)
    return f"select {', '.join(columns)} where false"


def _scan(table: Table, tasks: Sequence[FileScanTask]) -> Any:
    """Read the rows through PyIceberg, with deletes applied and columns matched by field id: a pyarrow table."""
    scan = table.scan()
    return ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_table(tasks)


def _register(connection: duckdb.DuckDBPyConnection, name: str, rows: Any) -> str:
    connection.register(name, rows)
    return f"from {_name(name)}"


def _path(bridge: StoreBridge, task: FileScanTask) -> str:
    return urlsplit(bridge.locations.location(bridge.locations.key(task.file.file_path))).path


def _columns(schema: Schema) -> str:
    """Return the columns by field id for `read_parquet`; a column missing from a file is null."""
    fields = (
        f"{field.field_id}: {{name: {_text(field.name)}, type: {_text(_type(field.field_type))}, default_value: NULL}}"
        for field in schema.fields
    )
    return f"MAP {{{', '.join(fields)}}}"


def _type(found: IcebergType) -> str:
    """Return DuckDB's name for an Iceberg type."""
    if isinstance(found, DecimalType):
        return f"DECIMAL({found.precision}, {found.scale})"
    if isinstance(found, ListType):
        return f"{_type(found.element_type)}[]"
    if isinstance(found, MapType):
        return f"MAP({_type(found.key_type)}, {_type(found.value_type)})"
    if isinstance(found, StructType):
        return f"STRUCT({', '.join(f'{_name(field.name)} {_type(field.field_type)}' for field in found.fields)})"
    if (name := _TYPES.get(type(found))) is None:
        raise Unsupported(f"columns of type {found} cannot be queried")
    return name


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
