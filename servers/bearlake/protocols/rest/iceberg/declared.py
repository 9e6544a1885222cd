"""CREATE TABLE and ALTER TABLE of engines that declare the columns of a stream.

    CREATE TABLE … TBLPROPERTIES ('bearlake.stream' = 'true')     creates a stream, and its table with these columns
    ALTER TABLE … ADD COLUMN …, ALTER COLUMN … TYPE …             changes the stream's config `table.columns`, and the table

The config is written first. If the server stops before the table has the columns, compaction adds them with the next records, or a view of
the table does. Field ids are those of the column book, also where an engine asks for others: engines take the answer's.

Source: decision 290.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from bearlake.errors import AlreadyExists, Denied
from bearlake.metadata.model import Stream
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.protocols.rest.iceberg.tables import DeclaredTables, Tables
from bearlake.streams.management import Management
from bearlake.streams.principal import Principal
from bearlake.streams.value_rules import declared
from bearlake.table.column_book import decode_book
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf, name_in_schemas
from bearlake.table.declared import declared_columns, declared_text, evolved
from bearlake.table.warehouse.model import SNAPSHOTS_ALL, Answer, Body, Name, Owner, Refused, invalid

IS_STREAM: Final = "bearlake.stream"
"""Property of a new table: `true` makes it the table of a stream."""
STREAM_NAME: Final = "bearlake.stream.name"
PARTITIONS: Final = "bearlake.stream.partitions"
CONFIG_PREFIX: Final = "bearlake.config."
"""Begins the names of properties that are configs of the stream."""
_OWN_PREFIX: Final = "bearlake."
_COLUMNS: Final = "table.columns"
_ENABLE: Final = "table.enable"
_IGNORED: Final = frozenset({"owner", "created-at"})
"""Properties that engines set on their own, and that say nothing about a stream."""


class DeclaredStreams:
    """Creates and changes streams for engines."""

    def __init__(
        self,
        tables: Callable[[], Awaitable[Tables]],
        declaring: Callable[[], Awaitable[DeclaredTables]],
        streams: Management,
        columns: TableColumnsStore,
    ) -> None:
        """`tables`, `declaring`: load and open them once; raise `Unavailable`."""
        self._tables = tables
        self._declaring = declaring
        self._streams = streams
        self._columns = columns

    async def create(self, who: Principal, name: Name, body: Body, properties: Mapping[str, str]) -> Answer:
        """Create a stream and its table.

        Raises:
            Refused: a stream cannot have such a table, or another table has the name.
            Denied, Throttled: `who` may not create the stream.
            Invalid: a config, or the stream's name, is illegal.
            AlreadyExists: there is such a stream.
            Conflict, Unavailable: unknown whether the stream exists; the same request again completes it.
        """
        tables, declaring = await self._tables(), await self._declaring()
        text = declared_text(await declaring.columns_of(body))
        declaring.check(None, text)
        partition_count, stream_name, configs = _stream_of(name, properties, text)
        if not self._streams.may_create(who, stream_name):  # before anything is told about the table
            raise Denied(f"{who} may not Create Topic {stream_name!r}")
        if await tables.owner(name) is not None:
            raise _taken(f"Table already exists: {'.'.join(name)}")
        self._streams.catalog.check_new(stream_name, partition_count, configs)
        await declaring.check_schemas(stream_name, configs)  # before there is a stream whose table cannot be made
        try:
            view = await self._streams.create(who, stream_name, partition_count, configs)
            stream = view.stream
        except AlreadyExists:
            await self._streams.catalog.catch_up()
            found = self._streams.catalog.peek(stream_name)
            if found is None or any(found.stream.configs.get(key) != value for key, value in configs.items()):
                raise _taken(f"Stream already exists: {stream_name}") from None
            stream = found.stream  # an earlier request, whose answer was lost, may have come so far
        made = await declaring.ensure(stream)
        if made != name:
            raise _taken(f"{'.'.join(name)} was taken; the table of stream {stream_name} is {'.'.join(made)}")
        return await tables.load(name, SNAPSHOTS_ALL)

    async def altered(self, who: Principal, stream: Stream, name: Name, owner: Owner, body: Body) -> Answer | None:
        """Declare the columns that a commit adds or widens, and return the table; None: the commit does neither.

        Raises:
            Refused: a stream cannot have such columns, or the commit does other things, too.
            Denied: `who` may not change the stream.
            Invalid, Conflict, Unavailable: as `create`.
        """
        if not any(isinstance(update, dict) and update.get("action") == "add-schema" for update in body["updates"]):
            return None
        await self._streams.catalog.catch_up()  # the columns may have been declared by another server just now
        view = self._streams.catalog.peek_number(stream.number)
        if view is None or not declared(view.stream.configs):
            return None
        declaring = await self._declaring()
        stored = await self._columns.get(stream.number)
        book = decode_book(stored.text, stored.version) if stored.version else None
        sources = {} if book is None else dict(_sources(book.columns))
        added = await declaring.changes(name, body, owner, sources)
        if not added:
            return None

        def decide(present: Mapping[str, str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
            before = declared_columns(declared(present))
            text = declared_text(evolved(before, added))
            declaring.check(book, text)  # before it is declared: no record would have columns
            return {_COLUMNS: text}, ()

        changed = await self._streams.change(who, view.stream, decide)
        await declaring.ensure(changed.stream)
        return await (await self._tables()).load(name, SNAPSHOTS_ALL)


def _sources(columns: Sequence[Column]) -> Iterator[tuple[int, str]]:
    """Yield the field ids of columns, and of the fields in them, with their names in values."""
    for column in columns:
        yield column.id, name_in_schemas(column.source).rpartition(".")[2]
        yield from _sources(_fields_of(column.type))


def _fields_of(type_: ColumnType) -> Sequence[Column]:
    match type_:
        case StructOf():
            return type_.fields
        case ListOf():
            return _fields_of(type_.element)
        case MapOf():
            return _fields_of(type_.value)
    return ()


def is_declared(properties: Mapping[str, str]) -> bool:
    """Whether a new table shall be that of a stream."""
    return properties.get(IS_STREAM, "").lower() == "true"


def _stream_of(name: Name, properties: Mapping[str, str], columns: str) -> tuple[int, str, dict[str, str]]:
    """Return the partition count, name and configs of the stream that properties describe. Raises `Refused`."""
    given = {key: value for key, value in properties.items() if key not in _IGNORED}
    del given[IS_STREAM]
    stream_name, partitions = given.pop(STREAM_NAME, name[-1]), given.pop(PARTITIONS, "1")
    if not (partitions.isascii() and partitions.isdigit() and len(partitions) < 10):
        raise invalid(f"{PARTITIONS} = {partitions[:50]!r}: expected a number")
    configs = {key.removeprefix(CONFIG_PREFIX): value for key, value in given.items() if key.startswith(CONFIG_PREFIX)}
    if unknown := sorted(key for key in given if not key.startswith(CONFIG_PREFIX)):
        raise invalid(
            f"the property {unknown[0]} is not one of a stream's table: expected {STREAM_NAME}, {PARTITIONS}, or"
            f" {CONFIG_PREFIX}… for a config of the stream"
        )
    own = {_COLUMNS: columns, "table.namespace": ".".join(name[:-1]), "table.name": name[-1]}
    if both := sorted(configs.keys() & own.keys()):
        raise invalid(f"{CONFIG_PREFIX}{both[0]}: the statement itself says it")
    if configs.get(_ENABLE, "true").lower() != "true":
        raise invalid(f"{CONFIG_PREFIX}{_ENABLE}: a stream without a table has none to create")
    return int(partitions), stream_name, configs | own


def _taken(message: str) -> Refused:
    return Refused(409, "AlreadyExistsException", message)
