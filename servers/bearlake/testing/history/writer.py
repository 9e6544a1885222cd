"""Writing histories: `Writer` appends to a file, `Recorder` keeps operations in memory.

Both are safe to use from several threads. `Writer` hands each line to the operating system in one append before it returns, without
fsync: a killed process loses nothing that it wrote, so no record is stored that the history does not know. Use one file per process.
"""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bearlake.testing.history import format as history_format
from bearlake.testing.history.model import NOTHING, Answer, Call, Operation, Outcome


class History(Protocol):
    """Where clients write what they do."""

    def now(self) -> int:
        """The time by the history's clock."""

    def invoke(self, process: str, call: Call) -> int:
        """A process begins an operation now; returns its number. Call it before the request leaves."""

    def complete(self, number: int, outcome: Outcome, answer: Answer = NOTHING) -> None:
        """The operation ends now. Call it after the answer has arrived; an operation that is never completed is unknown."""


class Writer:
    """A `History` in a file (`format.py`)."""

    def __init__(self, path: str | Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Appends to the file, or makes it. Files that are checked together share the clock."""
        self._clock = clock
        self._numbers = itertools.count()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        # A process that was killed may have left half a line.
        self._append(("\n" if os.fstat(self._file).st_size else "") + history_format.header("monotonic_ns"))

    def now(self) -> int:
        """The time by the history's clock, in nanoseconds."""
        return self._clock()

    def invoke(self, process: str, call: Call) -> int:
        """Record that a process begins an operation now; returns its number."""
        number = next(self._numbers)
        self._append(history_format.invoke(number, self._clock(), process, call))
        return number

    def complete(self, number: int, outcome: Outcome, answer: Answer = NOTHING) -> None:
        """Record that the operation ends now."""
        self._append(history_format.completion(number, self._clock(), outcome, answer))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, line: str) -> None:
        left = line.encode()
        while left:
            left = left[os.write(self._file, left) :]


class Recorder:
    """A `History` in memory. Without a clock, time is the number of the event, so that the order of events is exact."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or itertools.count().__next__
        self._numbers = itertools.count()
        self._open: dict[int, tuple[str, int, Call]] = {}
        self._done: list[Operation] = []

    def now(self) -> int:
        """The time by the history's clock, in nanoseconds."""
        return self._clock()

    def invoke(self, process: str, call: Call) -> int:
        """Record that a process begins an operation now; returns its number."""
        number = next(self._numbers)
        self._open[number] = (process, self._clock(), call)
        return number

    def complete(self, number: int, outcome: Outcome, answer: Answer = NOTHING) -> None:
        """Record that the operation ends now."""
        process, start, call = self._open.pop(number)
        self._done.append(
            Operation(process=process, start=start, end=self._clock(), outcome=outcome, call=call, answer=answer)
        )

    def operations(self) -> list[Operation]:
        """All operations so far; those that have not ended are unknown."""
        waiting = [
            Operation(process=process, start=start, end=None, outcome=Outcome.UNKNOWN, call=call)
            for process, start, call in self._open.values()
        ]
        return [*self._done, *waiting]
