"""Write histories: `Writer` appends to a file, `Recorder` keeps operations in memory.

Both are thread-safe. `Writer` passes each line to the operating system in one append before it returns, without fsync: a killed process
loses no line that it wrote, so every stored record is in the history. Use one file per process.
"""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from simulator.history import format as history_format
from simulator.history.model import NOTHING, Answer, Call, Operation, Outcome


class History(Protocol):
    """Where clients record their operations."""

    def now(self) -> int:
        """Return the time of the history's clock."""

    def invoke(self, process: str, call: Call) -> int:
        """Record that a process begins an operation now; return its number. Call this before sending the request."""

    def complete(self, number: int, outcome: Outcome, answer: Answer = NOTHING) -> None:
        """Record that the operation ends now. Call this after the answer has arrived; the outcome of other operations is unknown."""


class Writer:
    """A `History` in a file (`format.py`)."""

    def __init__(self, path: str | Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Append to the file, or create it. Files that are checked together must share the clock."""
        self._clock = clock
        self._numbers = itertools.count()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        # A killed process may have left a truncated line.
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
    """A `History` in memory. Without a clock, the time is the event's number, so that the order of events is exact."""

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
        """Return all operations so far; the outcome of operations that have not ended is unknown."""
        waiting = [
            Operation(process=process, start=start, end=None, outcome=Outcome.UNKNOWN, call=call)
            for process, start, call in self._open.values()
        ]
        return [*self._done, *waiting]
