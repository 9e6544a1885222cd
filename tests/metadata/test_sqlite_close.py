"""What is left of callers that do not wait for a SQLite store: a close that is cancelled, and steps that were given up."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Overloaded
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.settings import SqliteSettings
from fixtures.waiting import WAIT_S


async def opened(tmp_path: Path, **settings: Any) -> Database:
    database = Database(tmp_path / "m.db", SqliteSettings(**settings))
    await database.open(lambda connection: None)
    return database


async def give_up(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def threads() -> Sequence[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("metadata-")]


async def test_a_close_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    database, gate = await opened(tmp_path), threading.Event()
    running = asyncio.create_task(database.run(gate.wait, WAIT_S))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    await give_up(closing)
    gate.set()
    await database.close()  # waits for the first

    assert closing.cancelled()
    assert await running
    assert not threads()
    for connection in (database.reader, database.writer):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


async def test_steps_that_were_given_up_count_until_the_thread_passes_over_them(tmp_path: Path) -> None:
    database, gate = await opened(tmp_path, queue_length_max=3), threading.Event()
    blocked = [asyncio.create_task(database.run(gate.wait, WAIT_S)) for _ in range(3)]
    await asyncio.sleep(0)
    await give_up(*blocked)
    with pytest.raises(Overloaded):
        await database.run_read(int)
    gate.set()
    await database.close()

    assert not threads()
