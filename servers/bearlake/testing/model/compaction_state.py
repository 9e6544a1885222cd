"""The state of compaction: one task over what is in one WAL object, its claims, the table, the index, and the sweeps.

Each claim of the task is an epoch of its own, held by a worker that may wake up at any time later: claims of different epochs are different
workers, or one worker that forgot. What a worker writes is one data file and one kept object, under keys of its epoch.
Messages are as in `write_state.py`: a request that was sent may be executed at any time, again and again, or never; a reply may be lost.
"""

from typing import Final, NamedTuple

from bearlake.metadata.task_rules import KeyState

WORKERS: Final = ("X", "Y")
TASK: Final = 1

# What a claim's worker has done.
CLAIMED: Final = 0
WRITTEN: Final = 1  # its objects are stored
PREPARED: Final = 2  # it knows that the task has its keys
LISTED: Final = 3  # it knows whose files the table has
ENDED: Final = 4  # done, given back, overtaken or blamed

# The task.
OPEN: Final = 0
DONE: Final = 1
DROPPED: Final = 2  # with its stream
ASIDE: Final = 3


class Object(NamedTuple):
    """An object that a worker wrote, and what the store knows of its key."""

    is_there: bool = False
    task: int = 0
    """As `KeyState.task_id`."""
    ban: int = 0
    """0: none; else one more than the newest claim at its time."""
    is_indexed: bool = False

    def key(self) -> KeyState:
        """What `metadata/task_rules.py` judges."""
        return KeyState(self.task, self.ban - 1, self.is_indexed)


class Claim(NamedTuple):
    """An epoch of the task: what its worker did, and the objects it wrote."""

    stage: int = CLAIMED
    data: Object = Object()
    kept: Object = Object()
    is_prepared: bool = False
    """Whether the store remembers its result."""
    commit: int = 0
    """A table commit that was sent: one more than the table's version that it is conditional on; 0: none."""
    winner: int = 0
    """The epoch that the table has by this worker's knowledge; 0: unknown."""


class State(NamedTuple):
    """Everything. Epochs count from 1; `claims[epoch - 1]` is the claim of an epoch."""

    task: int
    is_held: bool
    """Whether the newest claim was not given back."""
    failures: int
    claims: tuple[Claim, ...]
    version: int
    """Of the table; grows with each commit."""
    files: int
    """The table's data files: a bit per epoch."""
    is_twice: bool
    """Whether one epoch's file is in the table twice."""
    mark: int
    """The epoch that the table's mark of the task names; 0: no mark."""
    is_reached: bool
    """Whether the table's end is behind the task's offsets."""
    home: int
    """The epoch whose objects the index names; 0: the WAL object."""
    is_wal_there: bool

    def with_claim(self, epoch: int, claim: Claim) -> "State":
        """The same with that claim in its place."""
        return self._replace(claims=(*self.claims[: epoch - 1], claim, *self.claims[epoch:]))
