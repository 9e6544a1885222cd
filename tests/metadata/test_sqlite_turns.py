"""Turns of the steps that write to a SQLite file: a step that is given up before its turn never happens.

A step that is decided before it has the write lock is refused if another process had its turn in between.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Conflict
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.metadata.transactions import Put, Transaction
from bearlake.streams.transactions import TransactionService, TransactionSettings


class Held:
    """Another thread of this process writes, until it is let go."""

    def __init__(self, database: Database) -> None:
        self._is_held, self._is_let_go = threading.Event(), threading.Event()
        self._database = database
        self._thread = threading.Thread(target=database.run_here, args=(self._hold,))

    def _hold(self) -> None:
        self._is_held.set()
        self._is_let_go.wait()

    async def begin(self) -> None:
        self._thread.start()
        await asyncio.to_thread(self._is_held.wait)

    async def queue(self, step: Awaitable[object]) -> "asyncio.Future[object]":
        """Start a step; returns when its thread waits for the write lock."""
        queued = asyncio.ensure_future(step)
        while not self._database._queue_lock.locked():  # noqa: ASYNC110, SLF001
            await asyncio.sleep(0)
        return queued

    async def let_go(self) -> None:
        self._is_let_go.set()
        await asyncio.to_thread(self._thread.join)


async def give_up(step: "asyncio.Future[Any]") -> None:
    step.cancel()
    await asyncio.wait([step])


async def test_steps_run_in_the_order_in_which_they_began_to_wait(tmp_path: Path) -> None:
    database = Database(tmp_path / "m.db", SqliteSettings())
    await database.open(lambda connection: None)
    order: list[str] = []
    held = Held(database)
    await held.begin()
    waiting = await held.queue(database.run(order.append, "first"))
    later = threading.Thread(target=database.run_here, args=(order.append, "later"))
    later.start()
    await held.let_go()
    await waiting
    await asyncio.to_thread(later.join)
    await database.close()

    assert order == ["first", "later"]


async def test_a_step_that_is_given_up_before_its_turn_never_happens(tmp_path: Path) -> None:
    database = Database(tmp_path / "m.db", SqliteSettings())
    await database.open(lambda connection: None)
    order: list[str] = []
    held = Held(database)
    await held.begin()
    at_the_lock = await held.queue(database.run(order.append, "at the lock"))
    in_the_queue = asyncio.ensure_future(database.run(order.append, "in the queue"))
    await asyncio.sleep(0)
    await give_up(at_the_lock)
    await give_up(in_the_queue)
    await held.let_go()
    await database.run(order.append, "later")
    await database.close()

    assert order == ["later"]


async def test_an_end_that_is_given_up_before_its_turn_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """Its client repeated it through another process, and went on. Transactions of KIP-98 share an epoch (decision 182)."""
    clock = ManualClock()
    slow, other = [await open_sqlite(tmp_path / "m.db", SqliteSettings(), clock=clock) for _ in range(2)]
    slow_service, other_service = [TransactionService(store, TransactionSettings()) for store in (slow, other)]
    who = await other_service.initialize("copier", 60_000)
    await other_service.add("copier", who, partitions=[PartitionKey(1)])
    held = Held(slow._database)  # noqa: SLF001
    await held.begin()
    given_up = await held.queue(slow_service.end("copier", who, is_commit=True, bumps=False))
    await give_up(given_up)
    await other_service.end("copier", who, is_commit=True, bumps=False)
    clock.advance(5)
    await other_service.add("copier", who, partitions=[PartitionKey(2)])
    await held.let_go()
    await slow.transactions.forget("nobody", 1)  # its turn comes after that of the step that was given up
    found = await other.transactions.get("copier")
    await slow.close()
    await other.close()

    assert found is not None
    assert found.is_ongoing


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


@pytest.mark.parametrize("is_end", [False, True], ids=["put", "end"])
async def test_a_change_happens_at_the_time_at_which_it_gets_its_turn(tmp_path: Path, is_end: bool) -> None:
    path, clock = tmp_path / "m.db", ManualClock()
    store = await open_sqlite(path, SqliteSettings(busy_timeout_ms=60_000), clock=clock)
    service = TransactionService(store, TransactionSettings())
    who = await service.initialize("copier", 60_000)
    if is_end:
        await service.add("copier", who, partitions=[PartitionKey(1)])
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    store._database.writer.set_trace_callback(  # noqa: SLF001
        lambda statement: (
            loop.call_soon_threadsafe(begun.set) if statement.startswith("BEGIN" if is_end else "UPDATE") else None
        )
    )
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    work = service.end("copier", who, is_commit=True, bumps=False) if is_end else service.add("copier", who, group="g")
    changing = asyncio.ensure_future(work)
    await begun.wait()
    clock.advance(5_000)
    for _ in range(2):  # the second of these attempts has begun after the clock's step
        begun.clear()
        await begun.wait()
    other.execute("COMMIT")
    await changing
    found = await store.transactions.get("copier")
    await store.close()
    other.close()

    assert found is not None
    assert found.changed_ms == clock.now_ms()
    assert found.started_ms == (-1 if is_end else clock.now_ms())
