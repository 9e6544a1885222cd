"""The commit of a WAL object: one transaction, one row.

The ledger decides in memory, and the row stores the decision (slices, producers' batches, outcomes). `rollup.py` later brings the tables
of the checkpoint up to date. A repeated token finds its first outcomes in its row or, once the row is truncated, with its object.
"""

import sqlite3
from collections.abc import Sequence

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import tokens
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectCommitted,
    Outcome,
    OutcomeKind,
    ServerRef,
    Slice,
)
from bearlake.metadata.offset_assignment import Decision
from bearlake.metadata.packing import blob_of, unpack_outcomes, unpack_slices
from bearlake.metadata.sqlite.catchup import COMMIT


def first_result(connection: sqlite3.Connection, commit: ObjectCommit) -> ObjectCommitted | None:
    """Return the result of the commit that had this token, None if there was none. Position 0 means that nothing was accepted.

    Raises:
        Fenced: the token is forbidden.
        Forgotten: the token is too old to be decided, and may have been decided before.
        Conflict: the token was committed or refused, but the store has forgotten the result.
    """
    token = commit.token
    row = connection.execute("SELECT position, slices, outcomes FROM log WHERE token = ?", (token,)).fetchone()
    if row is not None:
        return ObjectCommitted(position=row[0], slices=unpack_slices(row[1]), outcomes=unpack_outcomes(row[2]))
    row = connection.execute("SELECT is_refused, outcomes FROM forbidden_tokens WHERE token = ?", (token,)).fetchone()
    if row is not None:
        if not row[0]:
            raise Fenced(f"object {token} was forbidden as an orphan; its bytes may be deleted")
        if row[1] is None:
            raise Conflict(f"object {token} was refused long ago; its result is no longer stored")
        return ObjectCommitted(position=0, slices=(), outcomes=unpack_outcomes(row[1]))
    row = connection.execute("SELECT position, outcomes FROM objects WHERE key = ?", (token,)).fetchone()
    if row is None:
        (floor,) = connection.execute("SELECT token_floor FROM store").fetchone()
        if (refusal := tokens.below_floor(token, floor)) is not None:
            raise tokens.Forgotten(refusal)
        return None
    if row[1] is None:
        raise Conflict(f"object {token} was committed long ago; its result is no longer stored")
    outcomes = unpack_outcomes(row[1])
    return ObjectCommitted(position=row[0], slices=accepted_slices(commit.batches, outcomes), outcomes=outcomes)


def accepted_slices(batches: Sequence[BatchCommit], outcomes: Sequence[Outcome]) -> list[Slice]:
    """Return the slices of a commit's entry, derived from the outcomes of its batches: the same as `Ledger.decide` made."""
    slices: list[Slice] = []
    for batch, (kind, base, _) in zip(batches, outcomes, strict=True):
        if kind is not OutcomeKind.ACCEPTED:
            continue
        partition, position, length, count, timestamp = batch[:5]
        last = slices[-1] if slices else None
        if last is not None and last.partition == partition and last.position + last.length == position:
            slices[-1] = last._replace(
                record_count=last.record_count + count,
                length=last.length + length,
                max_timestamp=max(last.max_timestamp, timestamp),
            )
        else:
            slices.append(Slice(partition, base, count, position, length, timestamp))
    return slices


def check_server(connection: sqlite3.Connection, server: ServerRef) -> None:
    """Raise `Fenced` unless the server's epoch is the newest of its name and it has not left."""
    row = connection.execute("SELECT epoch, has_left FROM servers WHERE node_id = ?", (server.node_id,)).fetchone()
    if row is None or row[0] != server.epoch:
        raise Fenced(f"server {server.node_id} has epoch {row and row[0]}, not {server.epoch}")
    if row[1]:
        raise Fenced(f"server {server.node_id} deregistered in epoch {server.epoch}")


_COLUMNS = "position, kind, created_ms, token, object_size, slices, sequences, outcomes, transactions"

WRITE_IF_NOTHING_CHANGED = (
    f"INSERT INTO log ({_COLUMNS}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM store"
    " WHERE coalesce((SELECT max(position) FROM log), rolled_position) = ?1 - 1 AND forgotten_count = ?10"
    " AND raised_count = ?11 AND token_floor < ?4"
    " AND EXISTS (SELECT 1 FROM servers WHERE node_id = ?12 AND epoch = ?13 AND NOT has_left)"
    " AND NOT EXISTS (SELECT 1 FROM log WHERE token = ?4)"
    " AND NOT EXISTS (SELECT 1 FROM forbidden_tokens WHERE token = ?4)"
    " AND NOT EXISTS (SELECT 1 FROM objects WHERE key = ?4)"
)
"""The checks of a commit and its entry in one statement: it writes the entry if every input of the decision is still true, else nothing.

The rows of transactional ids are no input of it: `Gate` reads them under the write lock.
"""


def row_of(
    position: int, now_ms: int, commit: ObjectCommit, decision: Decision, changes: bytes = b""
) -> tuple[object, ...]:
    """Return the entry of a commit with accepted batches, for `_COLUMNS`; `changes`: of transactions, packed."""
    return (
        position,
        COMMIT,
        now_ms,
        commit.token,
        commit.size,
        blob_of(decision.slices),
        blob_of(decision.batches),
        blob_of(decision.outcomes),
        changes or None,
    )


def write_refusal(connection: sqlite3.Connection, now_ms: int, commit: ObjectCommit, decision: Decision) -> None:
    """Remember a commit without accepted batches: no entry, but a repeat gets the same answer. Its object becomes an orphan."""
    connection.execute(
        "INSERT INTO forbidden_tokens (token, forbidden_ms, is_refused, outcomes) VALUES (?, ?, 1, ?)",
        (commit.token, now_ms, blob_of(decision.outcomes)),
    )


def write_commit(
    connection: sqlite3.Connection,
    position: int,
    now_ms: int,
    commit: ObjectCommit,
    decision: Decision,
    changes: bytes = b"",
) -> None:
    """Append the entry of a commit with accepted batches; `changes` as in `row_of`."""
    connection.execute(
        f"INSERT INTO log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row_of(position, now_ms, commit, decision, changes),
    )
