"""The isolation index: which records are committed, for readers that must see only those; fed by the commit log.

A partition's state is read from the store once (`Transactions.isolation`) and then follows the log's transaction changes. The state is as
of one log position, at or after that of the tail index: everything below `open_offset` is decided, and `aborted` is complete.

Every change of a partition's transactions appends to the partition. So the partition's end is the version of its state: a state covers all
records below `end`, the end as of its reading, and all records that the log has added since.

Use it from the event loop's thread only.
"""

from collections import deque
from collections.abc import Callable, Mapping

from bearlake.metadata.aborted import NOTHING_ABORTED, Aborted, AbortedTransactions
from bearlake.metadata.model import ChangeKind, Entry, EntryKind, PartitionKey, TransactionChange
from bearlake.metadata.transactions import Isolation, last_stable_offset

PARTITION_COUNT_MAX = 100_000
"""Partitions with a state in memory (about 300 bytes each, and those of `AbortedTransactions`); above it, all are read again."""

RECENT_COUNT = 1_000
"""Changes that are remembered for answers of the store that arrive after later entries."""


class PartitionIsolation:
    """The state of one partition."""

    __slots__ = ("aborted", "end", "open_offset", "position", "start")

    def __init__(self, found: Isolation) -> None:
        self.position = found.position
        self.start = found.start
        """Perhaps below the partition's start: a trim that was applied before the store's answer arrived is not applied again."""
        self.end = found.end
        """The partition's end when the state was read from the store."""
        self.open_offset = found.open_offset
        self.aborted = AbortedTransactions(found.aborted)

    @property
    def committed_from(self) -> int:
        """The offset from which on every record is committed; -1: there is none while a transaction is open."""
        return -1 if self.open_offset >= 0 else self.aborted.last_marker + 1

    def aborted_from(self, offset: int) -> AbortedTransactions:
        """Return the aborted transactions if some may have records at or after `offset`."""
        return self.aborted if self.aborted.last_marker > offset else NOTHING_ABORTED

    def last_stable(self, end: int) -> int:
        """Return the last stable offset of a partition that ends at `end`."""
        return last_stable_offset(self.start, end, self.open_offset)

    def apply(self, position: int, change: TransactionChange) -> None:
        """Apply a change of this partition; ignores those up to `position`."""
        if position <= self.position:
            return
        self.open_offset = change.open_offset
        if change.kind is ChangeKind.ABORTED:
            self.aborted.add(Aborted(change.producer_id, change.first_offset, change.marker_offset))


class IsolationIndex:
    """The states of all partitions that readers of committed records have asked for."""

    def __init__(self, on_change: Callable[[PartitionKey], None] = lambda _: None) -> None:
        """`on_change` is called with each partition whose state has changed or is no longer known."""
        self.on_change = on_change
        self._known: dict[PartitionKey, PartitionIsolation] = {}
        self._recent: deque[tuple[int, TransactionChange]] = deque(maxlen=RECENT_COUNT)
        self._forgotten = 0
        """The newest position with a change that is not in `_recent`."""

    def get(self, partition: PartitionKey) -> PartitionIsolation | None:
        """Return the partition's state; None if it must be read from the store."""
        return self._known.get(partition)

    def reset(self, position: int) -> None:
        """Forget everything: the follower continues after log position `position`, and the tail index forgets everything, too."""
        self._known.clear()
        self._recent.clear()
        self._forgotten = position

    def forget(self, partition: PartitionKey) -> None:
        """Forget a partition that was deleted."""
        self._known.pop(partition, None)
        self.on_change(partition)

    def learn(self, found: Mapping[PartitionKey, Isolation]) -> bool:
        """Record states from the store that are newer than those known.

        Returns False, with nothing done, if they are older than what is remembered of the log.
        """
        if any(isolation.position < self._forgotten for isolation in found.values()):
            return False
        if len(self._known) + len(found) > PARTITION_COUNT_MAX:
            forgotten = list(self._known)
            self._known.clear()
            for partition in forgotten:
                self.on_change(partition)
        newer = {
            partition: PartitionIsolation(isolation)
            for partition, isolation in found.items()
            if (known := self._known.get(partition)) is None or known.position < isolation.position
        }
        self._known.update(newer)
        for position, change in self._recent:
            if change.partition in newer:
                self._apply(position, change)
        return True

    def apply(self, entry: Entry) -> None:
        """Apply an entry's transaction changes, or its trim; entries come in order."""
        if entry.kind is EntryKind.TRIM and (trimmed := self._known.get(entry.partition)) is not None:
            trimmed.start = max(trimmed.start, entry.start_offset)
            trimmed.aborted = trimmed.aborted.above(entry.start_offset - 1)
        for change in entry.changes:
            if len(self._recent) == RECENT_COUNT:
                self._forgotten = self._recent[0][0]
            self._recent.append((entry.position, change))
            self._apply(entry.position, change)

    def _apply(self, position: int, change: TransactionChange) -> None:
        known = self._known.get(change.partition)
        if known is not None:
            known.apply(position, change)
            self.on_change(change.partition)
