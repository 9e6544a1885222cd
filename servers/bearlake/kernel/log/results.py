"""The outcomes of the batches of one call."""

from collections.abc import Iterator

from bearlake.kernel.log import ProduceOutcome


class Results:
    """The outcomes of a call's batches, in the call's order: a sequence of (verdict, base_offset, start_offset).

    `WriteBuffer.resolve` sets them. Calls are subclasses, so that no call needs a second object.
    """

    __slots__ = ("_outcomes", "waiting")

    def __init__(self, count: int, outcome: ProduceOutcome, /) -> None:
        """`count` batches, each with this outcome until it has its own."""
        if not 0 <= count < 1 << 31:
            raise ValueError(f"{count} results")
        if getattr(self, "_outcomes", None):  # a buffer or a response may count on them
            raise ValueError("the call has results")
        self._reset(count, outcome)

    def _reset(self, count: int, outcome: ProduceOutcome) -> None:
        self._outcomes = [outcome] * count
        self.waiting = count
        """Batches without an outcome; at 0, the call is answered, and later outcomes are ignored."""

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, at: int) -> ProduceOutcome:
        if not -len(self._outcomes) <= at < len(self._outcomes):
            raise IndexError("there is no such batch")
        return self._outcomes[at]

    def __iter__(self) -> Iterator[ProduceOutcome]:
        return iter(self._outcomes)

    def fill(self, outcome: ProduceOutcome, /) -> None:
        """Give every batch the same outcome; none is waiting then."""
        self._outcomes = [_checked(outcome)] * len(self._outcomes)
        self.waiting = 0

    def close(self) -> bool:
        """Ignore later outcomes; returns whether one was missing."""
        is_missing = self.waiting > 0
        self.waiting = 0
        return is_missing

    def set_one(self, place: int, outcome: ProduceOutcome) -> bool:
        """Set a batch's outcome, unless the call is answered; returns whether it was the last. For `WriteBuffer` only."""
        if not self.waiting:
            return False
        self._outcomes[place] = _checked(outcome)
        self.waiting -= 1
        return self.waiting == 0


def _checked(outcome: ProduceOutcome) -> ProduceOutcome:
    if not isinstance(outcome, tuple) or len(outcome) != 3:
        raise ValueError("an outcome is a tuple of 3")
    return (int(outcome[0]), int(outcome[1]), int(outcome[2]))
