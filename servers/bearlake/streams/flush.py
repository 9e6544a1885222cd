"""One object in flight, and the threads that put and commit it.

Where both stores are on this machine, threads put and commit the objects (decisions 29 and 259): a flush costs one switch to a thread and
one back, without a task, a timer or a future per store. Objects in flight at the same time are put at the same time, and committed in seal
order (I3, decision 349). What threads do not finish, the writer finishes on the event loop, with the same key and token.
"""

import asyncio
import time
from collections.abc import Collection

from bearlake.errors import BearlakeError
from bearlake.metadata import BlockingCommit
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, OutcomeRows
from bearlake.objects import BlockingPut
from bearlake.streams.buffer import Sealed


class Flush:
    """A sealed object from its put to its answers."""

    __slots__ = ("before", "commit", "done", "key", "number", "sealed", "since", "task")

    def __init__(
        self,
        number: int,
        sealed: Sealed,
        commit: ObjectCommit,
        before: "asyncio.Future[None] | None",
        done: "asyncio.Future[None]",
        since: float,
    ) -> None:
        self.number = number
        """Objects are numbered in seal order."""
        self.sealed = sealed
        self.key = commit.token
        self.commit = commit
        self.before = before
        """`done` of the object before."""
        self.done = done
        """Set once the next object may be committed."""
        self.since = since
        """Loop time of the first batch."""
        self.task: asyncio.Task[None] | None = None
        """What finishes the flush on the event loop, if anything does."""


class CommitOrder:
    """The object that may be committed next, because all objects before it are committed or have failed for good (I3).

    A thread moves it forward if every batch was accepted, else the event loop does once the object has ended.
    """

    __slots__ = ("next_number",)

    def __init__(self) -> None:
        self.next_number = 1

    def ended(self, number: int) -> None:
        """Let the object after `number` be committed; on the event loop, which has answered all objects up to `number`."""
        if self.next_number <= number:  # else a thread has committed it, and perhaps others after it
            self.next_number = number + 1


class Storing:
    """Puts an object in a thread, and commits it in its turn. The event loop reads the results once the step has ended."""

    __slots__ = (
        "_commit_here",
        "_is_stored",
        "_order",
        "_put_here",
        "commit_error",
        "commit_s",
        "flush",
        "put_error",
        "put_s",
        "result",
    )

    def __init__(self, flush: Flush, put_here: BlockingPut, commit_here: BlockingCommit, order: CommitOrder) -> None:
        self.flush = flush
        self._put_here = put_here.attempt
        self._commit_here = commit_here.commit
        self._order = order
        self._is_stored = False
        self.put_error: BearlakeError | None = None
        self.commit_error: BearlakeError | None = None
        self.result: ObjectCommitted | None = None
        """None: the event loop has to commit the object, because of `put_error`, of `commit_error` or of an earlier object."""
        self.put_s = self.commit_s = 0.0
        """Time of the attempts (s)."""

    def put(self) -> None:
        """Put the object; at the same time as other objects."""
        started = time.monotonic()
        try:
            self._put_here(self.flush.key, self.flush.sealed.parts)
            self._is_stored = True
        except BearlakeError as error:
            self.put_error = error
        self.put_s = time.monotonic() - started

    def commit(self) -> None:
        """Commit the object if it is stored and may be committed next; in seal order."""
        order, number = self._order, self.flush.number
        if not self._is_stored or order.next_number != number:
            return
        stored = time.monotonic()
        try:
            result = self.result = self._commit_here(self.flush.commit)  # I1: object first, commit second
        except BearlakeError as error:
            self.commit_error = error
        else:
            if not OutcomeRows.of(result.outcomes).others():
                order.next_number = number + 1
        self.commit_s = time.monotonic() - stored

    def forget_errors(self) -> None:
        """Drop the errors, whose tracebacks hold this object and the flush's buffer."""
        self.put_error = self.commit_error = None


async def unfinished(flushes: Collection[Flush], wait_ms: float) -> int:
    """Wait up to `wait_ms` for the flushes, also for those whose thread still works; return how many are not over then."""
    if not flushes:
        return 0
    _, late = await asyncio.wait([flush.done for flush in flushes], timeout=wait_ms / 1000)
    return len(late)
