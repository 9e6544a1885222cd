"""Copies the slices of a quarantined task out of shared WAL objects, so that the task pins no other stream's bytes.

Whole slices are copied unchanged into WAL-format objects of the stream's own (`kept/…`). The index is swapped to these objects, which
readers do not notice. All later slices of the partitions move as well, because they are not compacted until someone has examined the task.
The sweep retries the task from time to time (`sweep.quarantine_retry_ms`), which also moves newer slices.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from bearlake import kernel
from bearlake.compaction.settings import WorkerSettings
from bearlake.errors import Corrupt
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, Task, TaskClaim, TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectKind, ObjectRef, Stream, partition_index
from bearlake.objects import ByteRange, ObjectStore
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Buffer, Part

KEPT_PREFIX = "kept/"
"""Key prefix of WAL-format objects with batches of a single stream."""


async def move_to_quarantine(
    task: Task,
    claim: TaskClaim,
    stream: Stream,
    metadata: Metadata,
    store: ObjectStore,
    next_key: Callable[[], str],
    settings: WorkerSettings,
) -> int:
    """Move the slices of the task's partitions into their own objects; return the number of bytes moved.

    Raises:
        NotFound: an object is gone: the index has changed in the meantime, or bytes were lost.
        Fenced: the claim was fenced.
        Conflict: the index has changed in the meantime, or the sweep has forbidden a copy.
        Unavailable: a store did not answer.
    """
    if task.kind is not TaskKind.COMPACT:
        return 0
    bounds = await metadata.log.bounds([partition for partition, _, _ in task.ranges])
    ranges = [
        OffsetRange(partition, start, bounds[partition].end)
        for partition, start, _ in task.ranges
        if partition in bounds and start < bounds[partition].end
    ]
    shared = [
        found
        for found in await metadata.log.slices(ranges)
        if found.kind is ObjectKind.WAL and not found.object_key.startswith(KEPT_PREFIX)
    ]
    objects = [
        await _copy(group, stream, claim, store, next_key()) for group in _groups(shared, settings.quarantine_bytes_max)
    ]
    if objects:
        await metadata.tasks.prepare(claim, None, [swap.object.key for swap in objects])
        await metadata.log.swap(Swap(claim=claim, objects=objects, is_final=False))
    return sum(found.slice.length for found in shared)


def _groups(slices: Iterable[LocatedSlice], bytes_max: int) -> Iterator[list[LocatedSlice]]:
    group: list[LocatedSlice] = []
    size = 0
    for found in slices:
        if group and size + found.slice.length > bytes_max:
            yield group
            group, size = [], 0
        group.append(found)
        size += found.slice.length
    if group:
        yield group


async def _copy(
    group: Sequence[LocatedSlice], stream: Stream, claim: TaskClaim, store: ObjectStore, key: str
) -> SwapObject:
    parts = []
    for found in group:
        piece = found.slice
        (view,) = await store.read(found.object_key, [ByteRange(piece.position, piece.position + piece.length)])
        parts.append(Part(stream.id.bytes, partition_index(piece.partition), _batches(view)))
    sealed = wal_writer.seal(parts, node_id=claim.worker.node_id, server_epoch=claim.worker.epoch)
    await store.put(key, [sealed.buffer])
    slices = [found.slice._replace(position=position) for found, position in zip(group, sealed.positions, strict=True)]
    return SwapObject(object=ObjectRef(key, len(sealed.buffer), ObjectKind.WAL), slices=slices)


def _batches(view: memoryview) -> Sequence[Buffer]:
    """Return the batches of a slice, or all bytes as one if they are damaged: they are moved, not validated."""
    try:
        return [view[at : at + header.length] for at, _, header in kernel.batches(view, 0, len(view))]
    except Corrupt:
        return [view]
