"""The object cache: bytes of WAL objects, ready to be served, bounded in bytes.

- What this server wrote goes in when it is committed; what others wrote is read once (single flight: any number of readers
  of one extent wait for one request).
- Stored batches carry meaningless base offsets; a cached slice is *rebased* in place on its first use (`kernel.rebase`), so that a
  reader is served one view per run of batches, without a copy. Rebasing is deterministic, hence safe to repeat.
- Least recently used extents go first. Views that readers still hold keep their bytes alive a little longer; the budget counts
  what the cache itself holds. A reader of a small part of what had to be read gets a copy, which keeps nothing else alive.
- Reads of the store are bounded in bytes at once: the memory beside the cache stays bounded however many readers lag.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bearlake import kernel
from bearlake.cache.gate import ByteGate
from bearlake.errors import Corrupt, OutOfRange
from bearlake.metadata.model import ObjectRef, Slice
from bearlake.objects import ByteRange, ObjectStore
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.telemetry import metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Bounds of the object cache."""

    bytes_max: int = 128 * 1024 * 1024
    """Bytes of objects kept in memory. More saves reads of the object store for lagging consumers; fewer saves memory."""
    slice_fraction_min: float = 0.125
    """A cold read gets the whole object when its slice is at least this part of it, else only the slice's range."""
    loading_bytes_max: int = 64 * 1024 * 1024
    """Bytes that are being read from the object store at once; further reads wait. More is faster for many lagging consumers."""


class Extent:
    """Bytes `[start, end)` of one object, with the slices in it that were rebased already (None: all of them)."""

    __slots__ = ("buffer", "rebased", "start")

    def __init__(self, start: int, buffer: memoryview, rebased: set[int] | None) -> None:
        self.start = start
        self.buffer = buffer
        self.rebased = rebased

    def view(self, piece: Slice) -> memoryview:
        """The slice's bytes with its offsets in place.

        Raises:
            Corrupt: the bytes are not the batches that were committed.
        """
        low = piece.position - self.start
        part = self.buffer[low : low + piece.length]
        if self.rebased is not None and piece.position not in self.rebased:
            kernel.rebase(part, (piece._replace(position=0),), NO_LEADER_EPOCH)
            self.rebased.add(piece.position)
        return part


ExtentKey = tuple[str, int, int]


class ObjectCache:
    """Byte-bounded, single-flight cache in front of an object store. Used from the event loop's thread only."""

    def __init__(
        self, store: ObjectStore, settings: CacheSettings, on_lookup: Callable[[bool], None] = lambda is_hit: None
    ) -> None:
        """`on_lookup` is told of every look-up: True for a hit."""
        self._store = store
        self._settings = settings
        self._on_lookup = on_lookup
        self._extents: OrderedDict[ExtentKey, Extent] = OrderedDict()
        self._loading: dict[ExtentKey, asyncio.Task[Extent]] = {}
        self._gate = ByteGate(settings.loading_bytes_max)
        self.size_bytes = 0

    def add(self, ref: ObjectRef, buffer: bytearray, slices: Sequence[Slice]) -> None:
        """Take over a whole object that was just committed; its `slices` are rebased now. The buffer belongs to the cache then."""
        kernel.rebase(buffer, slices, NO_LEADER_EPOCH)
        self._insert((ref.key, 0, ref.size), Extent(0, memoryview(buffer), None))

    def peek(self, ref: ObjectRef, piece: Slice) -> memoryview | None:
        """The slice's bytes if they are here, else None; no waiting."""
        extents = self._extents
        key: ExtentKey = (ref.key, 0, ref.size)
        extent = extents.get(key)
        if extent is None:
            key = (ref.key, piece.position, piece.position + piece.length)
            extent = extents.get(key)
            if extent is None:
                return None
        extents.move_to_end(key)
        self._on_lookup(True)
        return extent.view(piece)

    async def get(self, ref: ObjectRef, piece: Slice, *, is_tail: bool) -> memoryview:
        """The slice's bytes, read from the store if they are not here.

        `is_tail`: others will soon want the object's neighbours, so the whole object is read. Else only what is worth it.

        Raises:
            NotFound: the object is gone (swept): resolve the offset again.
            Corrupt: the object's bytes are not what was committed.
            Unavailable: the store did not answer in time.
        """
        part = self.peek(ref, piece)
        if part is not None:
            return part
        self._on_lookup(False)
        key = self.extent_of(ref, piece, is_tail=is_tail)
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.get_running_loop().create_task(self._load(key))
            task.add_done_callback(lambda done: self._loaded(key, done))
        part = (await asyncio.shield(task)).view(piece)
        if len(part) < (key[2] - key[1]) * self._settings.slice_fraction_min:
            return memoryview(bytes(part))
        return part

    def extent_of(self, ref: ObjectRef, piece: Slice, *, is_tail: bool) -> ExtentKey:
        """(object, start, end) of what `get` would read for the slice if it is not here."""
        if is_tail or piece.length >= ref.size * self._settings.slice_fraction_min:
            return (ref.key, 0, ref.size)
        return (ref.key, piece.position, piece.position + piece.length)

    def _loaded(self, key: ExtentKey, task: asyncio.Task[Extent]) -> None:
        self._loading.pop(key, None)
        if not task.cancelled():
            task.exception()  # every waiter may have gone; its error is then nobody's

    async def _load(self, key: ExtentKey) -> Extent:
        name, start, end = key
        try:
            async with self._gate.hold(end - start):
                (part,) = await self._store.read(name, [ByteRange(start, end)])
        except OutOfRange as error:  # of bytes: it must never look like an offset's
            raise Corrupt(f"object {name} is shorter than what was committed: {error}") from error
        if len(part) != end - start:
            raise Corrupt(f"object {name}: {end - start} bytes expected at {start}, got {len(part)}")
        extent = Extent(start, part, set())
        self._insert(key, extent)
        return extent

    def _insert(self, key: ExtentKey, extent: Extent) -> None:
        before = self._extents.pop(key, None)
        if before is not None:
            self.size_bytes -= len(before.buffer)
        self._extents[key] = extent
        self.size_bytes += len(extent.buffer)
        while self.size_bytes > self._settings.bytes_max and len(self._extents) > 1:
            _, oldest = self._extents.popitem(last=False)
            self.size_bytes -= len(oldest.buffer)
            metrics.CACHE_EVICTED_BYTES.value += len(oldest.buffer)

    async def close(self) -> None:
        """Cancel reads under way and drop all bytes."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        self._extents.clear()
        self.size_bytes = 0
