"""Commits WAL objects: the ledger decides in memory, and one row stores the decision (`commit.py`).

Most commits find memory current. They check this and write in one statement, or with batches of transactions in a few, of one transaction.
All others read what they need, in a transaction that first catches up with other processes.
"""

from dataclasses import replace

from bearlake.clock import Clock
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, OutcomeRows
from bearlake.metadata.offset_assignment import Decision
from bearlake.metadata.sqlite.catchup import Follower
from bearlake.metadata.sqlite.commit import (
    WRITE_IF_NOTHING_CHANGED,
    check_server,
    first_result,
    row_of,
    write_commit,
    write_refusal,
)
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.gate import Gate
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.upkeep import Upkeep


class _Stale(Exception):
    """Memory does not suffice: nothing may be written."""


class Commits:
    """Commits of one process. `commit` is a step of the writing connection."""

    def __init__(
        self, database: Database, settings: SqliteSettings, clock: Clock, follower: Follower, upkeep: Upkeep
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._follower = follower
        self._upkeep = upkeep
        self._is_alone = False
        """Whether the last commit found no changes by other processes: then the state in memory is probably current."""

    def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """As `CommitLog.commit`."""
        ledger = self._follower.ledger
        if ledger.applied - ledger.rolled >= self._settings.unrolled_entry_count_max:
            self._upkeep.roll_up_here()
        if self._is_alone and self._database.is_shared:
            try:
                return self._commit_from_memory(commit)
            except _Stale:
                self._is_alone = False
        return self._commit_after_reading(commit)

    def _commit_from_memory(self, commit: ObjectCommit) -> ObjectCommitted:
        """Raises `_Stale`, with nothing done, if the memory is stale or not sufficient."""
        self._follower.ledger.evict()
        if commit.is_transactional:
            with self._database.writing() as connection:
                decision, row = self._guarded_row(commit, Gate(connection, commit.batches))
                if not connection.execute(WRITE_IF_NOTHING_CHANGED, row).rowcount:
                    raise _Stale  # and rolls back what the gate has written
        else:
            decision, row = self._guarded_row(commit, None)
            if not self._database.write_at_once(WRITE_IF_NOTHING_CHANGED, row):
                raise _Stale
        return self._adopted(commit, decision, self._follower.ledger.applied + 1)

    def _guarded_row(self, commit: ObjectCommit, gate: Gate | None) -> tuple[Decision, tuple[object, ...]]:
        """Return the decision and the parameters of `WRITE_IF_NOTHING_CHANGED`. Raises `_Stale` if no batch is accepted."""
        follower, server, now_ms = self._follower, commit.server, self._clock.now_ms()
        decision, changes = self._decide(commit, gate, now_ms)
        if not decision.slices:
            raise _Stale
        entry = row_of(follower.ledger.applied + 1, now_ms, commit, decision, changes)
        return decision, (*entry, follower.forgotten_count, follower.raised_count, server.node_id, server.epoch)

    def _commit_after_reading(self, commit: ObjectCommit) -> ObjectCommitted:
        with self._database.writing() as connection:
            applied = self._follower.ledger.applied
            heads = self._follower.catch_up()
            self._is_alone = applied == heads.head
            first = first_result(connection, commit)
            if first is not None:
                return replace(first, is_transactional=commit.is_transactional)
            check_server(connection, commit.server)
            now_ms = self._clock.now_ms()
            gate = Gate(connection, commit.batches) if commit.is_transactional else None
            decision, changes = self._decide(commit, gate, now_ms)
            if not decision.slices:
                write_refusal(connection, now_ms, commit, decision)
                return ObjectCommitted(position=0, outcomes=decision.outcomes, slices=())
            position = heads.head + 1
            write_commit(connection, position, now_ms, commit, decision, changes)
        return self._adopted(commit, decision, position)

    def _decide(self, commit: ObjectCommit, gate: Gate | None, now_ms: int) -> tuple[Decision, bytes]:
        """Return the decision, and the changes of transactions, packed. The gate writes the transactions that begin."""
        ledger = self._follower.ledger
        if gate is None:
            return ledger.decide(commit.batches, now_ms, seen=commit.seen), b""
        decision = ledger.decide(gate.admitted, now_ms, seen=commit.seen)
        changes = gate.begin(now_ms, decision.outcomes)
        return decision._replace(outcomes=OutcomeRows.of(gate.outcomes(decision.outcomes))), changes

    def _adopted(self, commit: ObjectCommit, decision: Decision, position: int) -> ObjectCommitted:
        """Apply a committed entry to memory."""
        self._follower.ledger.adopt(decision, position)
        return ObjectCommitted(
            position=position,
            outcomes=decision.outcomes,
            slices=decision.slices,
            is_transactional=commit.is_transactional,
        )
