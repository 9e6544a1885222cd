"""Runs a work item: read, compute (`compaction/converter.py`, `compaction/merge.py`), store. The only state is in objects.

Spark's executors, tests and the simulation all run this code. An item may be stopped at any point and run again, even concurrently: every
attempt writes under its own keys, and only the result that reaches `TaskQueue.prepare` counts.
"""

import asyncio
from collections.abc import Iterator, Sequence

from bearlake.compaction.concurrency import run_all, run_both
from bearlake.compaction.converter import Converter, Loaded
from bearlake.compaction.kept_batches import KeptBatches
from bearlake.compaction.merge import merge
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.output import Output, put_all
from bearlake.compaction.workbench import Workbench
from bearlake.errors import Corrupt, OutOfRange
from bearlake.metadata.compaction import TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectKind
from bearlake.objects import ByteRange, ObjectStore
from bearlake.wal.keys import KeySource


async def run(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Run the item; its objects are durable when this returns.

    `workbench.limits` and `item.file_bytes_max` bound the memory, whatever the item's size (except for one larger slice).

    Raises:
        NotFound: an object that the item reads does not exist (any more).
        Corrupt: an object contradicts its checksums or the index; the message names the object.
        Unavailable: the store did not answer in time.
    """
    if item.kind is TaskKind.MERGE:
        return await merge(item, store, workbench)
    return await _compact(item, store, workbench)


async def _compact(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    limits = workbench.limits
    keys = KeySource(workbench.clock, workbench.random_bits, item.kept_prefix)
    converter = Converter(
        Output(item.output_prefix, workbench.random_bits),
        KeptBatches(item.stream_id.bytes, keys, limits.kept_bytes),
        row_group_bytes=item.row_group_bytes,
        file_bytes_max=item.file_bytes_max,
        batch_bytes_max=limits.batch_bytes_max,
        aborted=item.aborted,
    )
    rest = windows(item.slices, limits.window_bytes)
    loaded = await read_window(next(rest, ()), store, limits.read_concurrent_count)
    while loaded:
        reading = read_window(next(rest, ()), store, limits.read_concurrent_count)
        loaded, _ = await run_both(reading, put_all(converter.feed(loaded), store, workbench))
    await put_all(converter.finish(), store, workbench)
    return converter.result()


def windows(slices: Sequence[LocatedSlice], bytes_max: int) -> Iterator[Sequence[LocatedSlice]]:
    """Split `slices` into runs of at most `bytes_max` bytes, but at least one slice."""
    start = size = 0
    for at, located in enumerate(slices):
        assert located.kind is ObjectKind.WAL
        if size and size + located.slice.length > bytes_max:
            yield slices[start:at]
            start, size = at, 0
        size += located.slice.length
    if size:
        yield slices[start:]


async def read_window(window: Sequence[LocatedSlice], store: ObjectStore, concurrent_count: int) -> list[Loaded]:
    """Read the slices' bytes, in order, with one request per object for all its ranges; `concurrent_count` objects at a time."""
    slots = asyncio.Semaphore(concurrent_count)
    loaded: list[Loaded | None] = [None] * len(window)

    async def read_object(key: str, positions: Sequence[int]) -> None:
        pieces = [window[at].slice for at in positions]
        ranges = [ByteRange(piece.position, piece.position + piece.length) for piece in pieces]
        async with slots:
            try:
                views = await store.read(key, ranges)
            except OutOfRange as error:
                raise Corrupt(f"object {key} ends before slices that the index locates in it") from error
        for at, view in zip(positions, views, strict=True):
            loaded[at] = Loaded(window[at], view)

    positions_of: dict[str, list[int]] = {}
    for at, located in enumerate(window):
        positions_of.setdefault(located.object_key, []).append(at)
    await run_all([read_object(key, positions) for key, positions in positions_of.items()])
    return [entry for entry in loaded if entry is not None]
