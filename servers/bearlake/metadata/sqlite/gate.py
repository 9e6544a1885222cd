"""The part of a commit that concerns transactions: which batches may be written, and which transactions they begin.

It runs inside the commit's transaction, before and after the ledger's decision, and only for objects with transactional batches.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ChangeKind,
    Outcome,
    OutcomeKind,
    PartitionKey,
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

    def begin(self, now_ms: int, decided: Iterable[Outcome]) -> bytes:
        """Register the transactions that the accepted batches begin; returns the changes of the log entry, packed."""
        firsts: dict[tuple[PartitionKey, int], int] = {}
        for batch, outcome in zip(self.admitted, decided, strict=True):
            if outcome.kind is OutcomeKind.ACCEPTED and batch.flags & BATCH_TRANSACTIONAL:
                firsts.setdefault((batch.partition, batch.producer_id), outcome.base_offset)
        if not firsts:
            return b""
        begun = rows.begin(self._connection, firsts)
        producer_ids = {producer_id for _, producer_id in firsts}
        for held in self._held.values():
            if held is not None and not held.is_ongoing and held.producer_id in producer_ids:
                rows.write(self._connection, replace(held, state=TransactionState.ONGOING), held.version, now_ms)
        open_offsets = rows.open_offsets(self._connection, [partition for partition, _ in begun])
        changes = [
            TransactionChange(ChangeKind.BEGUN, *place, firsts[place], -1, open_offsets[place[0]])
            for place in firsts
            if place in begun
        ]
        return pack_rows(changes, CHANGE_WIDTH)

    def _row(self, producer_id: int) -> Transaction | None:
        if producer_id not in self._held:
            self._held[producer_id] = rows.by_producer(self._connection, producer_id)
        return self._held[producer_id]
