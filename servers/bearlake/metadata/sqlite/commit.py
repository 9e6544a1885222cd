"""The commit of a WAL object: one transaction, one row.

The ledger decides in memory, the row carries what was decided (slices, producers' batches, outcomes), and the tables of the
checkpoint are brought up to date by `rollup.py` later. A repeated token finds its row and gets the outcomes of the first time.
"""

import sqlite3

from bearlake.errors import Fenced
from bearlake.metadata.ledger import Decision
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, ServerRef
from bearlake.metadata.packing import (
    OUTCOME_WIDTH,
    SEQUENCE_WIDTH,
    SLICE_WIDTH,
    pack_rows,
    unpack_outcomes,
    unpack_slices,
)
from bearlake.metadata.sqlite.catchup import COMMIT


def first_result(connection: sqlite3.Connection, token: str) -> ObjectCommitted | None:
    """The result of the commit that had this token, None when there was none.

    Raises:
        Fenced: the token is forbidden; or it was committed so long ago that its entry is truncated (a retry comes within minutes).
    """
    row = connection.execute("SELECT position, slices, outcomes FROM log WHERE token = ?", (token,)).fetchone()
    if row is not None:
        return ObjectCommitted(position=row[0], slices=unpack_slices(row[1]), outcomes=unpack_outcomes(row[2]))
    if connection.execute("SELECT 1 FROM forbidden_tokens WHERE token = ?", (token,)).fetchone():
        raise Fenced(f"the object {token} was given up as an orphan: its bytes may be gone")
    if connection.execute("SELECT 1 FROM objects WHERE key = ?", (token,)).fetchone():
        raise Fenced(f"the object {token} was committed long ago; its log entry is truncated")
    return None


def check_server(connection: sqlite3.Connection, server: ServerRef) -> None:
    """Raise `Fenced` unless the server's epoch is the newest of its name and it has not left."""
    row = connection.execute("SELECT epoch, has_left FROM servers WHERE node_id = ?", (server.node_id,)).fetchone()
    if row is None or row[0] != server.epoch:
        raise Fenced(f"server {server.node_id} has epoch {row and row[0]}, not {server.epoch}")
    if row[1]:
        raise Fenced(f"server {server.node_id} has left in epoch {server.epoch}")


def write_commit(
    connection: sqlite3.Connection, position: int, now_ms: int, commit: ObjectCommit, decision: Decision
) -> None:
    """Append the entry of a commit of which something was accepted."""
    connection.execute(
        "INSERT INTO log (position, kind, created_ms, token, object_size, slices, sequences, outcomes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            position,
            COMMIT,
            now_ms,
            commit.token,
            commit.size,
            pack_rows(decision.slices, SLICE_WIDTH),
            pack_rows(decision.batches, SEQUENCE_WIDTH),
            pack_rows(decision.outcomes, OUTCOME_WIDTH),
        ),
    )
