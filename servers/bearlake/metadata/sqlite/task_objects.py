"""Keys of tasks' objects in SQLite: a row per registered or forbidden key. Rules: `metadata/task_object_rules.py`."""

import sqlite3
from collections.abc import Collection, Iterable

from bearlake.errors import Conflict
from bearlake.metadata import task_object_rules
from bearlake.metadata.task_object_rules import KeyState

STATE = (
    "SELECT coalesce((SELECT task_id FROM task_objects WHERE key = ?1), 0),"
    " coalesce((SELECT forbidden_at FROM task_objects WHERE key = ?1), -1),"
    " EXISTS (SELECT 1 FROM objects WHERE key = ?1) OR EXISTS (SELECT 1 FROM log WHERE token = ?1)"
)

FORGOTTEN_COUNT_MAX = 1_000
"""Maximum number of bans that one call forgets, oldest first."""


def key_state(connection: sqlite3.Connection, key: str) -> KeyState:
    """Return the store's state of the key now."""
    task_id, forbidden_at, is_indexed = connection.execute(STATE, (key,)).fetchone()
    return KeyState(task_id, forbidden_at, bool(is_indexed))


def register(connection: sqlite3.Connection, task_id: int, keys: Collection[str]) -> None:
    """Register the keys to the task, whose claim was checked. Raises `Conflict` if a key is forbidden or in use."""
    for key in keys:
        if not task_object_rules.may_prepare(key_state(connection, key), task_id):
            raise Conflict(f"the object {key} was forbidden or is in use: write it again under a new key")
    connection.executemany(
        "INSERT OR IGNORE INTO task_objects (key, task_id) VALUES (?, ?)", [(key, task_id) for key in keys]
    )


def check_swap(connection: sqlite3.Connection, task_id: int, keys: Iterable[str]) -> None:
    """Raise `Conflict` unless the task registered all keys and the index names none of them."""
    for key in keys:
        if not task_object_rules.may_swap_in(key_state(connection, key), task_id):
            raise Conflict(f"the object {key} was not prepared by task {task_id}, or is already in the index")


def forbid(connection: sqlite3.Connection, keys: Collection[str]) -> set[str]:
    """Forbid the keys that may be forbidden; returns the keys that are now forbidden. Deletes bans that are no longer needed."""
    _forget_bans(connection)
    (newest,) = connection.execute("SELECT last_claim_number FROM store").fetchone()
    forbidden = {key for key in keys if task_object_rules.may_forbid(key_state(connection, key))}
    connection.executemany(
        "INSERT OR IGNORE INTO task_objects (key, forbidden_at) VALUES (?, ?)", [(key, newest) for key in forbidden]
    )
    return forbidden


def _forget_bans(connection: sqlite3.Connection) -> None:
    held = [row[0] for row in connection.execute("SELECT claim_number FROM tasks WHERE node_id IS NOT NULL")]
    bans = connection.execute(
        "SELECT key, forbidden_at FROM task_objects WHERE forbidden_at IS NOT NULL ORDER BY forbidden_at LIMIT ?",
        (FORGOTTEN_COUNT_MAX,),
    ).fetchall()
    connection.executemany(
        "DELETE FROM task_objects WHERE key = ?",
        [(key,) for key, forbidden_at in bans if task_object_rules.may_forget_ban(forbidden_at, held)],
    )
