"""The tasks that a worker holds, and those that it must release: no other worker can claim them while this worker lives.

The worker keeps giving a task back until the store has answered. A claim without an answer may have taken tasks unknown to the worker.
The claim's outcome is final as soon as the process's next write begins (I12): the worker therefore makes one write, then looks up all
tasks, and gives back the unknown ones.

A claim is held until the store has answered its last step (`done`). Otherwise a look-up could mistake a task that is ending for an unknown
task.
"""

from collections.abc import Iterable

from bearlake.metadata.compaction import Task, TaskClaim, TaskQueue
from bearlake.metadata.model import ServerRef


class Claims:
    """The claims of one worker; see the module docstring."""

    def __init__(self, tasks: TaskQueue, server: ServerRef) -> None:
        self._tasks = tasks
        self._server = server
        self._held: dict[int, TaskClaim] = {}
        self._due: dict[int, tuple[TaskClaim, int]] = {}
        self._has_unanswered = False

    @property
    def held_count(self) -> int:
        """Number of held tasks."""
        return len(self._held)

    @property
    def is_empty(self) -> bool:
        """Whether no claim is held, due for release or unanswered."""
        return not (self._held or self._due or self._has_unanswered)

    def take(self, tasks: Iterable[Task]) -> dict[int, TaskClaim]:
        """Add claimed tasks; return the claims by task id."""
        claims = {task.id: TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server) for task in tasks}
        self._held.update(claims)
        return claims

    def done(self, claim: TaskClaim) -> None:
        """Remove a claim after the store has answered: the task is done, failed, dropped, or claimed by another worker."""
        if self._held.get(claim.task_id) == claim:  # keep a newer claim of the same task
            del self._held[claim.task_id]

    def release_later(self, claims: Iterable[TaskClaim], wait_ms: int = 0) -> None:
        """Give these back as soon as the store answers; the store offers them again after `wait_ms`. No effect on tasks that another
        worker holds by then."""
        for claim in claims:
            self.done(claim)
            self._due[claim.task_id] = claim, wait_ms

    def record_unanswered(self) -> None:
        """Note that a claim had no answer."""
        self._has_unanswered = True

    def drop(self) -> list[TaskClaim]:
        """Forget all claims; return those held or due for release."""
        claims = [*self._held.values(), *(claim for claim, _ in self._due.values())]
        self._held.clear()
        self._due.clear()
        self._has_unanswered = False
        return claims

    async def release_due(self) -> None:
        """Release the claims that are due. Raises `Unavailable`, `Overloaded`; the claims then stay due."""
        if self._has_unanswered:
            await self._tasks.release([])  # a write: from now on, the unanswered claim can take no more tasks
            await self._find_unanswered()
            self._has_unanswered = False
        due = list(self._due.values())
        for wait_ms in sorted({wait_ms for _, wait_ms in due}):
            claims = [claim for claim, waits_ms in due if waits_ms == wait_ms]
            await self._tasks.release(claims, wait_ms=wait_ms)
            for claim in claims:
                if self._due.get(claim.task_id) == (claim, wait_ms):
                    del self._due[claim.task_id]

    async def _find_unanswered(self) -> None:
        known = {
            *self._held.values(),
            *(claim for claim, _ in self._due.values()),
        }  # read before the look-up, so that tasks ending in the meantime count as known
        after = 0
        while page := await self._tasks.list(after=after):
            after = page[-1].id
            for task in page:
                claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server)
                if task.holder == self._server and claim not in known:
                    self._due[task.id] = claim, 0
