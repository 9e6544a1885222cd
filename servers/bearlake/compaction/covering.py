"""Checks that the results of a task's items together cover what the task read (I4)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bearlake.compaction.model import TaskResult
from bearlake.errors import Conflict, Corrupt
from bearlake.metadata.model import LocatedSlice, PartitionKey, Slice


class NothingLeft(Conflict):
    """A cleaning leaves no record of its files, so no file can name their offsets; nothing was attempted."""


def with_rowless(task_id: int, result: TaskResult) -> TaskResult:
    """Return the result of a cleaning with its rowless segments in its first file.

    There is a file, unless no dirty record has a key: the newest record of a partition stays at its first cleaning.

    Raises:
        NothingLeft: no record is left at all.
    """
    items = list(result.items)
    rowless = [piece for item in items for piece in item.rowless]
    at = next((at for at, item in enumerate(items) if item.files), None)
    if not rowless:
        return result
    if at is None:
        raise NothingLeft(f"task {task_id}: no record is left of {len(rowless)} segments")
    first, *others = items[at].files
    slices = sorted([*first.swap.slices, *rowless])
    items = [replace(item, rowless=()) for item in items]
    items[at] = replace(items[at], files=[replace(first, swap=replace(first.swap, slices=slices)), *others])
    return TaskResult(items=items)


def check_task_cover(task_id: int, slices: Sequence[LocatedSlice], result: TaskResult) -> None:
    """Check I4 before any commit: the written objects cover exactly the offsets that were read. Raises `Corrupt`."""
    unchanged = {key for item in result.items for key in item.unchanged}
    read = _runs(found.slice for found in slices if found.object_key not in unchanged)
    written = _runs(
        piece
        for item in result.items
        for swap in [*(file.swap for file in item.files), *item.kept_objects]
        for piece in swap.slices
    )
    if read != written:
        raise Corrupt(f"task {task_id}: read offsets {read} but wrote {written}")


def _runs(slices: Iterable[Slice]) -> dict[PartitionKey, list[list[int]]]:
    """Return the offsets by partition, as contiguous runs."""
    runs: dict[PartitionKey, list[list[int]]] = {}
    for piece in sorted(slices):
        found = runs.setdefault(piece.partition, [])
        if found and found[-1][1] == piece.base_offset:
            found[-1][1] = piece.end_offset
        else:
            found.append([piece.base_offset, piece.end_offset])
    return runs
