"""Defaults of groups of streams in SQLite."""

import json
from collections.abc import Mapping

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.defaults import NONE, Defaults, DefaultsStore, check_group_name
from bearlake.metadata.sqlite.database import Database

FIND = "SELECT configs, version FROM defaults WHERE name = ?"


class SqliteDefaults(DefaultsStore):
    """`metadata.defaults.DefaultsStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, group: str) -> Defaults:
        return await self._database.run_read(self._get, group)

    @override
    async def set(self, group: str, configs: Mapping[str, str], *, version: int) -> Defaults:
        check_group_name(group)
        return await self._database.run(self._set, group, dict(configs), version)

    def _get(self, group: str) -> Defaults:
        with self._database.reading() as connection:
            return _loaded(connection.execute(FIND, (group,)).fetchone())

    def _set(self, group: str, configs: dict[str, str], version: int) -> Defaults:
        with self._database.writing() as connection:
            now = _loaded(connection.execute(FIND, (group,)).fetchone())
            if now.version != version:
                raise Conflict(
                    f"the defaults of {group!r} have changed: they have version {now.version}, not {version}"
                )
            text = json.dumps(configs, sort_keys=True)
            connection.execute("INSERT OR REPLACE INTO defaults VALUES (?, ?, ?)", (group, text, version + 1))
        return Defaults(configs, version + 1)


def _loaded(row: tuple[str, int] | None) -> Defaults:
    return NONE if row is None else Defaults(json.loads(row[0]), row[1])
