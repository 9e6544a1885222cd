"""The tasks that a worker holds, and those that it has to give back: nobody else can claim them while it lives.

A task is given back until the store has answered. A claim without an answer may have taken tasks that the worker never heard of;
they are looked up for a while and given back.
"""

import asyncio
from collections.abc import Iterable

from bearlake.metadata.compaction import Task, TaskClaim, TaskQueue
from bearlake.metadata.model import ServerRef

DOUBT_S = 60.0
"""For so long after a claim without an answer, tasks are looked up that it may have taken."""
LOOK_PAUSE_S = 2.0


class Claims:
    """See the module. Used by one worker."""

    def __init__(self, tasks: TaskQueue, server: ServerRef) -> None:
        self._tasks = tasks
        self._server = server
        self._held: dict[int, TaskClaim] = {}
        self._owed: dict[int, tuple[TaskClaim, int]] = {}
        self._doubt_until_s = self._look_at_s = -1.0

    @property
    def held_count(self) -> int:
        """Tasks that are held."""
        return len(self._held)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held or owed."""
        return not self._held and not self._owed

    def take(self, tasks: Iterable[Task]) -> dict[int, TaskClaim]:
        """These were claimed; the claims by task id."""
        claims = {task.id: TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server) for task in tasks}
        self._held.update(claims)
        return claims

    def done(self, claim: TaskClaim) -> None:
        """The task is not ours any more: done, failed, dropped."""
        self._held.pop(claim.task_id, None)

    def owe(self, claims: Iterable[TaskClaim], wait_ms: int = 0) -> None:
        """Give these back as soon as the store answers, not to be claimed for `wait_ms`; without effect for those that another holds
        by then."""
        for claim in claims:
            self._held.pop(claim.task_id, None)
            self._owed[claim.task_id] = claim, wait_ms

    def doubt(self) -> None:
        """A claim had no answer."""
        self._doubt_until_s = asyncio.get_running_loop().time() + DOUBT_S

    def drop(self) -> list[TaskClaim]:
        """Forget everything; returns what was held or owed."""
        claims = [*self._held.values(), *(claim for claim, _ in self._owed.values())]
        self._held.clear()
        self._owed.clear()
        return claims

    async def settle(self) -> None:
        """Give back what is to be given back. Raises `Unavailable`, `Overloaded`: it stays owed."""
        now_s = asyncio.get_running_loop().time()
        if self._look_at_s <= now_s < self._doubt_until_s:
            self._look_at_s = now_s + LOOK_PAUSE_S
            await self._find_unheard()
        owed = list(self._owed.values())
        for wait_ms in sorted({wait_ms for _, wait_ms in owed}):
            claims = [claim for claim, waits_ms in owed if waits_ms == wait_ms]
            await self._tasks.release(claims, wait_ms=wait_ms)
            for claim in claims:
                if self._owed.get(claim.task_id) == (claim, wait_ms):
                    del self._owed[claim.task_id]

    async def _find_unheard(self) -> None:
        after = 0
        while page := await self._tasks.list(after=after):
            after = page[-1].id
            for task in page:
                if task.holder == self._server and task.id not in self._held:
                    self._owed[task.id] = TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server), 0
