"""Rewrites lost kept objects of a task whose table commit succeeded in an earlier epoch.

The rows are already in the table, so the task cannot run again. The batches that rows cannot represent exactly are still in the WAL, where
the index finds them, and are copied under new keys. (Versions before 0.1.0 let the orphan sweep delete such objects.)
"""

from collections.abc import Callable, Iterator, Sequence

from bearlake import kernel
from bearlake.errors import Conflict
from bearlake.metadata import CommitLog
from bearlake.metadata.compaction import OffsetRange, SwapObject
from bearlake.metadata.model import LocatedSlice, ObjectKind, ObjectRef, Slice, Stream, partition_index
from bearlake.objects import ByteRange, ObjectStore
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Buffer, Part


async def written_anew(
    lost: SwapObject, stream: Stream, log: CommitLog, store: ObjectStore, next_key: Callable[[], str]
) -> SwapObject | None:
    """Copy the batches of a lost kept object from the WAL; the new object is durable. None: all batches were trimmed.

    Raises:
        Conflict: the index has the offsets outside the WAL, so another worker has swapped them.
        NotFound, Corrupt: the WAL object is lost or damaged, too.
        Unavailable: a store did not answer.
    """
    spans: list[Slice] = []
    parts: list[Part] = []
    for piece in lost.slices:
        found = [
            batch
            for located in await log.slices([OffsetRange(piece.partition, piece.base_offset, piece.end_offset)])
            for batch in await _batches(located, piece, store)
        ]
        if found:
            start, length = found[0][0], sum(len(batch) for _, batch in found)
            spans.append(Slice(piece.partition, start, piece.end_offset - start, 0, length, piece.max_timestamp))
            parts.append(Part(stream.id.bytes, partition_index(piece.partition), [batch for _, batch in found]))
    if not parts:
        return None
    sealed = wal_writer.seal(parts, node_id=0, server_epoch=0)
    key = next_key()
    await store.put(key, [sealed.buffer])
    slices = [span._replace(position=position) for span, position in zip(spans, sealed.positions, strict=True)]
    return SwapObject(object=ObjectRef(key, len(sealed.buffer), ObjectKind.WAL), slices=slices)


async def _batches(located: LocatedSlice, piece: Slice, store: ObjectStore) -> Sequence[tuple[int, Buffer]]:
    """Return the slice's batches that lie in `piece`, with their offsets."""
    if located.kind is not ObjectKind.WAL:
        raise Conflict(
            f"offsets {piece.base_offset} to {piece.end_offset} of {piece.partition} are no longer in the WAL"
        )
    at = located.slice.position
    (view,) = await store.read(located.object_key, [ByteRange(at, at + located.slice.length)])
    return [
        (offset, batch)
        for offset, batch in _with_offsets(located.slice.base_offset, view)
        if piece.base_offset <= offset < piece.end_offset
    ]


def _with_offsets(offset: int, view: memoryview) -> Iterator[tuple[int, Buffer]]:
    for at, _, header in kernel.batches(view, 0, len(view)):
        yield offset, view[at : at + header.length]
        offset += header.last_offset_delta + 1
