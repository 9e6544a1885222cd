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
FENCED: Final = 5  # it has fenced the table, to drop the merge
CANCELLER: Final = 6  # it has dropped the merge

# The task.
OPEN: Final = 0
DONE: Final = 1
DROPPED: Final = 2  # with its stream
QUARANTINED: Final = 3
CANCELLED: Final = 4  # a merge that cannot be done


class Object(NamedTuple):
    """An object that a worker wrote, and what the store knows of its key."""

    is_there: bool = False
    task: int = 0
    """As `KeyState.task_id`."""
    ban: int = 0
    """0: none; else one more than the newest claim at its time."""
    is_indexed: bool = False
    is_fenced: bool = False
    """Whether the sweep has fenced the table since it forbade the key."""

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
    results: int = 0
    """The epochs of which the store remembered results when this claim was given: a bit per epoch."""
    has_looked: bool = False
    """Whether it has loaded the version that the table has, without the task, and has not asked for its claim since."""
    is_sent: bool = False
    """Whether a table commit is under way that may be executed: it was sent, and replaces the version that the table has."""
    winner: int = 0
    """The epoch that the table has by this worker's knowledge; 0: unknown."""


class State(NamedTuple):
    """Everything. Epochs count from 1; `claims[epoch - 1]` is the claim of an epoch."""

    task: int
    is_held: bool
    """Whether the newest claim was not given back."""
    failures: int
    claims: tuple[Claim, ...]
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
