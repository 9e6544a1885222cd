"""Defaults of groups of streams in PostgreSQL."""

import json
from collections.abc import Mapping

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.defaults import NONE, Defaults, DefaultsStore, check_group_name
from bearlake.metadata.postgresql.database import Database

MAKE = "insert into bearlake.stream_default values ($1, $2, 1) on conflict (name) do nothing returning version"
CHANGE = "update bearlake.stream_default set configs = $2, version = version + 1 where name = $1 and version = $3 returning version"


class PostgresqlDefaults(DefaultsStore):
    """`metadata.defaults.DefaultsStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, group: str) -> Defaults:
        row = await self._database.row(
            "select configs, version from bearlake.stream_default where name = $1", group, is_read=True
        )
        return NONE if row is None else Defaults(json.loads(row["configs"]), row["version"])

    @override
    async def set(self, group: str, configs: Mapping[str, str], *, version: int) -> Defaults:
        check_group_name(group)
        text = json.dumps(dict(configs), sort_keys=True)
        # Not repeatable: a second change finds a newer version.
        if version:
            row = await self._database.row(CHANGE, group, text, version, is_repeatable=False)
        else:
            row = await self._database.row(MAKE, group, text, is_repeatable=False)
        if row is None:
            now = await self.get(group)
            raise Conflict(f"the defaults of {group!r} have changed: they have version {now.version}, not {version}")
        return Defaults(dict(configs), row["version"])
