"""The true log of a partition: its batches as they were sent and stored, and the state of its producers."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.transaction_truth import Fate

if TYPE_CHECKING:
    from simulator.producer_truth import Producer


@dataclass(slots=True, kw_only=True, eq=False)
class Sent:
    """One batch as its client sees it: an idempotent producer may send the batch several times, any other producer only once."""

    connection: int
    number: int
    producer_id: int = -1
    is_promised_absent: bool = False
    """A server answered that this batch is not stored and never will be."""
    is_undecodable: bool = False
    """Its records are garbage: they cannot become rows, and their timestamps cannot be read."""


@dataclass(slots=True)
class Batch:
    """A committed batch with its stored bytes."""

    base: int
    count: int
    stored: bytes
    max_timestamp: int
    sent: Sent | None
    fate: Fate | None = None
    """Of its transaction; None: it has none."""

    @property
    def end(self) -> int:
        """The first offset after the batch."""
        return self.base + self.count


class Partition:
    """The true log of one partition."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.epoch = 0
        self.producers: dict[int, Producer] = {}
        self.last_number: dict[int, int] = {}

    def at(self, offset: int) -> Batch:
        """Return the batch that contains the offset (0 <= offset < end)."""
        return self.batches[bisect_right(self.bases, offset) - 1]
