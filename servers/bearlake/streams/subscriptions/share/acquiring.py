"""Acquiring records of a batch: all that is available, or only a few of them if some are near the limit of deliveries.

A record that makes its consumers fail takes the rest of its batch with it: all are delivered again, until all have reached the limit. So a
batch with a record that was delivered at least half as often as is allowed is delivered apart from others, and in parts of a *unit*: the
records that one request acquired for the first time, of one batch or of several.

    limit 5, a unit of 100 records      delivery 1, 2, 3: 100 records    4: 50 and 50    5: each record alone

Each further delivery halves the part again, and the last one is of a single record.

Source: Apache Kafka 4.3, SharePartition (KAFKA-17541).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from bearlake.streams.subscriptions.share.runs import Edit, RecordState, Run, index_of


class Batch(NamedTuple):
    """A record batch of the log, offsets `[start, end)`; `is_empty`: it has no records for consumers."""

    start: int
    end: int
    is_empty: bool = False


class Acquired(NamedTuple):
    """Offsets `[start, end)` that a member has acquired; `delivery_count` is 1 the first time."""

    start: int
    end: int
    delivery_count: int


def skip_gap(edit: Edit, end: int) -> None:
    """Say that there are no records from here to `end`."""
    while (piece := edit.piece(end)) is not None:
        if piece.state is RecordState.AVAILABLE:
            edit.put(Run(piece.start, piece.end, RecordState.DONE))
        else:
            edit.skip_to(piece.end)
    if edit.at < end:
        edit.add(Run(edit.at, end, RecordState.DONE))


def take_all(edit: Edit, end: int, lock: Run, count_max: int, delivery_count_max: int) -> list[Acquired]:
    """Lock what is available of a batch from here to `end`, at most `count_max` offsets, as `lock` for other offsets.

    Records that were delivered `delivery_count_max` times become DONE.
    """
    found: list[Acquired] = []
    left = count_max
    while left > 0 and edit.at < end:
        piece = edit.piece(end)
        if piece is None:
            last = min(end, edit.at + left)
            found.append(Acquired(edit.at, last, 1))
            edit.add(lock.at(edit.at, last))
        elif piece.state is not RecordState.AVAILABLE:
            edit.skip_to(piece.end)
            continue
        elif piece.delivery_count >= delivery_count_max:
            edit.put(Run(piece.start, piece.end, RecordState.DONE))
            continue
        else:
            found.append(_lock(edit, piece, min(piece.end, edit.at + left), lock))
        left -= found[-1].end - found[-1].start
    return found


class Few:
    """One acquisition of records near the limit: a part of a unit, or a single record for the last time. A unit may have several batches.

    Offsets that were never acquired are left for later.
    """

    def __init__(self, size_of: Callable[[int], int], delivery_count_max: int) -> None:
        """`size_of` returns the number of offsets of a unit."""
        self.is_over = False
        """Whether the acquisition must end here."""
        self._size_of = size_of
        self._delivery_count_max = delivery_count_max
        self._part: int | None = None
        self._taken = 0
        self._unit = -1

    def take(self, edit: Edit, end: int, lock: Run, count_max: int) -> list[Acquired]:
        """As `take_all`, for one batch that ends at `end`."""
        found: list[Acquired] = []
        while not self.is_over and count_max > 0 and edit.at < end:
            piece = edit.piece(end)
            if piece is None:
                self.is_over = True
            elif piece.state is not RecordState.AVAILABLE:
                edit.skip_to(piece.end)
            elif piece.delivery_count >= self._delivery_count_max:
                edit.put(Run(piece.start, piece.end, RecordState.DONE))
            elif (count := min(count_max, self._room(piece))) > 0:
                found.append(_lock(edit, piece, min(piece.end, edit.at + count), lock))
                taken = found[-1].end - found[-1].start
                self._taken += taken
                count_max -= taken
        self.is_over = self.is_over or self._taken == self._part
        return found

    def _room(self, piece: Run) -> int:
        """Return how many records of the piece may be taken. If none, the acquisition is over; for a last delivery, too."""
        is_last = 2 < self._delivery_count_max == piece.delivery_count + 1
        if self._taken and (is_last or piece.unit != self._unit):
            self.is_over = True
            return 0
        self._unit = piece.unit
        if is_last:
            self.is_over = True
            return 1
        halvings = piece.delivery_count - _near(self._delivery_count_max) + 1
        if self._part is None and halvings > 0:
            self._part = max(1, self._size_of(piece.unit) >> halvings)
        if self._part is None:
            return piece.end - piece.start
        self.is_over = self._taken >= self._part
        return max(0, self._part - self._taken)


def is_near_limit(runs: list[Run], start: int, end: int, delivery_count_max: int) -> bool:
    """Whether a record in `[start, end)` is available that was delivered at least half as often as is allowed."""
    if start >= end:
        return False
    near = _near(delivery_count_max)
    for index in range(index_of(runs, start), len(runs)):
        run = runs[index]
        if run.start >= end:
            return False
        if run.state is RecordState.AVAILABLE and near <= run.delivery_count < delivery_count_max:
            return True
    return False


def _near(delivery_count_max: int) -> int:
    """The deliveries from which on a record is near the limit."""
    return max(2, (delivery_count_max + 1) // 2)


def _lock(edit: Edit, piece: Run, end: int, lock: Run) -> Acquired:
    """Lock the piece up to `end` for one more delivery."""
    found = Acquired(piece.start, end, piece.delivery_count + 1)
    edit.put(replace(lock, start=found.start, end=end, delivery_count=found.delivery_count, unit=piece.unit))
    return found
