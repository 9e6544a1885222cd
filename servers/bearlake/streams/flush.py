"""One object in flight, and the thread that puts and commits it.

Where both stores are on this machine, the thread that has put the oldest object in flight also commits it (decisions 29 and 259): a flush
costs one switch to that thread and one back, without a task, a timer or a future per store. Only the oldest object takes this way, so
commits stay in seal order (I3). What it does not finish, the writer finishes on the event loop, with the same key and token.
"""

import asyncio
import time
from collections.abc import Collection

from bearlake.errors import BearlakeError
from bearlake.metadata import BlockingCommit
from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.objects import BlockingPut
from bearlake.streams.buffer import Sealed


class Flush:
    """A sealed object from its put to its answers."""

    __slots__ = ("before", "commit", "done", "key", "number", "sealed", "task")

    def __init__(
        self,
        number: int,
        sealed: Sealed,
        commit: ObjectCommit,
        before: "asyncio.Future[None] | None",
        done: "asyncio.Future[None]",
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
        self.task: asyncio.Task[None] | None = None
        """What finishes the flush on the event loop, if anything does."""


class Storing:
    """Puts and commits an object in one thread. The event loop reads the results once the step has ended."""

    __slots__ = ("_commit_here", "_put_here", "commit_error", "commit_s", "flush", "put_error", "put_s", "result")

    def __init__(self, flush: Flush, put_here: BlockingPut, commit_here: BlockingCommit) -> None:
        self.flush = flush
        self._put_here = put_here.attempt
        self._commit_here = commit_here.commit
        self.put_error: BearlakeError | None = None
        self.commit_error: BearlakeError | None = None
        self.result: ObjectCommitted | None = None
        """None: the object may not be committed; `put_error` or `commit_error` tells why."""
        self.put_s = self.commit_s = 0.0
        """Time of the attempts (s)."""

    def run(self) -> None:
        """Put, then commit; in the thread."""
        flush = self.flush
        started = time.monotonic()
        try:
            self._put_here(flush.key, flush.sealed.parts)
        except BearlakeError as error:
            self.put_error = error
            self.put_s = time.monotonic() - started
            return
        stored = time.monotonic()
        self.put_s = stored - started
        try:
            self.result = self._commit_here(flush.commit)  # I1: object first, commit second
        except BearlakeError as error:
            self.commit_error = error
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
