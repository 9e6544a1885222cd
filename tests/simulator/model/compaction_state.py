"""The state of compaction: one task over the contents of one WAL object, its claims, the table, the index, and the sweeps.

Each claim of the task has its own epoch, held by a worker that may continue at any later time: claims of different epochs belong to
different workers, or to one worker that lost its state. A worker writes one data file and one kept object, under keys of its epoch.
Messages are as in `write_state.py`: a sent request may be executed at any time, any number of times, or never; a reply may be lost.
"""

from typing import Final, NamedTuple

from bearlake.metadata.task_object_rules import KeyState

WORKERS: Final = ("X", "Y")
TASK: Final = 1

# The progress of a claim's worker.
CLAIMED: Final = 0
WRITTEN: Final = 1  # its objects are stored
PREPARED: Final = 2  # it knows that its keys are registered with the task
LISTED: Final = 3  # it knows which epoch's files the table has
ENDED: Final = 4  # done, returned or overtaken, or its failure was counted
FENCED: Final = 5  # it has fenced the table in order to drop the merge
CANCELLER: Final = 6  # it has dropped the merge

# The task.
OPEN: Final = 0
DONE: Final = 1
DROPPED: Final = 2  # with its stream
QUARANTINED: Final = 3
CANCELLED: Final = 4  # a merge that is impossible


class Object(NamedTuple):
    """An object that a worker wrote, and the store's state of its key."""

    is_there: bool = False
    task: int = 0
    """As `KeyState.task_id`."""
    ban: int = 0
    """0: none; else the newest claim at that time plus 1."""
    is_indexed: bool = False
    is_fenced: bool = False
    """Whether the sweep has fenced the table since it forbade the key."""

    def key(self) -> KeyState:
        """The key's state as `metadata/task_object_rules.py` expects it."""
        return KeyState(self.task, self.ban - 1, self.is_indexed)


class Claim(NamedTuple):
    """An epoch of the task: the progress of its worker, and the objects that it wrote."""

    stage: int = CLAIMED
    data: Object = Object()
    kept_object: Object = Object()
    is_prepared: bool = False
    """Whether the store remembers its result."""
    results: int = 0
    """The epochs whose results the store remembered when this claim was granted: a bit per epoch."""
    has_looked: bool = False
    """Whether it has loaded the table's current version, without the task, and has not confirmed its claim since."""
    is_sent: bool = False
    """Whether a table commit is in flight that may still succeed: it was sent, and replaces the table's current version."""
    winner: int = 0
    """The epoch whose files the table has, as far as this worker knows; 0: unknown."""


class State(NamedTuple):
    """The whole state. Epochs count from 1; `claims[epoch - 1]` is the claim of an epoch."""

    task: int
    is_held: bool
    """Whether the newest claim is held, not returned."""
    failures: int
    claims: tuple[Claim, ...]
    files: int
    """The table's data files: a bit per epoch."""
    is_twice: bool
    """Whether one epoch's file is in the table twice."""
    applied: int
    """The epoch of the task in the table's `bearlake.applied`; 0: the task is not there."""
    is_reached: bool
    """Whether the table's end is after the task's offsets."""
    home: int
    """The epoch whose objects the index names; 0: the WAL object."""
    is_wal_there: bool

    def with_claim(self, epoch: int, claim: Claim) -> "State":
        """Return the state with this claim replaced."""
        return self._replace(claims=(*self.claims[: epoch - 1], claim, *self.claims[epoch:]))
