"""Committed records only: what is left of a read for readers of committed records (KIP-98, `read_committed`).

- Nothing at or above the last stable offset: the batch that holds the oldest open transaction's first offset is the first one left out.
- A batch of an aborted transaction becomes an empty batch with the same offsets, like those for offsets without rows (decision 27). So the
  client needs no list of aborted transactions, and every protocol reads the same.
"""

import logging
from collections.abc import Iterator, Sequence

from bearlake import kernel
from bearlake.errors import BearlakeError, Unavailable
from bearlake.index.isolation import IsolationIndex, PartitionIsolation
from bearlake.index.tail import PartitionTail
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.transactions import Aborted, Transactions
from bearlake.records.batch import is_transactional
from bearlake.streams.fetched import Fetched
from bearlake.streams.history import empty_batch

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Reads of the store until its answer is not older than the log that this server follows; usually the first one is not."""


def keep_committed(fetched: Fetched, isolation: PartitionIsolation, known_end: int) -> None:
    """Reduce an answer to committed records, and set its last stable offset. Partitions without transactions cost nothing.

    `known_end`: the partition's end as of the log position that `isolation` follows; nothing is known of later records.
    """
    limit = isolation.last_stable(known_end)
    fetched.last_stable = min(fetched.end, limit)
    offset = fetched.range.offset
    if (isolation.is_plain(offset) and fetched.end <= known_end) or not fetched.views:
        return
    aborted = isolation.aborted_from(offset)
    kept: list[memoryview] = []
    for view in fetched.views:
        is_end = False
        for piece, is_last in _committed(view, aborted, limit):
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
    """Reads what readers of committed records must know of partitions, once per partition (`index/isolation.py`)."""

    def __init__(self, transactions: Transactions, index: IsolationIndex) -> None:
        self._transactions = transactions
        self._index = index

    def get(self, partition: PartitionKey) -> PartitionIsolation | None:
        """Return the partition's state as of now; None if it must be read (again)."""
        return self._index.get(partition)

    def is_plain(self, partition: PartitionKey, offset: int) -> bool:
        """Whether the partition is known to have only committed records from `offset` on."""
        known = self._index.get(partition)
        return known is not None and known.is_plain(offset)

    def forget(self, partition: PartitionKey) -> None:
        """Read the state again: the partition's end was read from the store, which may be ahead of the log that this server follows."""
        self._index.forget(partition)

    async def know(self, partitions: Sequence[PartitionKey]) -> None:
        """Read the states that are not known. A partition that stays unknown cannot be read: see `keep_committed`."""
        try:
            for _ in range(ATTEMPTS):
                unknown = [partition for partition in partitions if self._index.get(partition) is None]
                if not unknown or self._index.learn(await self._transactions.isolation(unknown)):
                    return
        except BearlakeError as error:
            log.warning("cannot read the transactions of partitions", extra={"error": repr(error)})

    def keep_committed(self, fetched: Fetched, tail: PartitionTail | None) -> None:
        """Leave out what is not committed, by the newest state; an error if this server does not know it, or has no `tail`."""
        known = self._index.get(fetched.range.partition)
        if tail is None or known is None:
            fetched.views, fetched.size_bytes = [], 0
            fetched.error = Unavailable(
                f"the transactions of partition {fetched.range.partition} are not known here yet"
            )
        else:
            keep_committed(fetched, known, tail.end)
