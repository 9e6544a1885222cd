"""Acquiring records of a batch: all that is available, or only a few of them if some are near the limit of deliveries.

A record that makes its consumers fail takes the rest of its batch with it: all are delivered again, until all have reached the limit. So a
batch with a record that was delivered at least half as often as is allowed is delivered apart from other batches, and in parts:

    limit 5, a batch of 100 records      delivery 1, 2, 3: 100 records    4: 50 and 50    5: each record alone

Each further delivery halves the part again, and the last one is of a single record.

Source: Apache Kafka 4.3, SharePartition (KAFKA-17541).
"""

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


def take_all(edit: Edit, batch: Batch, end: int, lock: Run, count_max: int, delivery_count_max: int) -> list[Acquired]:
    """Lock what is available of `batch` from here to `end`, at most `count_max` offsets, as `lock` for other offsets.

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


def take_few(edit: Edit, batch: Batch, end: int, lock: Run, count_max: int, delivery_count_max: int) -> list[Acquired]:
    """As `take_all` for a batch with records near the limit: lock only a part of it, or a single record for the last time.

    Offsets that were never acquired are left for later.
    """
    found: list[Acquired] = []
    left, part = count_max, None
    while left > 0 and (piece := edit.piece(end)) is not None:
        if piece.state is not RecordState.AVAILABLE:
            edit.skip_to(piece.end)
            continue
        if piece.delivery_count >= delivery_count_max:
            edit.put(Run(piece.start, piece.end, RecordState.DONE))
            continue
        if is_last := 2 < delivery_count_max == piece.delivery_count + 1:
            if found:
                break
            left = 1
        elif part is None and (halvings := piece.delivery_count - _near(delivery_count_max) + 1) > 0:
            part = max(1, (batch.end - batch.start) >> halvings)
            left = min(left, part - (count_max - left))
            if left <= 0:
                break
        found.append(_lock(edit, piece, min(piece.end, edit.at + left), lock))
        left -= found[-1].end - found[-1].start
        if is_last:
            break
    return found


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
    edit.put(replace(lock, start=found.start, end=end, delivery_count=found.delivery_count))
    return found
