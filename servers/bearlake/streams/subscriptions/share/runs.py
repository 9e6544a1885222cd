"""Runs of offsets in the same state, and edits of them in one pass.

Runs follow one another without gaps, and no two neighbours are alike. An edit walks over them in ascending order:

    runs   [0 .. 5) ACQUIRED by a           [5 .. 9) AVAILABLE
    edit   skip_to(2), put [2 .. 4) DONE, apply
    runs   [0 .. 2) ACQUIRED  [2 .. 4) DONE  [4 .. 5) ACQUIRED  [5 .. 9) AVAILABLE

An edit costs a step per run and per offset range, however many ranges there are: a request may acknowledge thousands of records one by one.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum


class RecordState(Enum):
    """The state of a record in flight."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    DONE = "done"
    """Accepted, rejected, given up after too many deliveries, or no record."""


@dataclass(slots=True)
class Run:
    """Offsets `[start, end)` in the same state. `member` and `deadline` (s, of the caller's clock) are those of the lock.

    Nobody changes a run: an edit puts others in its place.
    """

    start: int
    end: int
    state: RecordState
    delivery_count: int = 0
    member: str = ""
    deadline: float = 0.0
    is_ending: bool = False
    """ACQUIRED: the member has accepted or rejected the records, which is not saved yet. The lock stays until the result is known."""
    via: str = ""
    """The server that the member asked."""
    unit: int = -1
    """Offsets that one request acquired for the first time are a unit: its first offset. -1: DONE."""

    @property
    def is_locked(self) -> bool:
        """Whether the records are acquired, and their member has not said yet what became of them."""
        return self.state is RecordState.ACQUIRED and not self.is_ending

    def is_like(self, other: "Run") -> bool:
        """Whether the two runs differ only in their offsets."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member == other.member
            and self.deadline == other.deadline
            and self.is_ending is other.is_ending
            and self.via == other.via
            and self.unit == other.unit
        )

    def part(self, start: int, end: int) -> "Run":
        """Return a part of the run."""
        return self if start == self.start and end == self.end else self.at(start, end)

    def at(self, start: int, end: int) -> "Run":
        """Return a run of other offsets in the same state."""
        return Run(
            start, end, self.state, self.delivery_count, self.member, self.deadline, self.is_ending, self.via, self.unit
        )


class Edit:
    """Replaces runs in ascending order of offsets. Nothing changes before `apply`: an edit that fails half-way is dropped."""

    __slots__ = ("_first", "_index", "_new", "_runs", "at", "first_available", "has_changes")

    def __init__(self, runs: list[Run], offset: int, end: int) -> None:
        """Begin at `offset`, which is in one of the runs, or at their `end`."""
        self._runs = runs
        self._new: list[Run] = []
        self._first = self._index = index_of(runs, offset) if offset < end else len(runs)
        self.at = runs[self._index].start if offset < end else end
        """The offset that the edit has reached."""
        self.has_changes = False
        """Whether anything was put or added."""
        self.first_available: int | None = None
        """The first offset that the edit makes AVAILABLE."""
        self.skip_to(offset)

    def skip_to(self, offset: int) -> None:
        """Leave what is before `offset` as it is; goes no further than the end of the runs."""
        while self.at < offset and self._index < len(self._runs):
            run = self._runs[self._index]
            self._pass(run, min(run.end, offset))

    def piece(self, end: int) -> Run | None:
        """Return the present run from here to `end` at most; None at `end`, and behind the last run."""
        if self.at >= end or self._index == len(self._runs):
            return None
        run = self._runs[self._index]
        return run.part(self.at, min(run.end, end))

    def put(self, run: Run) -> None:
        """Replace the piece with the run's offsets, and go on behind it."""
        assert run.start == self.at, "an edit goes forward without gaps"
        self._note(run)
        self._pass(run, run.end)

    def add(self, run: Run) -> None:
        """Add a run behind all others."""
        assert run.start == self.at, "runs follow one another"
        assert self._index == len(self._runs), "only the end grows"
        self._note(run)
        self._append(run)
        self.at = run.end

    def apply(self) -> None:
        """Put the new runs in place."""
        first, behind = self._first, self._index
        if behind < len(self._runs) and self.at > self._runs[behind].start:
            run = self._runs[behind]
            self._append(run.part(self.at, run.end))
            behind += 1
        if self._new and first > 0 and self._runs[first - 1].is_like(self._new[0]):
            first -= 1
            self._new[0] = self._new[0].at(self._runs[first].start, self._new[0].end)
        if self._new and behind < len(self._runs) and self._new[-1].is_like(self._runs[behind]):
            self._append(self._runs[behind])
            behind += 1
        self._runs[first:behind] = self._new

    def _note(self, run: Run) -> None:
        self.has_changes = True
        if run.state is RecordState.AVAILABLE and self.first_available is None:
            self.first_available = run.start

    def _pass(self, run: Run, end: int) -> None:
        """Take `run` from here to `end` into the result."""
        self._append(run if run.start == self.at and run.end == end else run.at(self.at, end))
        self.at = end
        if end == self._runs[self._index].end:
            self._index += 1

    def _append(self, run: Run) -> None:
        if self._new and (last := self._new[-1]).is_like(run):
            self._new[-1] = run.at(last.start, run.end)
        else:
            self._new.append(run)


def index_of(runs: list[Run], offset: int) -> int:
    """Return the index of the run that has the offset, which one of them has."""
    return bisect_right(runs, offset, key=_start) - 1


def _start(run: Run) -> int:
    return run.start
