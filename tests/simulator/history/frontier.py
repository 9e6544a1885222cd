"""Real-time order: values that are known before an operation begins limit its valid answers."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from simulator.history.model import Operation


class Frontier:
    """The largest value that operations had shown by a given time, and the operation that showed it."""

    def __init__(self, shown: Iterable[tuple[int, Operation]]) -> None:
        """`shown` holds (value, acknowledged operation) pairs; a value is known once its operation has ended."""
        ordered = sorted(shown, key=lambda item: item[1].returned)
        self._times = [operation.returned for _, operation in ordered]
        self._largest = list(accumulate(ordered, _larger))

    def before(self, time: int) -> tuple[int, Operation] | None:
        """Return the largest value of operations that ended strictly before `time`."""
        at = bisect_left(self._times, time)
        return self._largest[at - 1] if at else None


def _larger(before: tuple[int, Operation], item: tuple[int, Operation]) -> tuple[int, Operation]:
    return before if before[0] >= item[0] else item
