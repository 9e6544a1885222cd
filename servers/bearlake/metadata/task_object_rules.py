"""The rules for objects of compaction tasks (I10): who may prepare, forbid and swap in a key. Pure; the same in every store.

A key is in one state at a time. `prepare` and `forbid` compete for an unknown key, and the first decides:

    unknown ──prepare──► registered to a task ──swap──► indexed ──(unused, bytes deleted, row forgotten)──► unknown
       │                        └──task closed without it──► unknown
       └──forbid──► forbidden ──(no claim can prepare it any more)──► unknown

Why a ban may be forgotten: each attempt uses a new key, so the worker that wrote the object had claimed its task before the sweep saw the
object and forbade the key. Claims are numbered in the order in which they are given, and a ban stores the newest claim number. Once every
claim up to that number has ended (its task is closed, given back or claimed again), no worker can prepare the key.
SQLite runs these functions; a differential test compares them with PostgreSQL's (`functions/prepare_task.sql`, `forbid_objects.sql`).
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple


class ClaimState(NamedTuple):
    """A task's newest claim: its epoch, and the worker's node id and server epoch (None: given back)."""

    epoch: int
    node_id: int | None
    server_epoch: int | None


class KeyState(NamedTuple):
    """The store's state of a key. `task_id`: the open task that registered it (0: none). `forbidden_at`: the newest claim's number
    when the key was forbidden (-1: not forbidden). `is_indexed`: the index names the object, or has named it and still has its row."""

    task_id: int = 0
    forbidden_at: int = -1
    is_indexed: bool = False


UNKNOWN = KeyState()


def is_current(newest: ClaimState | None, epoch: int, node_id: int, server_epoch: int) -> bool:
    """Return whether a claim may still write for its task. `newest` is None if the task is closed."""
    return newest is not None and newest == (epoch, node_id, server_epoch)


def may_list(prepared: Collection[int], *, is_prepared: bool) -> bool:
    """Return whether a table commit of the task may have been sent. The commit may happen at any later time, so the table must be fenced
    before the task is dropped. `prepared`: earlier epochs that prepared a result; `is_prepared`: the current epoch may have, too."""
    return bool(prepared) or is_prepared


def may_prepare(key: KeyState, task_id: int) -> bool:
    """Return whether a current claim of the task may register the key. Repeatable."""
    return key.task_id == task_id or key == UNKNOWN


def may_forbid(key: KeyState) -> bool:
    """Return whether the orphan sweep may delete the object: no task has registered it, and the index does not name it."""
    return key.task_id == 0 and not key.is_indexed


def may_swap_in(key: KeyState, task_id: int) -> bool:
    """Return whether a swap of the task may put the object into the index."""
    return key.task_id == task_id and not key.is_indexed


def may_forget_ban(forbidden_at: int, held: Iterable[int]) -> bool:
    """Return whether no worker can still prepare the key. `held`: numbers of all claims that have not ended, including dead workers'."""
    return all(number > forbidden_at for number in held)
