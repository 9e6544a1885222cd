"""Histories of PostgreSQL's roll-up: several processes on one database whose upkeep runs between, and beside, the calls of clients.

`python -m simulator.roll_ups A-B URL` runs seeds A to B in the database that the URL names, and prints each violation; exit code 1: at
least one. A seed repeats its steps, but not the order in which PostgreSQL runs two that are under way at once.
"""

import asyncio
import sys
from functools import partial

import asyncpg
from typing_extensions import override

from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.layout import Layout
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata, open_postgresql
from simulator.upkeep_history import Broken, Run, UpkeepScenario, run_seeds


class RollUpScenario(UpkeepScenario[PostgresqlMetadata]):
    """Processes on one schema; each step of their upkeep is a transaction."""

    def __init__(self, seed: int, url: str, layout: Layout | None) -> None:
        super().__init__(seed)
        self._url = url
        self._layout = layout
        self._clients = [self._commit, self._delete, self._trim, self._retain, self._compact, self._merge]
        self._weights |= {self._roll_up: 15, self._drop_pages: 12, self._beside: 20}

    @override
    async def _open(self) -> PostgresqlMetadata:
        draw = self._random.choice
        settings = PostgresqlSettings(
            page_slice_count_max=draw([1, 2, 4, 8]),
            roll_entry_count_max=draw([1, 2, 4, 8, 20]),
            roll_slice_count_max=draw([2, 6, 100]),
            sweep_page_count_max=draw([1, 3, 20]),
        )
        return await open_postgresql(self._url, settings, layout=self._layout)

    async def _roll_up(self) -> None:
        database, draw = self._store._database, self._random.choice
        step = call(
            "roll_up",
            entry_count_min=draw([0, 5]),
            entry_limit=draw([1, 2, 8]),
            slice_limit=draw([2, 6, 100]),
            page_slices=draw([1, 2, 8]),
        )
        self.counts["entries rolled up"] += await database.value(*step)

    async def _drop_pages(self) -> None:
        await self._store._database.rows(*call("sweep", limit=self._random.choice([1, 3, 20])))

    async def _beside(self) -> None:
        """Run a client's call while two steps of upkeep are under way."""
        steps = (
            self._random.choice(self._clients),
            self._random.choice([self._roll_up, self._drop_pages]),
            self._roll_up,
        )
        await asyncio.gather(*(step() for step in steps))


async def _run(seed: int, url: str, layout: Layout | None, step_count: int) -> Run:
    schema = f"history_{seed}"
    scenario = RollUpScenario(seed, f"{url}?schema={schema}", layout)
    violation = None
    try:
        await scenario.run(step_count)
    except Broken as broken:
        violation = str(broken)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"drop schema if exists {schema} cascade")
    finally:
        await connection.close()
    return violation, scenario.counts


def run_roll_ups(seed: int, url: str, *, layout: Layout | None = None, step_count: int = 150) -> Run:
    """Run one seed in a schema of its own. `layout`: the tables and functions; None: those of the product."""
    return asyncio.run(_run(seed, url, layout, step_count))


if __name__ == "__main__":
    sys.exit(run_seeds(partial(run_roll_ups, url=sys.argv[2]), sys.argv[1]))
