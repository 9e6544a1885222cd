"""Chooses the answers to producers when the put of an object fails.

A failed put affects only its object; the writer still commits later objects. Clients retry after a failure, and then the answer matters:
"unknown producer" is fatal for librdkafka once it has retried a batch. So each batch gets the most precise answer at once:

- The store decides the object's batches in a commit that accepts nothing. A batch that is stored already is a duplicate; a batch whose
  producer has expired must start a new epoch. All other batches are NOT_STORED: the client retries.
- The store refuses later batches of an idempotent producer (I9), because an earlier sequence is missing. The client does not know that yet,
  and librdkafka would start a new epoch although the outcome of the first batch is unknown. So these batches are NOT_STORED, too.

A batch that the commit found UNSURE counts as missing for later batches, too, but its own answer is that it may be stored.
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


class UnstoredBatches:
    """Batches that were not stored while later batches may be in flight. Objects are numbered in commit order."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self._outage = Outage(
            log,
            "cannot check the batches of objects that were not stored",
            "checking the batches of objects that were not stored works again",
        )
        self._missing: dict[tuple[PartitionKey, int], tuple[int, bool]] = {}
        """Missing batches, by partition and producer id. A value is (last object that may hold batches sent before the client knew of the
        failure, whether the missing batch begins its epoch). In the latter case, the producer is new in the partition, not expired."""

    def answers_not_stored(
        self, number: int, batches: Sequence[BatchCommit], results: Sequence[Result], last: int
    ) -> list[Result]:
        """Return the answers for object `number`, which was not stored.

        Clients may have sent batches in objects up to `last` before they learned of the failure.
        """
        self.record_unsure(batches, results, last)
        answers: list[Result] = []
        for batch, result in zip(batches, results, strict=True):
            if result[0] not in (Verdict.UNEXPECTED_OFFSET, Verdict.NOT_STORED):
                answers.append(self._answer(number, batch, result))
                continue
            answers.append(NOT_STORED)
            self._miss(batch, last)
        return answers

    def record_unsure(self, batches: Sequence[BatchCommit], results: Sequence[Result], last: int) -> None:
        """Record the UNSURE batches of an object; `last` as in `answers_not_stored`."""
        for batch, result in zip(batches, results, strict=True):
            if result[0] == OutcomeKind.UNSURE:
                self._miss(batch, last)

    def answers_committed(
        self, number: int, batches: Sequence[BatchCommit], results: Sequence[Result]
    ) -> Sequence[Result]:
        """Return the answers for object `number`, which was committed with these results."""
        if not self._missing:
            return results
        answers = [self._answer(number, batch, result) for batch, result in zip(batches, results, strict=True)]
        self._missing = {key: found for key, found in self._missing.items() if found[0] > number}
        return answers

    async def outcomes(self, commit: ObjectCommit) -> Sequence[Result]:
        """Ask the store to decide the batches of an object that was not stored, accepting none; once, and only for idempotent producers."""
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
