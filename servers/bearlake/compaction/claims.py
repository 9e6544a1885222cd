"""The tasks that a worker holds, and those that it has to give back: nobody else can claim them while it lives.

A task is given back until the store has answered. A claim without an answer may have taken tasks that the worker never heard of. Its
outcome is final as soon as the process's next write begins (I12): so one write, one look-up of all tasks behind it, and what is found is
given back.

A claim is held until the store has answered its last step (`done`), so a look-up never mistakes a task that is being ended for one that
the worker never heard of.
"""

from collections.abc import Iterable

from bearlake.metadata.compaction import Task, TaskClaim, TaskQueue
from bearlake.metadata.model import ServerRef


class Claims:
    """See the module. Used by one worker."""

    def __init__(self, tasks: TaskQueue, server: ServerRef) -> None:
        self._tasks = tasks
        self._server = server
        self._held: dict[int, TaskClaim] = {}
        self._owed: dict[int, tuple[TaskClaim, int]] = {}
        self._is_in_doubt = False

    @property
    def held_count(self) -> int:
        """Tasks that are held."""
        return len(self._held)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held or owed, and no claim is in doubt."""
        return not (self._held or self._owed or self._is_in_doubt)

    def take(self, tasks: Iterable[Task]) -> dict[int, TaskClaim]:
        """These were claimed; the claims by task id."""
        claims = {task.id: TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server) for task in tasks}
        self._held.update(claims)
        return claims

    def done(self, claim: TaskClaim) -> None:
        """The store has answered: the task is not ours any more, because it is done, failed, dropped, or another's."""
        if self._held.get(claim.task_id) == claim:  # a newer claim of the same task stays
            del self._held[claim.task_id]

    def owe(self, claims: Iterable[TaskClaim], wait_ms: int = 0) -> None:
        """Give these back as soon as the store answers, not to be claimed for `wait_ms`; without effect for those that another holds
        by then."""
        for claim in claims:
            self.done(claim)
            self._owed[claim.task_id] = claim, wait_ms

    def doubt(self) -> None:
        """A claim had no answer."""
        self._is_in_doubt = True

    def drop(self) -> list[TaskClaim]:
        """Forget everything; returns what was held or owed."""
        claims = [*self._held.values(), *(claim for claim, _ in self._owed.values())]
        self._held.clear()
        self._owed.clear()
        self._is_in_doubt = False
        return claims

    async def settle(self) -> None:
        """Give back what is to be given back. Raises `Unavailable`, `Overloaded`: it stays owed."""
        if self._is_in_doubt:
            await self._tasks.release([])  # a write: what the claim has not taken by now, it will not take
            await self._find_unheard()
            self._is_in_doubt = False
        owed = list(self._owed.values())
        for wait_ms in sorted({wait_ms for _, wait_ms in owed}):
            claims = [claim for claim, waits_ms in owed if waits_ms == wait_ms]
            await self._tasks.release(claims, wait_ms=wait_ms)
            for claim in claims:
                if self._owed.get(claim.task_id) == (claim, wait_ms):
                    del self._owed[claim.task_id]

    async def _find_unheard(self) -> None:
        heard = {
            *self._held.values(),
            *(claim for claim, _ in self._owed.values()),
        }  # before the look: what ends meanwhile was heard of
        after = 0
        while page := await self._tasks.list(after=after):
            after = page[-1].id
            for task in page:
                claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server)
                if task.holder == self._server and claim not in heard:
                    self._owed[task.id] = claim, 0
