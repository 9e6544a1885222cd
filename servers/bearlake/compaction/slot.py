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
        self._overdue: set[_Place] = set()
        """Places of rounds that have only slow commits left, while too many commits are slow."""

    async def acquire(self) -> None:
        """Wait for a place; `hold` frees it."""
        await self._places.acquire()

    async def hold(self, commits: Collection["asyncio.Task[None]"]) -> None:
        """Wait for a round's commits, and free its place: once all have ended, or all but slow ones. Raises only if cancelled."""
        place = _Place(self._places)
        try:
            _, slow = await asyncio.wait(commits, timeout=self._slow_s) if commits else (set(), set())
            self._slow.update(slow)
            for commit in slow:
                commit.add_done_callback(self._ended)
            self._overdue.add(place)
            self._free_overdue()
            if slow:
                await asyncio.wait(slow)
        finally:
            self._overdue.discard(place)
            place.free()

    def _ended(self, commit: "asyncio.Task[None]") -> None:
        self._slow.discard(commit)
        self._free_overdue()

    def _free_overdue(self) -> None:
        if len(self._slow) <= self._slow_max:
            while self._overdue:
                self._overdue.pop().free()


class _Place:
    """The place of one round; freed once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places

    def free(self) -> None:
        """Free the place. Safe to repeat."""
        places, self._places = self._places, None
        if places is not None:
            places.release()
