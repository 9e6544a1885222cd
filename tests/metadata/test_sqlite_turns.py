"""Turns of the steps that write to a SQLite file: an abandoned step never happens after a later step has begun.

A step that is decided before it has the write lock is refused if another process had its turn in between.
"""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Conflict
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.metadata.transactions import Put, Transaction


async def test_a_later_step_does_not_overtake_a_step_that_was_given_up(tmp_path: Path) -> None:
    database = Database(tmp_path / "m.db", SqliteSettings())
    await database.open(lambda connection: None)
    order: list[str] = []
    is_held, is_let_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        is_let_go.wait()

    holder = threading.Thread(target=database.run_here, args=(hold,))
    holder.start()
    await asyncio.to_thread(is_held.wait)
    given_up = asyncio.ensure_future(database.run(order.append, "given up"))
    while not database._queue_lock.locked():  # noqa: ASYNC110, SLF001 - until its thread waits for the lock
        await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    never_begun = asyncio.ensure_future(database.run(order.append, "never begun"))
    await asyncio.sleep(0)
    never_begun.cancel()
    await asyncio.wait([never_begun])
    later = threading.Thread(target=database.run_here, args=(order.append, "later"))
    later.start()
    is_let_go.set()
    await asyncio.to_thread(later.join)
    holder.join()
    await database.close()

    assert order == ["given up", "later"]


async def test_a_change_is_refused_if_another_process_changes_the_row_after_its_decision(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = await open_sqlite(path, SqliteSettings(), clock=ManualClock())
    row = await store.transactions.put(Transaction(transactional_id="t", producer_id=7, epoch=0), 0)

    def decide(held: Transaction | None) -> Put:
        assert held == row
        with sqlite3.connect(path) as other:
            other.execute("UPDATE transactional_ids SET epoch = 9, version = version + 1")
        other.close()
        return Put(replace(held, epoch=1))

    with pytest.raises(Conflict):
        await store.transactions.change("t", decide)
    found = await store.transactions.get("t")
    await store.close()

    assert found is not None
    assert (found.epoch, found.version) == (9, row.version + 1)
