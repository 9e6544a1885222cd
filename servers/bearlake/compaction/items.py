"""Splits tasks into work items and collects their results. Pure."""

from collections.abc import Sequence

from bearlake.compaction.commit import Work
from bearlake.compaction.model import ItemResult, TaskResult, WorkItem
from bearlake.metadata.model import LocatedSlice


def cut(slices: Sequence[LocatedSlice], bytes_max: int) -> list[list[LocatedSlice]]:
    """Split the slices into runs of at most `bytes_max` bytes, but at least one slice."""
    groups: list[list[LocatedSlice]] = []
    room = 0
    for found in slices:
        if not groups or found.slice.length > room:
            groups.append([])
            room = bytes_max
        groups[-1].append(found)
        room -= found.slice.length
    return groups


def deal_out(works: Sequence[Work], items: Sequence[Sequence[WorkItem]], results: Sequence[ItemResult]) -> None:
    """Give each task the results of its items."""
    assert len(results) == sum(map(len, items)), (len(results), list(map(len, items)))
    at = 0
    for work, group in zip(works, items, strict=True):
        work.result = TaskResult(items=results[at : at + len(group)])
        at += len(group)
