"""The saves of one group whose answers wait for them (decision 135): consumer groups, share groups and streams groups.

Each change is in memory at once. An answer waits for the save that contains all changes until then (`answered`). One save runs at a time,
and the next one takes what has changed meanwhile, so that many members share few saves. If a save fails, its changes stay in memory: the
members that waited get COORDINATOR_UNAVAILABLE and repeat all they know, and the next request tries to save again.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from bearlake.streams.groups.problems import GroupRefusal, Problem

T = TypeVar("T")


class Saving:
    """Counts the changes of a group, and gives answers when they are saved."""

    def __init__(self, on_save: Callable[[int], None]) -> None:
        """`on_save(ticket)` saves the group as it is; the caller then calls `saved` or `save_failed`."""
        self._on_save = on_save
        self._loop = asyncio.get_running_loop()
        self._changed = 0
        self._saved = 0
        self._saving = 0
        """Number of the last change; the number of changes that are saved; the ticket of the save that runs, 0 if none does."""
        self._waiting: list[tuple[int, asyncio.Future[Any], Any]] = []
        """Answers that wait for a save: the change, the future, its result (Any: of each request's type)."""
        self.is_closed = False

    @property
    def is_saved(self) -> bool:
        """Whether the store has everything."""
        return self._saved == self._changed

    def count_change(self) -> None:
        """Record that the group has changed."""
        self._changed += 1

    def answered(self, answer: T) -> asyncio.Future[T]:
        """Return a future that is done with the answer when all changes until now are saved."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self.is_saved:
            future.set_result(answer)
        else:
            self._waiting.append((self._changed, future, answer))
            self.save()
        return future

    def save(self) -> None:
        """Save what is not saved, now or when the save that runs is done."""
        if not self._saving and not self.is_saved and not self.is_closed:
            self._saving = self._changed
            self._on_save(self._saving)

    def saved(self, ticket: int) -> None:
        """The save with this ticket succeeded: give the answers that waited for it."""
        self._saving = 0
        self._saved = max(self._saved, ticket)
        done = [item for item in self._waiting if item[0] <= ticket]
        self._waiting = [item for item in self._waiting if item[0] > ticket]
        for _, future, answer in done:
            if not future.done():
                future.set_result(answer)
        self.save()

    def save_failed(self, ticket: int) -> None:
        """The save with this ticket failed: refuse the members that waited for it."""
        self._saving = 0
        self._refuse(ticket, Problem.COORDINATOR_UNAVAILABLE)
        if self._waiting:
            self.save()

    def refuse_all(self, problem: Problem) -> None:
        """Refuse all members that wait."""
        self._refuse(self._changed, problem)

    def _refuse(self, ticket: int, problem: Problem) -> None:
        refused = [item for item in self._waiting if item[0] <= ticket]
        self._waiting = [item for item in self._waiting if item[0] > ticket]
        for _, future, _ in refused:
            if not future.done():
                future.set_exception(GroupRefusal(problem))
                future.exception()
