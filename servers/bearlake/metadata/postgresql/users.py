"""Users in PostgreSQL."""

import secrets
from collections.abc import Sequence

from typing_extensions import override

from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.users import (
    DECOY_KEY_BYTES,
    CredentialChange,
    User,
    UserStore,
    check_changes,
    is_user_name,
    users_of,
)

COLUMNS = "name, mechanism, iterations, salt, stored_key, server_key"
FIND = f"select {COLUMNS} from bearlake.user_credential where name = $1 order by mechanism"
LIST = (
    f"select {COLUMNS} from bearlake.user_credential where name in"
    " (select distinct name from bearlake.user_credential where name > $1 order by name limit $2) order by name, mechanism"
)
MAKE_KEY = "update bearlake.user_state set decoy_key = coalesce(decoy_key, $1) returning decoy_key"


class PostgresqlUsers(UserStore):
    """`metadata.users.UserStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def get(self, name: str) -> User | None:
        if not is_user_name(name):
            return None
        rows = await self._database.rows(FIND, name, is_read=True)
        return users_of([tuple(row) for row in rows])[0] if rows else None

    @override
    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[User]:
        return users_of([tuple(row) for row in await self._database.rows(LIST, after, limit, is_read=True)])

    @override
    async def revision(self) -> int:
        revision: int = await self._database.value("select revision from bearlake.user_state", is_read=True)
        return revision

    @override
    async def change(self, changes: Sequence[CredentialChange], *, revision: int) -> int:
        check_changes(changes)
        new = [change.credential for change in changes]
        # Repeatable: the second time, the revision is a newer one.
        number: int = await self._database.value(
            *call(
                "change_users",
                revision=revision,
                names=[change.user for change in changes],
                mechanisms=[change.mechanism for change in changes],
                iterations=[credential and credential.iterations for credential in new],
                salts=[credential and credential.salt for credential in new],
                stored_keys=[credential and credential.stored_key for credential in new],
                server_keys=[credential and credential.server_key for credential in new],
            )
        )
        return number

    @override
    async def decoy_key(self) -> bytes:
        key: bytes | None = await self._database.value("select decoy_key from bearlake.user_state", is_read=True)
        if key is None:
            key = await self._database.value(MAKE_KEY, secrets.token_bytes(DECOY_KEY_BYTES))
        assert key is not None
        return bytes(key)
