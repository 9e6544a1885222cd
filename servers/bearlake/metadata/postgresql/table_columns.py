"""The typed columns of streams' tables in PostgreSQL."""

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.table_columns import NONE, TableColumns, TableColumnsStore

FIND = "select content, version from bearlake.table_columns where stream_number = $1"
MAKE = "insert into bearlake.table_columns values ($1, $2, 1) on conflict (stream_number) do nothing returning version"
CHANGE = (
    "update bearlake.table_columns set content = $2, version = version + 1"
    " where stream_number = $1 and version = $3 returning version"
)


class PostgresqlTableColumns(TableColumnsStore):
    """`metadata.table_columns.TableColumnsStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, stream_number: int) -> TableColumns:
        row = await self._database.row(FIND, stream_number, is_read=True)
        return NONE if row is None else TableColumns(row["content"], row["version"])

    @override
    async def set(self, stream_number: int, text: str, *, version: int) -> TableColumns:
        # Not repeatable: a second change finds a newer version.
        if version:
            row = await self._database.row(CHANGE, stream_number, text, version, is_repeatable=False)
        else:
            row = await self._database.row(MAKE, stream_number, text, is_repeatable=False)
        if row is None:
            now = await self.get(stream_number)
            raise Conflict(
                f"the columns of stream {stream_number} have changed: they have version {now.version}, not {version}"
            )
        return TableColumns(text, row["version"])
