"""Reads WAL slices in windows of bounded size."""

import asyncio
from collections.abc import Iterator, Sequence

from bearlake.compaction.concurrency import run_all
from bearlake.compaction.converter import Loaded
from bearlake.errors import Corrupt, OutOfRange
from bearlake.metadata.model import LocatedSlice, ObjectKind
from bearlake.objects import ByteRange, ObjectStore


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
