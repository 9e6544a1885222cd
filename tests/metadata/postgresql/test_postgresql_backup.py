"""A copy of a PostgreSQL store has the store's tables, and no others of its schema.

A role that has the schema's name makes its tables in the schema (PostgreSQL documentation, "The Schema Search Path"). So the tables of an
Iceberg catalog in the same database are there, too.
"""

import json
from pathlib import Path

import asyncpg
import pytest

from bearlake.errors import Unsupported
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.postgresql import backup
from bearlake.metadata.postgresql.layout import available
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from bearlake.metadata.store_copy import StoreCopy

SETTINGS = PostgresqlSettings()
VISITORS = """
create table bearlake.iceberg_tables (id bigint generated always as identity, location text);
create sequence bearlake.visits;
select nextval('bearlake.visits');
insert into bearlake.iceberg_tables (location) values ('before')"""


async def copied(url: str, folder: Path) -> StoreCopy:
    """Make a store with a stream beside the tables of a catalog, and copy it."""
    metadata = await open_metadata(url)
    await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    await metadata.close()
    return await backup.copy_store(url, SETTINGS, folder, lambda count: None)


async def load(url: str, folder: Path, copy: StoreCopy) -> None:
    """Put the copy in the place of what is at `url`."""
    async with backup.placed(
        url, SETTINGS, folder, "restore-1", lambda count: None, ordinal=1, layout=copy.layout, may_replace=True
    ):
        pass


async def test_the_layout_names_all_tables_and_sequences_of_a_store(
    postgresql_url: str, admin: asyncpg.Connection
) -> None:
    await (await open_postgresql(postgresql_url)).close()

    tables = {row["relname"] for row in await admin.fetch(backup.TABLES, "bearlake")}
    sequences = {row[0] for row in await admin.fetch(backup.SEQUENCES, "bearlake") if row["relname"] is None}

    assert tables == available().table_names | {"migration"}
    assert sequences == available().sequence_names


async def test_tables_of_a_catalog_in_the_schema_are_not_copied(
    tmp_path: Path, postgresql_url: str, admin: asyncpg.Connection
) -> None:
    await (await open_postgresql(postgresql_url)).close()
    await admin.execute(VISITORS)

    await copied(postgresql_url, tmp_path)

    described = json.loads((tmp_path / backup.TABLES_FILE).read_text())
    assert described["tables"].keys() == available().table_names - {"session"}
    assert not any("visit" in name or "iceberg" in name for name in described["sequences"])
    assert "stream_number_seq" in described["sequences"]


async def test_a_restore_leaves_the_tables_of_a_catalog_in_the_schema(
    tmp_path: Path, postgresql_url: str, admin: asyncpg.Connection
) -> None:
    await (await open_postgresql(postgresql_url)).close()
    await admin.execute(VISITORS)
    copy = await copied(postgresql_url, tmp_path)
    await admin.execute("update bearlake.iceberg_tables set location = 'after'")

    await load(postgresql_url, tmp_path, copy)

    assert await admin.fetchval("select location from bearlake.iceberg_tables") == "after"


async def test_a_copy_of_an_earlier_program_with_a_catalogs_tables_is_restored_without_them(
    tmp_path: Path, postgresql_url: str, admin: asyncpg.Connection
) -> None:
    copy = await copied(postgresql_url, tmp_path)
    described = json.loads((tmp_path / backup.TABLES_FILE).read_text())
    described["tables"]["iceberg_tables"] = ["location"]
    described["sequences"] |= {"iceberg_tables_id_seq": 3, "visits": 5}
    (tmp_path / backup.TABLES_FILE).write_text(json.dumps(described))
    (tmp_path / "iceberg_tables.copy").write_text("before\n")
    await admin.execute("drop schema bearlake cascade")

    await load(postgresql_url, tmp_path, copy)

    assert await admin.fetchval("select name from bearlake.stream") == "orders"
    assert await admin.fetchval("select to_regclass('bearlake.iceberg_tables')") is None


async def test_a_restore_in_place_does_not_set_sequences_of_others_back(
    tmp_path: Path, postgresql_url: str, admin: asyncpg.Connection
) -> None:
    copy = await copied(postgresql_url, tmp_path)
    await admin.execute("create sequence bearlake.visits")
    described = json.loads((tmp_path / backup.TABLES_FILE).read_text())
    described["sequences"]["visits"] = 5  # as in copies of earlier programs
    (tmp_path / backup.TABLES_FILE).write_text(json.dumps(described))
    await admin.execute("select setval('bearlake.visits', 9)")

    await load(postgresql_url, tmp_path, copy)

    assert await admin.fetchval("select nextval('bearlake.visits')") == 10


async def test_a_copy_without_one_of_the_tables_is_refused(
    tmp_path: Path, postgresql_url: str, admin: asyncpg.Connection
) -> None:
    copy = await copied(postgresql_url, tmp_path)
    described = json.loads((tmp_path / backup.TABLES_FILE).read_text())
    del described["tables"]["subscription_cursor"]
    (tmp_path / backup.TABLES_FILE).write_text(json.dumps(described))

    with pytest.raises(Unsupported, match="the backup lacks tables of its layout: subscription_cursor"):
        await load(postgresql_url, tmp_path, copy)
