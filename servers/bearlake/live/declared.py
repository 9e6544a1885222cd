"""Tables of streams with declared columns, as soon as the columns are declared: other streams get theirs with their first records."""

from collections.abc import Mapping

from bearlake.compaction.ensuring import ensure_table
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream
from bearlake.streams.value_rules import declared
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_tree import Column
from bearlake.table.declared import DECLARED_ID
from bearlake.table.iceberg import IcebergTables
from bearlake.table.warehouse.declaring import columns_of_table, declared_changes
from bearlake.table.warehouse.model import Body, Name, Owner
from bearlake.table.warehouse.service import Warehouse


class DeclaredTables:
    """Gives tables their declared columns. The caller keeps ownership of `tables`."""

    def __init__(self, metadata: Metadata, tables: IcebergTables, values: ValueSchemas, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._metadata = metadata
        self._tables = tables
        self._values = values

    async def ensure(self, stream: Stream) -> Name:
        """Create the stream's table unless it exists, and add the declared columns that it lacks; return its name.

        Each step can be repeated, and compaction takes the same steps: whoever is first, the columns have the same field ids.

        Raises:
            Invalid: the table cannot have the columns, or the stream should have no table.
            StreamDeleted: the stream was deleted.
            Conflict: the table belongs to another owner, or others change it all the time.
            Unavailable: a store did not answer.
        """
        state = await ensure_table(stream, self._metadata.streams, self._tables)
        if state is None:
            raise Invalid(f"stream {stream.name} has no table: its config table.enable is false")
        if declared(stream.configs):
            plan = await self._values.plan(stream)
            if plan is None:
                raise Conflict(f"the columns of stream {stream.name} were disabled meanwhile")
            if (reason := plan.refused.get(DECLARED_ID)) is not None:
                raise Invalid(reason.removeprefix("UNSUPPORTED_SCHEMA: "))
            await self._tables.add_columns(stream, plan.columns.book)
        return state.identifier

    def check(self, book: ColumnBook | None, text: str) -> None:
        """Raise `Invalid` if a table with the columns of `book` (None: a new one) cannot have those that `text` declares, too."""
        self._values.check_declared(book, text)

    async def check_schemas(self, stream_name: str, configs: Mapping[str, str]) -> None:
        """Raise as `ValueSchemas.check_schemas`."""
        await self._values.check_schemas(stream_name, configs)

    async def columns_of(self, body: Body) -> tuple[Column, ...]:
        """Return the columns of a request to create a stream's table. Raises `Refused`: a stream cannot have such a table."""
        return await self._warehouse.run(lambda _: columns_of_table(body))

    async def changes(self, name: Name, body: Body, owner: Owner, sources: Mapping[int, str]) -> tuple[Column, ...]:
        """Return the columns that a commit declares; none: it declares none. Raises as `declared_changes`."""
        return await declared_changes(self._warehouse, name, body, owner, sources)
