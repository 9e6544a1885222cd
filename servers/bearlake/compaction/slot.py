"""Limits how many rounds commit at once. A round whose last commits are slow frees its place early, so that other rounds continue (I11)."""

import asyncio
from collections.abc import Collection

from bearlake.compaction.settings import WorkerSettings


class Slots:
    """Has `commits_under_way_max` places. Up to `slow_commits_max` commits that take longer than `commit_slow_ms` occupy no place."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._places = asyncio.Semaphore(settings.commits_under_way_max)
        self._slow_s = settings.commit_slow_ms / 1000
        self._slow_max = settings.slow_commits_max
        self._slow: set[asyncio.Task[None]] = set()

    async def acquire(self) -> None:
        """Wait for a place; `hold` frees it."""
        await self._places.acquire()

    async def hold(self, commits: Collection["asyncio.Task[None]"]) -> None:
        """Wait for a round's commits, and free its place: once all have ended, or all but slow ones. Raises only if cancelled."""
        is_held = True
        try:
            _, slow = await asyncio.wait(commits, timeout=self._slow_s) if commits else (set(), set())
            self._slow.update(slow)
            for commit in slow:
                commit.add_done_callback(self._slow.discard)
            if len(self._slow) <= self._slow_max:
                is_held = False
                self._places.release()
            if slow:
                await asyncio.wait(slow)
        finally:
            if is_held:
                self._places.release()
