"""Histories of SQLite's roll-up: rounds of several processes on one file stop, end late, overlap and never end.

`python -m simulator.rounds A-B` runs seeds A to B and prints each violation; exit code 1: at least one. A seed repeats its steps.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from typing_extensions import override

from bearlake.metadata.sqlite.rollup import Round
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite
from simulator.upkeep_history import Broken, Run, UpkeepScenario, run_seeds

ROUND_COUNT_MAX = 4
"""Rounds that are under way at once."""

NEVER_MS = 1 << 40


class RoundScenario(UpkeepScenario[SqliteMetadata]):
    """Processes on one file; each step of a round is a transaction."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__(seed)
        self._path = path
        self._rounds: list[tuple[SqliteMetadata, Round, bool]] = []
        """Rounds that are under way, their processes, and whether they have read all their entries."""
        self._weights |= {
            self._begin: 8,
            self._advance: 30,
            self._abandon: 2,
            self._clean: 8,
            self._expire: 1,
            self._reload: 4,
        }

    @override
    async def _open(self) -> SqliteMetadata:
        draw = self._random.choice
        settings = SqliteSettings(
            synchronous="OFF",
            poll_interval_ms=0,
            page_slice_count_max=draw([1, 2, 4, 8]),
            roll_entry_count_max=draw([1, 2, 4, 8, 20]),
            roll_slice_count_max=draw([2, 6, 100]),
            roll_partition_count_max=draw([1, 1, 2, 3]),
            unrolled_entry_count_max=draw([3, 30, 1_000]),
            sweep_page_count_max=draw([1, 3, 20]),
            partition_count_cached_max=draw([1, 3, 100]),
        )
        return await open_sqlite(self._path, settings, clock=self._clock)

    @override
    def _stopped(self, store: SqliteMetadata) -> None:
        self._rounds = [found for found in self._rounds if found[0] is not store]

    async def _begin(self) -> None:
        if len(self._rounds) < ROUND_COUNT_MAX:
            store = self._store
            self._rounds.append((store, await store._database.run_read(store._log.upkeep._begin), False))

    async def _advance(self) -> None:
        """Let a round do its next transaction."""
        if not self._rounds:
            return
        at = self._random.randrange(len(self._rounds))
        store, round_, is_read = self._rounds[at]
        upkeep = store._log.upkeep
        if not is_read:
            is_read = not await store._database.run_read(upkeep._read, round_)
            is_more = not is_read or round_.end > round_.start
        else:
            is_more = await store._database.run(upkeep._write, round_)
            if not is_more:  # as `roll_up` and `maintain` go on
                if round_.is_done:
                    await store._database.run(upkeep._clean, 0)
                self.counts["round ended" if round_.is_done else "round was overtaken"] += 1
        if is_more:
            self._rounds[at] = store, round_, is_read
        else:
            del self._rounds[at]

    async def _abandon(self) -> None:
        if self._rounds:
            del self._rounds[self._random.randrange(len(self._rounds))]

    async def _clean(self) -> None:
        store = self._store
        await store._database.run(store._log.upkeep._clean, self._random.choice([0, 0, 5, 50]))

    async def _expire(self) -> None:
        """Roll up a round in one transaction, as the expiry of producers does; no producer has been idle for so long."""
        store = self._store
        await store._database.run(store._log.upkeep.forget_producers, NEVER_MS, 10)

    async def _reload(self) -> None:
        """Let all processes load their states again, as after an expiry."""
        store = self._store

        def count() -> None:
            with store._database.writing() as connection:
                connection.execute("UPDATE store SET forgotten_count = forgotten_count + 1")

        await store._database.run(count)


def run_rounds(seed: int, *, step_count: int = 150) -> Run:
    """Run one seed in a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = RoundScenario(seed, Path(folder) / "metadata.db")
        try:
            asyncio.run(scenario.run(step_count))
        except Broken as broken:
            return str(broken), scenario.counts
    return None, scenario.counts


if __name__ == "__main__":
    sys.exit(run_seeds(run_rounds, sys.argv[1]))
