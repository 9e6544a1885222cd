"""The part of a commit that concerns transactions: which batches may be written, and which transactions they begin.

It runs inside the commit's transaction, before and after the ledger's decision, and only for objects with transactional batches.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ChangeKind,
    Outcome,
    OutcomeKind,
    TransactionChange,
)
from bearlake.metadata.packing import pack_rows
from bearlake.metadata.sqlite import transaction_rows as rows
from bearlake.metadata.transactions import CHANGE_WIDTH, Transaction, TransactionState, may_write


class Gate:
    """Decides by the rows of transactional ids, before any rule of sequences (`transactions.may_write`)."""

    def __init__(self, connection: sqlite3.Connection, batches: Iterable[BatchCommit]) -> None:
        """The connection has the write lock until the commit ends."""
        self._connection = connection
        self._held: dict[int, Transaction | None] = {}
        self._refusals: list[Outcome | None] = []
        self.admitted: list[BatchCommit] = []
        """The batches that the ledger decides."""
        for batch in batches:
            kind = OutcomeKind.ACCEPTED
            if batch.flags & BATCH_TRANSACTIONAL:
                kind = may_write(self._row(batch.producer_id), batch)
            self._refusals.append(None if kind is OutcomeKind.ACCEPTED else Outcome(kind, -1, -1))
            if kind is OutcomeKind.ACCEPTED:
                self.admitted.append(batch)

    def outcomes(self, decided: Iterable[Outcome]) -> list[Outcome]:
        """Return the outcomes of all batches from those of the admitted ones."""
        ledger = iter(decided)
        return [next(ledger) if refusal is None else refusal for refusal in self._refusals]

    def begin(self, position: int, now_ms: int, decided: Iterable[Outcome]) -> None:
        """Register the transactions that the accepted batches begin, in the tables and in the entry at `position`."""
        changes = pack_rows(list(self._begun(decided)), CHANGE_WIDTH)
        if changes:
            self._connection.execute("UPDATE log SET transactions = ? WHERE position = ?", (changes, position))
        for held in self._held.values():
            if held is not None and not held.is_ongoing and held.producer_id in self._begins:
                after = replace(held, state=TransactionState.ONGOING)
                rows.write(self._connection, after, held.version, now_ms)

    def _begun(self, decided: Iterable[Outcome]) -> Iterator[TransactionChange]:
        self._begins: set[int] = set()
        for batch, outcome in zip(self.admitted, decided, strict=True):
            if outcome.kind is not OutcomeKind.ACCEPTED or not batch.flags & BATCH_TRANSACTIONAL:
                continue
            place = (batch.partition, batch.producer_id)
            self._begins.add(batch.producer_id)
            if self._connection.execute(
                "INSERT OR IGNORE INTO open_transactions VALUES (?, ?, ?)", (*place, outcome.base_offset)
            ).rowcount:
                first = rows.open_offset(self._connection, batch.partition)
                yield TransactionChange(ChangeKind.BEGUN, *place, outcome.base_offset, -1, first)

    def _row(self, producer_id: int) -> Transaction | None:
        if producer_id not in self._held:
            self._held[producer_id] = rows.by_producer(self._connection, producer_id)
        return self._held[producer_id]
