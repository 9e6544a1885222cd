"""The true state of transactions in a simulated deployment, as `Truth` checks it: rows, open transactions, the fate of each batch.

The rules are those of `metadata/transactions.py`, implemented here a second time. A reader of committed records gets committed batches, an
empty batch with the same offsets in place of aborted ones in a row, and nothing of an open transaction. A marker of an aborted transaction
may belong to that row, as the transactions of one producer that lie back to back are one.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

from bearlake import kernel
from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ChangeKind,
    Entry,
    OutcomeKind,
    PartitionKey,
)
from bearlake.metadata.transactions import BATCH_BEGINS, Transaction
from bearlake.records import markers

if TYPE_CHECKING:
    from simulator.true_log import Batch
    from simulator.truth import Truth


class Fate(Enum):
    """What became of a batch's transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()
    ABORT_MARKER = auto()
    """Not a batch of a transaction: the marker of an aborted one."""


_HIDDEN = frozenset({Fate.ABORTED, Fate.ABORT_MARKER})


class TransactionTruth:
    """The true state of transactions; see the module."""

    def __init__(self, truth: "Truth") -> None:
        self._truth = truth
        self._rows: dict[str, Transaction] = {}
        self._ongoing: set[int] = set()
        """Producer ids whose transaction has begun."""
        self.opened: dict[int, dict[PartitionKey, list[Batch]]] = {}
        """Batches of open transactions by producer id and partition."""

    def stored(self, row: Transaction) -> None:
        """The row of a transactional id was replaced."""
        self._rows[row.transactional_id] = row
        if row.is_ongoing:
            self._ongoing.add(row.producer_id)
        else:
            self._ongoing.discard(row.producer_id)

    def refusal(self, batch: BatchCommit) -> OutcomeKind | None:
        """Return the due outcome of a batch that belongs to no transaction; None: the other rules decide."""
        if not batch.flags & BATCH_TRANSACTIONAL:
            return None
        row = next((row for row in self._rows.values() if row.producer_id == batch.producer_id), None)
        if row is None or batch.producer_epoch > row.epoch:
            return OutcomeKind.NO_TRANSACTION
        if batch.producer_epoch < row.epoch:
            return OutcomeKind.FENCED
        is_added = row.producer_id in self._ongoing and batch.partition in row.partitions
        return None if batch.flags & BATCH_BEGINS or is_added else OutcomeKind.NO_TRANSACTION

    def appended(self, commit: BatchCommit, batch: "Batch") -> None:
        """A batch was accepted."""
        if commit.flags & BATCH_TRANSACTIONAL:
            batch.fate = Fate.OPEN
            self._ongoing.add(commit.producer_id)
            self.opened.setdefault(commit.producer_id, {}).setdefault(commit.partition, []).append(batch)

    def ended(self, entry: Entry) -> dict[PartitionKey, int]:
        """A transaction ended; returns the offset of the marker in each partition."""
        found = markers.parse(entry.object_key)
        fate = Fate.COMMITTED if found.is_commit else Fate.ABORTED
        opened = self.opened.pop(found.producer_id, {})
        existing = {key for key in opened if self._truth.exists(key)}
        placed = {piece.partition: piece.base_offset for piece in entry.slices}
        self._truth.expect(set(placed) == existing, "each partition gets its marker", markers=placed, opened=existing)
        for change in entry.changes:
            batches = opened.get(change.partition, [])
            self._truth.expect(
                bool(batches)
                and change.first_offset == batches[0].base
                and change.marker_offset == placed.get(change.partition)
                and change.kind is (ChangeKind.COMMITTED if found.is_commit else ChangeKind.ABORTED)
                and change.open_offset == self.open_offset(change.partition),
                "an entry says what happened to the transaction",
                partition=change.partition,
                change=change,
            )
        for batches in opened.values():
            for batch in batches:
                batch.fate = fate
        return placed

    def open_offset(self, partition: PartitionKey) -> int:
        """Return the smallest first offset of the partition's open transactions; -1: there are none."""
        firsts = [batches[partition][0].base for batches in self.opened.values() if partition in batches]
        return min(firsts, default=-1)

    def check_read(self, key: PartitionKey, batch: "Batch", header: kernel.BatchHeader) -> bool:
        """Check a batch that a reader of committed records got. Returns whether it has to be the batch that was sent."""
        self._truth.expect(
            batch.fate is not Fate.OPEN, "a reader sees no open transaction", partition=key, base=batch.base
        )
        if batch.fate is Fate.ABORT_MARKER and header.record_count:
            return True
        if batch.fate in _HIDDEN:
            end = batch.base + header.last_offset_delta + 1
            log, covered = self._truth.partition(key), batch.base
            while covered < end and (found := log.at(covered)).fate in _HIDDEN:
                covered = found.base + found.count
            self._truth.expect(
                header.record_count == 0 and covered == end,
                "a reader gets an empty batch in place of aborted ones",
                partition=key,
                base=batch.base,
                end=end,
            )
        return batch.fate not in _HIDDEN
