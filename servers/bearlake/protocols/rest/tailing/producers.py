"""Idempotent producers: what becomes of an append by its producer's epoch and sequence. Values only, no I/O.

Source: Durable Streams Protocol 1.0, section 5.2.1.
"""

import json
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto


class Decision(Enum):
    """What to do with an append."""

    ACCEPT = auto()
    DUPLICATE = auto()
    STALE_EPOCH = auto()
    EPOCH_STARTS_AT_ZERO = auto()
    GAP = auto()


@dataclass(frozen=True, slots=True)
class Claim:
    """What an append says of its producer."""

    id: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        """As JSON, to be compared."""
        return json.dumps([self.id, self.epoch, self.sequence])


@dataclass(frozen=True, slots=True)
class Last:
    """The newest append of a producer that was accepted."""

    epoch: int
    sequence: int


class Producers:
    """Producers of one partition; the one that has been quiet for longest is forgotten when there are too many."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._last: OrderedDict[str, Last] = OrderedDict()

    def last(self, producer_id: str) -> Last | None:
        """The newest append of a producer, None for a new one."""
        return self._last.get(producer_id)

    def decide(self, claim: Claim) -> Decision:
        """What to do with an append; nothing is changed."""
        last = self._last.get(claim.id)
        if last is None:
            return Decision.ACCEPT if claim.sequence == 0 else Decision.GAP
        if claim.epoch < last.epoch:
            return Decision.STALE_EPOCH
        if claim.epoch > last.epoch:
            return Decision.ACCEPT if claim.sequence == 0 else Decision.EPOCH_STARTS_AT_ZERO
        if claim.sequence <= last.sequence:
            return Decision.DUPLICATE
        return Decision.ACCEPT if claim.sequence == last.sequence + 1 else Decision.GAP

    def accepted(self, claim: Claim) -> None:
        """The append is durable."""
        self._last[claim.id] = Last(claim.epoch, claim.sequence)
        self._last.move_to_end(claim.id)
        while len(self._last) > self._count_max:
            self._last.popitem(last=False)
