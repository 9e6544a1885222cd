"""Committed records only: what is left of a read for readers of committed records (KIP-98, `read_committed`).

- An answer has one view of its partition (`View`): end, last stable offset and aborted transactions are as of one state, so an answer
  never ends before a record that its end promises. The view comes first, and the records are read after it.
- Nothing at or above the last stable offset: the batch that holds the oldest open transaction's first offset is the first one left out.
- A batch of an aborted transaction becomes an empty batch with the same offsets, like those for offsets without rows (decision 27). So the
  client needs no list of aborted transactions, and every protocol reads the same.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.index.isolation import IsolationIndex, PartitionIsolation
from bearlake.index.tail import NEVER, PartitionTail, TailIndex
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.transactions import Aborted, Transactions
from bearlake.records.batch import is_transactional
from bearlake.streams.fetched import Fetched
from bearlake.streams.history import empty_batch

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Reads of the store until its answer is not older than the log that this server follows; usually the first one is not."""


class View(NamedTuple):
    """What one answer knows of a partition, all as of one state: every record below `last_stable` is decided, and `aborted` says how."""

    start: int
    end: int
    last_stable: int
    aborted: Sequence[Aborted]
    """The aborted transactions that may have records in the answer."""


def keep_committed(fetched: Fetched, view: View, read_end: int) -> None:
    """Reduce an answer to committed records. Partitions without transactions cost nothing.

    `read_end`: an end of the records that were read.
    """
    if not fetched.views or (not view.aborted and read_end <= view.last_stable):
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


def _committed(view: memoryview, aborted: Sequence[Aborted], limit: int) -> Iterator[tuple[memoryview, bool]]:
    """Yield the parts of a run of batches that may be read, each with whether it is the last one of the answer."""
    low = 0  # the bytes from `low` on are not yielded yet
    for position, base_offset, header in kernel.batches(view, 0, len(view)):
        if base_offset >= limit:
            yield view[low:position], True
            return
        if is_transactional(header.attributes) and _is_aborted(aborted, header.producer_id, base_offset):
            yield view[low:position], False
            yield empty_batch(base_offset, header.last_offset_delta + 1), False
            low = position + header.length
    yield view[low:], False


def _is_aborted(aborted: Sequence[Aborted], producer_id: int, offset: int) -> bool:
    return any(
        found.producer_id == producer_id and found.first_offset <= offset < found.marker_offset for found in aborted
    )


class Isolating:
    """Reads what readers of committed records must know of partitions, once per partition (`index/isolation.py`).

    Use it from the event loop's thread only.
    """

    def __init__(self, transactions: Transactions, index: IsolationIndex, tail: TailIndex) -> None:
        self._transactions = transactions
        self._index = index
        self._tail = tail
        index.on_change = self._mark

    def _mark(self, partition: PartitionKey) -> None:
        """Say in the tail index, for reads that need nothing else, from which offset on everything is committed."""
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
        """Return the view of a reader at `offset`, as of the log that this server follows; None if the store must tell."""
        known = self._get(partition, tail)
        if known is None or not max(known.start, tail.start) <= offset <= tail.end:
            return None
        return View(tail.start, tail.end, known.last_stable(tail.end), known.aborted_from(offset))

    async def read(self, partition: PartitionKey) -> View | None:
        """Return the store's view; None if there is no such partition. Raises `Unavailable` and `Overloaded`."""
        found = (await self._transactions.isolation([partition])).get(partition)
        if found is None:
            return None
        known = PartitionIsolation(found)
        return View(known.start, known.end, known.last_stable(known.end), known.aborted)

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
