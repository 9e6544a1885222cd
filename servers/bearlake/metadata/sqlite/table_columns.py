"""The typed columns of streams' tables in SQLite."""

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.table_columns import NONE, TableColumns, TableColumnsStore

FIND = "SELECT content, version FROM table_columns WHERE stream_number = ?"


class SqliteTableColumns(TableColumnsStore):
    """`metadata.table_columns.TableColumnsStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, stream_number: int) -> TableColumns:
        return await self._database.run_read(self._get, stream_number)

    @override
    async def set(self, stream_number: int, text: str, *, version: int) -> TableColumns:
        return await self._database.run(self._set, stream_number, text, version)

    def _get(self, stream_number: int) -> TableColumns:
        with self._database.reading() as connection:
            return _loaded(connection.execute(FIND, (stream_number,)).fetchone())

    def _set(self, stream_number: int, text: str, version: int) -> TableColumns:
        with self._database.writing() as connection:
            now = _loaded(connection.execute(FIND, (stream_number,)).fetchone())
            if now.version != version:
                raise Conflict(
                    f"the columns of stream {stream_number} have changed: they have version {now.version}, not {version}"
                )
            connection.execute(
                "INSERT OR REPLACE INTO table_columns VALUES (?, ?, ?)", (stream_number, text, version + 1)
            )
        return TableColumns(text, version + 1)


def _loaded(row: tuple[str, int] | None) -> TableColumns:
    return NONE if row is None else TableColumns._make(row)
