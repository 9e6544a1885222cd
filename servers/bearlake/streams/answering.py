"""The last step of a flush: readers see a committed object, then its callers are answered (*acknowledge third*, I1)."""

import asyncio
from collections.abc import Callable

from bearlake.metadata import BlockingCommit
from bearlake.metadata.model import ObjectCommitted, ObjectRef, OutcomeKind
from bearlake.streams import outcomes
from bearlake.streams.append import Appended
from bearlake.streams.flush import Flush
from bearlake.streams.unstored_batches import UnstoredBatches
from bearlake.streams.waiting_calls import WaitingCalls
from bearlake.telemetry import metrics

OnCommitted = Callable[[ObjectRef, bytearray | None, ObjectCommitted], bool]


class Answering:
    """Answers the calls of one writer. Use it from the event loop's thread only."""

    def __init__(
        self,
        calls: WaitingCalls,
        unstored: UnstoredBatches,
        seen: outcomes.Seen,
        on_committed: OnCommitted,
        on_repeated: Callable[[], None],
        commit_here: BlockingCommit | None,
        newest_number: Callable[[], int],
    ) -> None:
        """`on_committed`, `on_repeated` and `seen` as in `Writer`.

        `newest_number` returns the number that the open buffer's object will have.
        """
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._unstored = unstored
        self._seen = seen
        self._on_committed = on_committed
        self._on_repeated = on_repeated
        self._commit_here = commit_here
        self._newest_number = newest_number

    def committed(self, flush: Flush, result: ObjectCommitted) -> bool:
        """Show a commit to readers, then answer; returns True if batches are UNSURE, and `unsure` has to answer."""
        sealed = flush.sealed
        others = outcomes.count(result, sealed.queued.size)
        if result.position:
            is_applied = self._on_committed(ObjectRef(flush.key, sealed.size), sealed.buffer, result)
            if self._commit_here is not None:  # now, so that the follower need not read the entry
                self._commit_here.announce(result.position, is_applied=is_applied)
        if OutcomeKind.DUPLICATE in others:
            self._on_repeated()
        if OutcomeKind.UNSURE in others:
            return True
        self._answer(flush, result)
        return False

    async def unsure(self, flush: Flush, result: ObjectCommitted) -> None:
        """Read the log's head, so that later batches are not UNSURE, too; then answer."""
        await self._seen.read_head()
        self._unstored.record_unsure(flush.sealed.batches, result.outcomes, self._newest_number())
        self._answer(flush, result)

    async def not_stored(self, flush: Flush) -> None:
        """Answer after a put that has failed for good, behind the object before."""
        if flush.before is not None:
            await flush.before
        batches = flush.sealed.batches
        results = await self._unstored.outcomes(flush.commit)
        answers = self._unstored.answers_not_stored(flush.number, batches, results, self._newest_number())
        self._calls.resolve(flush.sealed.queued, answers)

    def all(self, flush: Flush, answer: Appended) -> None:
        """Give every batch the same answer."""
        self._calls.resolve(flush.sealed.queued, [answer] * len(flush.sealed.batches))

    def _answer(self, flush: Flush, result: ObjectCommitted) -> None:
        sealed = flush.sealed
        answers = self._unstored.answers_committed(flush.number, sealed.batches, result.outcomes)
        self._calls.resolve(sealed.queued, answers)
        metrics.APPEND_SECONDS.observe(self._loop.time() - flush.since)
