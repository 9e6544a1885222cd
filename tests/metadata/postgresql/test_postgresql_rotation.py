"""A password in a file can be rotated under a running server: new connections of the store and the catalog read it again."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.errors import Denied, Unavailable
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from bearlake.table.iceberg import open_tables
from bearlake.table.settings import TableSettings
from fixtures.postgresql import USER, PostgresqlServer, execute
from fixtures.tables import a_stream, local_store

TERMINATE_MS = 60_000
"""Longest wait (ms) for a session's end: a session that ended later would break the next statement."""


class Rotation:
    """A user of the database who must authenticate with a password."""

    def __init__(self, admin_url: str, file: Path) -> None:
        self._admin_url = admin_url
        self.file = file
        self.user = f"user_{uuid.uuid4().hex[:8]}"
        self.url = admin_url.replace(f"{USER}@", f"{self.user}@")

    async def set(self, password: str) -> None:
        """Change the user's password and end all open sessions, as a fail-over does; they have ended when this returns."""
        await execute(
            self._admin_url,
            f"alter role {self.user} password '{password}'",
            f"select pg_terminate_backend(pid, {TERMINATE_MS}) from pg_stat_activity where usename = '{self.user}'",
        )

    async def forget(self) -> None:
        await execute(self._admin_url, f"drop owned by {self.user} cascade", f"drop role {self.user}")


@pytest.fixture
async def rotation(postgresql_server: PostgresqlServer, postgresql_url: str, tmp_path: Path) -> AsyncIterator[Rotation]:
    made = Rotation(postgresql_url, tmp_path / "password")
    database = postgresql_url.rpartition("/")[2]
    await execute(
        postgresql_url,
        f"create role {made.user} login password 'first'",
        f"grant create on database {database} to {made.user}",
        f"grant create on schema public to {made.user}",
    )
    postgresql_server.ask_for_passwords_of(made.user)
    made.file.write_text("first\n")
    yield made
    await made.forget()


async def test_new_connections_use_a_rotated_password(rotation: Rotation) -> None:
    metadata = await open_postgresql(rotation.url, PostgresqlSettings(password_file=str(rotation.file)))
    cluster_id = await metadata.cluster_id()

    await rotation.set("second")
    for reason in (".", "refuses this user"):  # the first statement uses the broken connection
        with pytest.raises(Unavailable, match=reason):
            await metadata.cluster_id()
    rotation.file.write_text("second\n")

    assert await metadata.cluster_id() == cluster_id
    rotation.file.unlink()
    assert await metadata.cluster_id() == cluster_id  # on the existing connection
    await rotation.set("third")
    for reason in (".", r"password_file cannot be read"):
        with pytest.raises(Unavailable, match=reason):
            await metadata.cluster_id()
    await metadata.close()


async def test_a_wrong_password_at_the_start_is_denied(rotation: Rotation) -> None:
    rotation.file.write_text("wrong")

    with pytest.raises(Denied):
        await open_postgresql(rotation.url, PostgresqlSettings(password_file=str(rotation.file)))


async def test_the_file_overrides_the_url(rotation: Rotation) -> None:
    url = rotation.url.replace("@", ":wrong@")

    metadata = await open_postgresql(url, PostgresqlSettings(password_file=str(rotation.file)))

    assert await metadata.cluster_id()
    await metadata.close()


async def test_a_catalog_in_postgresql_reads_its_password_again_too(rotation: Rotation, tmp_path: Path) -> None:
    store, url = local_store(tmp_path)
    settings = TableSettings(
        catalog_url=rotation.url,
        catalog_password_file=str(rotation.file),
    )
    tables = open_tables(settings, store, url)
    stream = a_stream()
    try:
        made = await tables.ensure(stream)
        await rotation.set("second")
        rotation.file.write_text("second")

        assert await tables.ensure(stream) == made
    finally:
        await tables.close()
        await store.close()
