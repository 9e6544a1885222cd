"""The fence of a worker's writes for a task, and the end of a task: parts of `TaskQueue` and of the swap."""

import sqlite3

from bearlake.errors import Fenced
from bearlake.metadata import task_object_rules
from bearlake.metadata.compaction import TaskClaim, TaskState
from bearlake.metadata.sqlite.commit import check_server

OWNED = ("task_partitions", "task_inputs", "task_results", "task_objects")
"""Tables with rows of a task."""


def check_claim(connection: sqlite3.Connection, claim: TaskClaim) -> None:
    """Raise `Fenced` unless the claim is the task's newest, not given back, and its worker neither replaced nor gone.

    A worker that missed heartbeats may still write: no other worker has taken over, and a new claim gets a larger epoch.
    """
    check_server(connection, claim.worker)
    check_newest(connection, claim)


def check_newest(connection: sqlite3.Connection, claim: TaskClaim) -> None:
    """Raise `Fenced` unless the claim is the task's newest, and not given back."""
    find = "SELECT epoch, node_id, server_epoch FROM tasks WHERE id = ?"
    row = connection.execute(find, (claim.task_id,)).fetchone()
    newest = None if row is None else task_object_rules.ClaimState._make(row)
    if not task_object_rules.is_current(newest, claim.epoch, claim.worker.node_id, claim.worker.epoch):
        raise Fenced(f"task {claim.task_id} is no longer held by worker {claim.worker.node_id} in epoch {claim.epoch}")


def close_task(connection: sqlite3.Connection, task_id: int) -> None:
    """Delete the task and its rows."""
    for table in OWNED:
        connection.execute(f"DELETE FROM {table} WHERE task_id = ?", (task_id,))
    connection.execute("DELETE FROM tasks WHERE id = ?", (task_id,))


def close_tasks_of(connection: sqlite3.Connection, stream_number: int) -> None:
    """Delete the quarantined tasks of a deleted stream: no worker will claim them."""
    for (task_id,) in connection.execute(
        "SELECT id FROM tasks WHERE stream_number = ? AND state = ?", (stream_number, TaskState.QUARANTINED)
    ).fetchall():
        close_task(connection, task_id)
