"""What clients are told when the object store does not take an object.

Such an object fails alone; what was queued behind it is committed. Clients that hear of a failure send again, and conclude more from the
answer after that: "unknown producer" is fatal for librdkafka once it has sent a batch again. So each batch gets the best answer at once:

- The commit judges the batches of the object, although nothing of it can be accepted: one that is stored already is a duplicate, one
  whose producer has expired must start a new epoch. All others are NOT_STORED: send again.
- A later batch of an idempotent producer is refused (I9), because a sequence before it is missing. Its client has not heard of that yet,
  and librdkafka would start a new epoch without knowing what became of the first batch. So it is NOT_STORED, too.

A batch that the commit found UNSURE is missing for those behind it, too, but its own answer is that it may be stored.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from bearlake.errors import BearlakeError
from bearlake.metadata import CommitLog
from bearlake.metadata.model import BATCH_NAMED, BatchCommit, ObjectCommit, OutcomeKind, PartitionKey
from bearlake.streams.append import NOT_STORED, Result, Verdict
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

NEVER = 1 << 62
"""An expected offset that no partition reaches."""


class Missing:
    """Batches that were not stored, while later ones may be under way behind them. Objects have numbers, in the order of commits."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self._outage = Outage(
            log,
            "batches of objects that were not stored are not judged",
            "batches that were not stored are judged again",
        )
        self._missing: dict[tuple[PartitionKey, int], tuple[int, bool]] = {}
        """Partition and producer id of a missing batch: the last object with batches that were sent before its client knew; whether the
        missing batch begins its epoch, so that the producer is new in the partition, not expired."""

    def failed(self, number: int, batches: Sequence[BatchCommit], judged: Sequence[Result], last: int) -> list[Result]:
        """The answers for object `number`, which was not stored.

        Batches in objects up to number `last` may have been sent before their clients know of it.
        """
        self.unsure(batches, judged, last)
        answers: list[Result] = []
        for batch, result in zip(batches, judged, strict=True):
            if result[0] not in (Verdict.UNEXPECTED_OFFSET, Verdict.NOT_STORED):
                answers.append(self._answer(number, batch, result))
                continue
            answers.append(NOT_STORED)
            self._miss(batch, last)
        return answers

    def unsure(self, batches: Sequence[BatchCommit], results: Sequence[Result], last: int) -> None:
        """Some of an object's batches were UNSURE; `last` as in `failed`."""
        for batch, result in zip(batches, results, strict=True):
            if result[0] == OutcomeKind.UNSURE:
                self._miss(batch, last)

    def answers(self, number: int, batches: Sequence[BatchCommit], results: Sequence[Result]) -> list[Result]:
        """The answers for object `number`, which was committed with these results."""
        if not self._missing:
            return list(results)
        answers = [self._answer(number, batch, result) for batch, result in zip(batches, results, strict=True)]
        self._missing = {key: found for key, found in self._missing.items() if found[0] > number}
        return answers

    async def judged(self, commit: ObjectCommit) -> Sequence[Result]:
        """What the commit of an object that was not stored says, accepting nothing; asked once, and only for idempotent producers."""
        if any(map(_is_idempotent, commit.batches)):
            batches = [batch._replace(expected_offset=NEVER) for batch in commit.batches]
            try:
                outcomes = (await self._commit_log.commit(replace(commit, batches=batches))).outcomes
            except BearlakeError as error:
                self._outage.failed(error, key=commit.token)
            else:
                self._outage.over()
                return outcomes
        return [NOT_STORED] * len(commit.batches)

    def _miss(self, batch: BatchCommit, last: int) -> None:
        if _is_idempotent(batch):
            key = batch.partition, batch.producer_id
            is_first = batch.base_sequence == 0 or self._missing.get(key, (0, False))[1]
            self._missing[key] = last, is_first

    def _answer(self, number: int, batch: BatchCommit, result: Result) -> Result:
        last, is_first = self._missing.get((batch.partition, batch.producer_id), (-1, False))
        is_behind = result[0] == Verdict.OUT_OF_ORDER or (result[0] == Verdict.UNKNOWN_PRODUCER and is_first)
        return NOT_STORED if is_behind and number <= last else result


def _is_idempotent(batch: BatchCommit) -> bool:
    return batch.producer_id >= 0 and not batch.flags & BATCH_NAMED
