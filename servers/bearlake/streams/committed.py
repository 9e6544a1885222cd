"""Committed records only: what is left of a read for readers of committed records (KIP-98, `read_committed`).

- An answer has one view of its partition (`View`): end, last stable offset and aborted transactions are as of one state, so an answer
  never ends before a record that its end promises. The view comes first, and the records are read after it.
- An answer ends below the last stable offset. The batch with the first offset of the oldest open transaction is the first that it leaves
  out.
- Batches of aborted transactions become empty batches with the same offsets, like those for offsets without rows (decision 27). So the
  client needs no list of aborted transactions, and every protocol reads the same.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.index.isolation import IsolationIndex, PartitionIsolation
from bearlake.index.tail import NEVER, PartitionTail, TailIndex
from bearlake.metadata.aborted import NOTHING_ABORTED, AbortedTransactions
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.transactions import Transactions
from bearlake.records.batch import is_transactional
from bearlake.streams.fetched import Fetched
from bearlake.streams.history_pieces import empty_batch

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Reads of the store until its answer is not older than the log that this server follows; usually the first one is not."""


class View(NamedTuple):
    """What one answer knows of a partition, all as of one state: every record below `last_stable` is decided, and `aborted` says how."""

    start: int
    end: int
    last_stable: int
    aborted: AbortedTransactions
    """The aborted transactions; `NOTHING_ABORTED` if none may have records in the answer."""


def keep_committed(fetched: Fetched, view: View, read_end: int) -> None:
    """Reduce an answer to committed records. Partitions without transactions cost nothing.

    `read_end`: the end of the records that were read, or a larger offset.
    """
    if not fetched.views or (view.aborted is NOTHING_ABORTED and read_end <= view.last_stable):
        return
    kept: list[memoryview] = []
    for run in fetched.views:
        is_end = False
        for piece, is_last in _committed(run, view.aborted, view.last_stable):
            kept.append(piece)
            is_end = is_last
        if is_end:
            break
    fetched.views = [piece for piece in kept if piece]
    fetched.size_bytes = sum(map(len, fetched.views))


def _committed(view: memoryview, aborted: AbortedTransactions, limit: int) -> Iterator[tuple[memoryview, bool]]:
    """Yield the parts of a run of batches that may be read, each with whether it is the last one of the answer.

    Aborted batches in a row become one empty batch.
    """
    low = 0  # the bytes from `low` on are not yielded yet
    hole = hole_end = -1  # the offsets of the aborted batches before `low` that are not yielded yet; -1: there are none
    for position, base_offset, header in kernel.batches(view, 0, len(view)):
        is_over = base_offset >= limit
        is_aborted = (
            not is_over and is_transactional(header.attributes) and aborted.has(header.producer_id, base_offset)
        )
        if hole >= 0 and not is_aborted:
            yield empty_batch(hole, hole_end - hole), False
            hole = -1
        if is_over:
            yield view[low:position], True
            return
        if is_aborted:
            if hole < 0:
                yield view[low:position], False
                hole = base_offset
            hole_end = base_offset + header.last_offset_delta + 1
            low = position + header.length
    if hole >= 0:
        yield empty_batch(hole, hole_end - hole), False
    yield view[low:], False


class CommittedViews:
    """The views of readers of committed records. The states behind them are read once per partition (`index/isolation.py`).

    Use it from the event loop's thread only.
    """

    def __init__(self, transactions: Transactions, index: IsolationIndex, tail: TailIndex) -> None:
        self._transactions = transactions
        self._index = index
        self._tail = tail
        index.on_change = self._mark

    def _mark(self, partition: PartitionKey) -> None:
        """Set `committed_from` of the partition's tail, so that reads of committed records at the tail need no view."""
        tail = self._tail.get(partition)
        if tail is not None:
            known = self._get(partition, tail)
            offset = -1 if known is None else known.committed_from
            tail.committed_from = offset if offset >= 0 else NEVER

    def _get(self, partition: PartitionKey, tail: PartitionTail | None) -> PartitionIsolation | None:
        """Return the partition's state if it covers all records of the tail; None if the state must be read (again)."""
        known = self._index.get(partition)
        return known if known is not None and (tail is None or known.end >= tail.store_end) else None

    def view(self, partition: PartitionKey, tail: PartitionTail, offset: int) -> View | None:
        """Return the view of a reader at `offset`, as of the log that this server follows; None if it must be read from the store."""
        known = self._get(partition, tail)
        if known is None:
            return None
        start = max(known.start, tail.start)
        if not start <= offset <= tail.end:
            return None
        return View(tail.start, tail.end, max(start, known.last_stable(tail.end)), known.aborted_from(offset))

    async def read(self, partition: PartitionKey) -> View | None:
        """Return the store's view; None if there is no such partition. Raises `Unavailable` and `Overloaded`."""
        found = (await self._transactions.isolation([partition])).get(partition)
        if found is None:
            return None
        known = PartitionIsolation(found)
        return View(known.start, known.end, known.last_stable(known.end), known.aborted_from(-1))

    async def know(self, partitions: Sequence[PartitionKey]) -> None:
        """Read the states that are not known, and mark the tails.

        A state that stays unknown is read from the store by each reader: see `read`.
        """
        try:
            for _ in range(ATTEMPTS):
                unknown = [
                    partition
                    for partition in partitions
                    if (tail := self._tail.get(partition)) is not None and self._get(partition, tail) is None
                ]
                if not unknown:
                    for partition in partitions:
                        self._mark(partition)
                    return
                self._index.learn(await self._transactions.isolation(unknown))
        except BearlakeError as error:
            log.warning("cannot read the transactions of partitions", extra={"error": repr(error)})
