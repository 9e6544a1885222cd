"""Users in SQLite."""

import secrets
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.users import (
    DECOY_KEY_BYTES,
    CredentialChange,
    User,
    UserStore,
    check_changes,
    is_user_name,
    users_of,
)

COLUMNS = "user, mechanism, iterations, salt, stored_key, server_key"
FIND = f"SELECT {COLUMNS} FROM user_credentials WHERE user = ? ORDER BY mechanism"
LIST = (
    f"SELECT {COLUMNS} FROM user_credentials"
    " WHERE user IN (SELECT DISTINCT user FROM user_credentials WHERE user > ? ORDER BY user LIMIT ?) ORDER BY user, mechanism"
)


class SqliteUsers(UserStore):
    """`metadata.users.UserStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, name: str) -> User | None:
        if not is_user_name(name):
            return None
        found = users_of(await self._database.run_read(self._rows, FIND, (name,)))
        return found[0] if found else None

    @override
    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[User]:
        return users_of(await self._database.run_read(self._rows, LIST, (after, limit)))

    @override
    async def revision(self) -> int:
        [(revision,)] = await self._database.run_read(self._rows, "SELECT revision FROM user_state", ())
        return int(revision)

    @override
    async def change(self, changes: Sequence[CredentialChange], *, revision: int) -> int:
        check_changes(changes)
        return await self._database.run(self._change, tuple(changes), revision)

    @override
    async def decoy_key(self) -> bytes:
        [(key,)] = await self._database.run_read(self._rows, "SELECT decoy_key FROM user_state", ())
        if key is None:
            key = await self._database.run(self._make_decoy_key, secrets.token_bytes(DECOY_KEY_BYTES))
        return bytes(key)

    def _rows(self, query: str, values: tuple[object, ...]) -> Sequence[Any]:  # Any: columns depend on the query
        with self._database.reading() as connection:
            return connection.execute(query, values).fetchall()

    def _change(self, changes: Sequence[CredentialChange], revision: int) -> int:
        with self._database.writing() as connection:
            (present,) = connection.execute("SELECT revision FROM user_state").fetchone()
            if present != revision:
                raise Conflict(f"the users have revision {present}, not {revision}")
            for user, mechanism, new in changes:
                if new is None:
                    connection.execute(
                        "DELETE FROM user_credentials WHERE user = ? AND mechanism = ?", (user, mechanism)
                    )
                else:
                    connection.execute(
                        "INSERT OR REPLACE INTO user_credentials VALUES (?, ?, ?, ?, ?, ?)",
                        (user, mechanism, new.iterations, new.salt, new.stored_key, new.server_key),
                    )
            connection.execute("UPDATE user_state SET revision = ?", (revision + 1,))
        return revision + 1

    def _make_decoy_key(self, key: bytes) -> bytes:
        with self._database.writing() as connection:
            connection.execute("UPDATE user_state SET decoy_key = ? WHERE decoy_key IS NULL", (key,))
            found: bytes = connection.execute("SELECT decoy_key FROM user_state").fetchone()[0]
        return found
