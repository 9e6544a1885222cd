"""Turns of the steps that write to a SQLite file: an abandoned step never happens after a later step has begun."""

import asyncio
import threading
from pathlib import Path

from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.settings import SqliteSettings


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
