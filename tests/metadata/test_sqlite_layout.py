"""The layout of a SQLite store: made once, carried forward by migrations, refused when it is too old; a change gets a number."""

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unsupported
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.sqlite.migrate import OLDEST, VERSION, Layout, available, migrate
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite

NEXT = replace(
    available(),
    version=VERSION + 1,
    tables=[*available().tables, "ALTER TABLE streams ADD COLUMN extra TEXT NOT NULL DEFAULT 'x';"],
    migrations=[
        *available().migrations,
        (VERSION + 1, "ALTER TABLE streams ADD COLUMN extra TEXT NOT NULL DEFAULT 'x';"),
    ],
)
DIGESTS = {
    16: "a665654f0745f02b3e1ce8befe8adcc024a40062006e05fc84b534fc22089891",
    17: "ca30acd0cb8bfd368791eb50e0a728f189da28f8ec91a0c9cde59a124e3011fa",
    18: "13dec37fa3f7dd38d1b5c8546a7c11e92fad2fcf48d9efd72e8c2b8da798c8b5",
    19: "bc457b0272071e30d4decb55e9dfadba2d5ca56b2f3a8fc9fb2a27037d4c738a",
    20: "bac181869a9f05e8a5511aa2191e2a8733d142a37236737b80ce92605c1f62db",
    21: "bac181869a9f05e8a5511aa2191e2a8733d142a37236737b80ce92605c1f62db",  # only the meaning changed
    22: "f33be1336bc01da6eee28d321a00efe10b86ffac2e3f01c5e21f59317ff75bd7",
    23: "a8b124241fa1d66fd9e7fa7a5eb944acd9e8154bb560c69a69f1ec9032059210",
}
"""Digest of the files of each layout. A line of a released layout never changes."""


LAYOUTS = Path(__file__).parent / "sqlite_layouts"


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
    yield connection
    connection.close()


def tables(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute(
        'SELECT t.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk'
        " FROM pragma_table_list t, pragma_table_xinfo(t.name) c WHERE t.name NOT LIKE 'sqlite%' ORDER BY 1, 2"
    ).fetchall()


def indexes(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute(
        "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1, 2"
    ).fetchall()


async def test_a_new_store_has_one_layout_and_keeps_it(tmp_path: Path, raw: sqlite3.Connection) -> None:
    for _ in range(2):
        store = await open_sqlite(tmp_path / "metadata.db", SqliteSettings(), clock=ManualClock())
        await store.close()

    assert raw.execute("SELECT version FROM migrations").fetchall() == [(VERSION,)]


async def test_an_older_store_is_carried_forward_with_its_contents(tmp_path: Path, raw: sqlite3.Connection) -> None:
    store = await open_sqlite(tmp_path / "metadata.db", SqliteSettings(), clock=ManualClock())
    await store.streams.create(StreamSpec(name="orders", partition_count=1))
    await store.close()
    migrate(raw, 0, NEXT)
    new = sqlite3.connect(":memory:", isolation_level=None)
    migrate(new, 0, NEXT)

    assert raw.execute("SELECT name, extra FROM streams").fetchall() == [("orders", "x")]
    assert tables(raw) == tables(new)
    new.close()


def test_a_store_of_layout_16_becomes_equal_to_a_new_one(raw: sqlite3.Connection) -> None:
    layout_16 = Layout(version=16, oldest=16, tables=[(LAYOUTS / "16.sql").read_text("utf-8")])
    migrate(raw, 0, layout_16)
    raw.execute(
        "INSERT INTO partition_producers (partition, producer_id, epoch, last_ms, batches) VALUES (1, 2, 3, 4, x'')"
    )
    raw.execute(
        "INSERT INTO producer_names (partition, name, producer_id, asked_ms, floor) VALUES (1, 'writer', 2, 4, 5)"
    )
    migrate(raw, 0)
    new = sqlite3.connect(":memory:", isolation_level=None)
    migrate(new, 0)

    assert tables(raw) == tables(new)
    assert indexes(raw) == indexes(new)
    assert raw.execute("SELECT producer_id, last_ms, used_minute FROM partition_producers").fetchall() == [(2, 4, 0)]
    assert raw.execute("SELECT name, producer_id, floor, asked_minute FROM producer_names").fetchall() == [
        ("writer", 2, 5, 0)
    ]
    new.close()


async def test_the_error_for_a_too_old_layout_names_the_remedy(tmp_path: Path, raw: sqlite3.Connection) -> None:
    await (await open_sqlite(tmp_path / "metadata.db", SqliteSettings(), clock=ManualClock())).close()
    raw.execute("UPDATE migrations SET version = ?", (OLDEST - 1,))

    with pytest.raises(Unsupported, match=f"open the store once with the version of Bearlake that has layout {OLDEST}"):
        await open_sqlite(tmp_path / "metadata.db", SqliteSettings(), clock=ManualClock())
    assert raw.execute("SELECT version FROM migrations").fetchall() == [(OLDEST - 1,)]


def test_a_failed_migration_leaves_no_trace(raw: sqlite3.Connection) -> None:
    migrate(raw, 0)
    broken = replace(NEXT, migrations=[(VERSION + 1, "CREATE TABLE half (x);\nSELECT 1 FROM absent;\n")])
    before = tables(raw)

    with pytest.raises(sqlite3.OperationalError):
        migrate(raw, 0, broken)
    assert tables(raw) == before


def test_a_changed_file_gives_the_layout_the_next_number() -> None:
    """If this fails: add one to `VERSION`, a migration, and a line to `DIGESTS`. Comments do not count."""
    layout = available()
    code = [" ".join(re.sub(r"--.*", "", script).split()) for script in layout.tables]

    assert DIGESTS[VERSION] == hashlib.sha256("\0".join(code).encode()).hexdigest()
    assert max(DIGESTS) == VERSION
    assert [version for version, _ in layout.migrations] == list(range(OLDEST + 1, VERSION + 1))
