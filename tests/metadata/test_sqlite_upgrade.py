"""A SQLite file of an older layout: no program of an older version ever writes to a newer layout.

An older program does not know the columns that were added since. What it writes must mean what it meant to that program.
"""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable, Unsupported
from bearlake.metadata.model import PartitionKey, partition_key
from bearlake.metadata.sqlite import migrate as migrate_module
from bearlake.metadata.sqlite import upgrade as upgrade_module
from bearlake.metadata.sqlite.migrate import VERSION, available
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite
from bearlake.metadata.sqlite.upgrade import layout

MIGRATION = (
    "ALTER TABLE producer_names ADD COLUMN more INTEGER NOT NULL DEFAULT 0;\n"
    "ALTER TABLE cursors ADD COLUMN more INTEGER NOT NULL DEFAULT 0;\n"
)
NEWER = replace(available(), version=VERSION + 1, migrations=[*available().migrations, (VERSION + 1, MIGRATION)])
"""The layout of the newer program; the older program has this repository's."""
PARTITION = partition_key(1, 0)
REGISTER_NAME = "INSERT INTO producer_names (partition, name, producer_id) VALUES (?, 'writer', 7)"
SAVE_CURSOR = (
    "INSERT INTO cursors (partition, name, mark_delete, acknowledged, properties, created_ms, revision)"
    " VALUES (?, 'reader', 3, x'', '{}', 0, 0)"
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the older layout, with one stream."""
    path = tmp_path / "metadata.db"
    with closing(opened_by_older_program(path)) as older:
        migrate_module.migrate(older, 0, available())
        insert(older, "store", id=1, cluster_id="cluster", next_producer_id=8)
        insert(older, "streams", number=1, id=bytes(16), name="orders", partition_count=1, configs="{}")
        insert(older, "partitions", partition=PARTITION)
    for module in (migrate_module, upgrade_module):
        monkeypatch.setattr(module, "available", lambda: NEWER)
    return path


def insert(older: sqlite3.Connection, table: str, **values: object) -> None:
    """A row of the table; columns without a value are empty."""
    empty: dict[str, object] = {"INTEGER": 0, "TEXT": "", "BLOB": b""}
    row = {name: values.get(name, empty[kind]) for _, name, kind, *_ in older.execute(f"PRAGMA table_info({table})")}
    older.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def opened_by_older_program(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    raw.execute("PRAGMA journal_mode = WAL")
    return raw


async def open_now(path: Path, busy_timeout_ms: int = 0) -> SqliteMetadata:
    return await open_sqlite(path, SqliteSettings(busy_timeout_ms=busy_timeout_ms), clock=ManualClock())


async def test_a_file_that_an_older_program_has_open_is_not_upgraded(path: Path) -> None:
    with closing(opened_by_older_program(path)) as older:
        assert layout(older) == VERSION  # it has read its layout, and continues with it
        with pytest.raises(Unavailable, match="older layout"):
            await open_now(path)

        older.execute(REGISTER_NAME, (PARTITION,))
        older.execute(SAVE_CURSOR, (PARTITION,))
        assert layout(older) == VERSION
    store = await open_now(path)
    named = await store.producers.named(PartitionKey(PARTITION), "writer")
    (cursor,) = await store.cursors.load(PartitionKey(PARTITION))
    await store.close()

    assert (named.producer_id, cursor.name, cursor.mark_delete) == (7, "reader", 3)


HOLD = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM store').fetchone();"
    " print(1, flush=True); input()"
)


async def test_a_file_that_another_process_has_open_is_upgraded_once_the_process_ends(path: Path) -> None:
    older = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert older.stdout is not None
        await older.stdout.readline()
        with pytest.raises(Unavailable, match="older layout"):
            await open_now(path)
    finally:
        await older.communicate(b"\n")
    store = await open_now(path)
    await store.close()

    with closing(sqlite3.connect(path)) as raw:
        assert layout(raw) == NEWER.version


async def test_an_older_program_that_opens_an_upgraded_file_is_refused(path: Path) -> None:
    store = await open_now(path)
    await store.close()
    with closing(opened_by_older_program(path)) as older, pytest.raises(Unsupported, match="newer version"):
        migrate_module.migrate(older, 0, available())


@pytest.mark.parametrize("statement", [REGISTER_NAME, SAVE_CURSOR])
async def test_no_older_program_can_open_the_file_while_it_is_upgraded(
    path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The older program opens the file at each statement of the upgrade."""
    tried: list[str] = []
    statements: Callable[[str], object] = migrate_module.statements

    def watched(script: str) -> object:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as older:
            try:
                older.execute(statement, (PARTITION,))
                tried.append("written")
            except sqlite3.OperationalError as error:
                tried.append(str(error))
        return statements(script)

    monkeypatch.setattr(migrate_module, "statements", watched)
    store = await open_now(path)
    await store.close()

    assert set(tried) == {"database is locked"}


async def test_programs_of_the_new_version_that_start_at_once_upgrade_one_file(path: Path) -> None:
    stores = await asyncio.gather(*(open_now(path, busy_timeout_ms=60_000) for _ in range(6)))

    assert {await store.cluster_id() for store in stores} == {"cluster"}
    for store in stores:
        await store.close()


async def test_a_file_that_an_older_program_makes_while_this_one_opens_it_is_not_upgraded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both programs start on a new file. The older program creates the file first, and continues with its layout."""
    made = tmp_path / "made.db"
    older: list[sqlite3.Connection] = []

    def upgrade(*arguments: Any, **options: Any) -> None:
        upgrade_module.upgrade(*arguments, **options)
        if not older:
            older.append(opened_by_older_program(made))
            migrate_module.migrate(older[0], 0, available())

    monkeypatch.setattr("bearlake.metadata.sqlite.store.upgrade", upgrade)
    with pytest.raises(Unavailable, match="older layout"):
        await open_now(made)

    assert layout(older[0]) == VERSION
    older[0].close()
    await (await open_now(made)).close()
