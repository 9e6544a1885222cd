"""Batches that the object store did not take, for as long as later batches of their producers may be under way behind them.

An object that cannot be stored fails alone, and what was queued behind it is committed. A later batch of an idempotent producer is refused
then (I9), because the sequence before it is missing. To its client that refusal says "you skipped a batch": librdkafka starts a new epoch
although it does not know yet what became of the first batch. So the later batch is answered like the first one: not stored, send again.
"""

from collections.abc import Sequence

from bearlake.metadata.model import BATCH_NAMED, BatchCommit, PartitionKey
from bearlake.streams.append import NOT_STORED, Result, Verdict

_BEHIND = (Verdict.OUT_OF_ORDER, Verdict.UNKNOWN_PRODUCER)


class Missing:
    """Objects have numbers, in the order in which they are sealed and committed."""

    def __init__(self) -> None:
        self._last: dict[tuple[PartitionKey, int], int] = {}
        """Partition and producer id of a missing batch: the last object that may hold a batch which was sent before its client knew."""

    def failed(self, batches: Sequence[BatchCommit], last: int) -> None:
        """These were not stored; objects up to number `last` may hold later batches of their producers."""
        for batch in batches:
            if batch.producer_id >= 0 and not batch.flags & BATCH_NAMED:
                self._last[batch.partition, batch.producer_id] = last

    def answers(self, number: int, batches: Sequence[BatchCommit], results: Sequence[Result]) -> list[Result]:
        """The results of object `number`, those of batches behind a missing one as told above. Objects come in order."""
        if not self._last:
            return list(results)
        answers = [
            NOT_STORED
            if result[0] in _BEHIND and self._last.get((batch.partition, batch.producer_id), -1) >= number
            else result
            for batch, result in zip(batches, results, strict=True)
        ]
        self._last = {key: last for key, last in self._last.items() if last > number}
        return answers
