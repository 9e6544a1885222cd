"""A SQLite store without room: what callers learn, and that it goes on once there is room."""

import errno
import sqlite3
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

from bearlake.errors import OutOfRoom, Unavailable
from bearlake.metadata.sqlite.database import Database, translated
from bearlake.metadata.sqlite.settings import SqliteSettings


async def test_a_transaction_without_room_has_not_happened_and_its_repeat_succeeds(tmp_path: Path) -> None:
    database = Database(tmp_path / "m.db", SqliteSettings())
    await database.open(lambda connection: None)
    pages_max = "PRAGMA max_page_count = {}"  # SQLite reports its own limit of pages as it reports a full disk

    def write() -> None:
        with database.writing() as connection:
            connection.execute("create table if not exists found (content blob)")
            connection.execute("insert into found values (zeroblob(100000))")

    def limited(page_count: int) -> None:
        database.writer.execute(pages_max.format(page_count))

    def count() -> int:
        rows: int = database.reader.execute("select count(*) from sqlite_master where name = 'found'").fetchone()[0]
        return rows

    await database.run(limited, 8)
    with pytest.raises(OutOfRoom, match="is full"):
        await database.run(write)
    assert await database.run_read(count) == 0
    await database.run(limited, 1_000)
    await database.run(write)

    assert await database.run_read(count) == 1
    await database.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, OutOfRoom),
        (sqlite3.SQLITE_IOERR_SHMSIZE, OutOfRoom),
        (sqlite3.SQLITE_IOERR_FSYNC, Unavailable),
        (sqlite3.SQLITE_IOERR_WRITE, Unavailable),
    ],
)
def test_only_errors_of_a_full_disk_say_that_nothing_happened(code: int, kind: type[Exception]) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code

    assert type(translated(error, "m.db")) is kind


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EDQUOT, OutOfRoom), (errno.ENOSPC, OutOfRoom), (errno.EIO, Unavailable)]
)
def test_a_write_beyond_a_quota_is_out_of_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, kind: type[Exception]
) -> None:
    """SQLite reports EDQUOT as it reports EIO, so the file system is asked."""

    def refuse(**_: object) -> NoReturn:
        raise OSError(number, "refused")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

    assert type(translated(error, str(tmp_path / "m.db"))) is kind
