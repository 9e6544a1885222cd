"""Access rules in SQLite. A change and its POLICY entry in the log are one transaction."""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.access_rules import AccessRule, AccessRules, RuleSet, check_count, check_rules, row_of, rule_set
from bearlake.metadata.model import NO_STREAM
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog

COLUMNS = "resource, name, pattern, principal, host, operation, permission"


class SqliteAccessRules(AccessRules):
    """`metadata.access_rules.AccessRules`."""

    def __init__(self, database: Database, log: SqliteLog) -> None:
        self._database = database
        self._log = log

    @override
    async def revision(self) -> int:
        return await self._database.run_read(self._revision)

    @override
    async def read(self) -> RuleSet:
        return await self._database.run_read(self._read)

    @override
    async def change(self, *, created: Sequence[AccessRule], deleted: Sequence[AccessRule], revision: int) -> int:
        check_rules(created, deleted)
        position = await self._database.run(self._change, tuple(created), tuple(deleted), revision)
        self._log.notify(position)
        return revision + 1

    def _revision(self) -> int:
        with self._database.reading() as connection:
            (revision,) = connection.execute("SELECT revision FROM access_state").fetchone()
        return int(revision)

    def _read(self) -> RuleSet:
        with self._database.reading() as connection:
            (revision,) = connection.execute("SELECT revision FROM access_state").fetchone()
            rows = connection.execute(f"SELECT {COLUMNS} FROM access_rules").fetchall()
        return rule_set(revision, rows)

    def _change(self, created: Sequence[AccessRule], deleted: Sequence[AccessRule], revision: int) -> int:
        with self._database.writing() as connection:
            (present,) = connection.execute("SELECT revision FROM access_state").fetchone()
            if present != revision:
                raise Conflict(f"the access rules have revision {present}, not {revision}")
            connection.executemany(
                f"DELETE FROM access_rules WHERE ({COLUMNS}) = (?, ?, ?, ?, ?, ?, ?)",
                [row_of(rule) for rule in deleted],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO access_rules VALUES (?, ?, ?, ?, ?, ?, ?)", [row_of(rule) for rule in created]
            )
            (count,) = connection.execute("SELECT count(*) FROM access_rules").fetchone()
            check_count(count)
            connection.execute("UPDATE access_state SET revision = ?", (revision + 1,))
            return self._log.append_stream_change(connection, NO_STREAM)
