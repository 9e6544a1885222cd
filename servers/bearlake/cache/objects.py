"""The object cache: bytes of WAL objects, ready to be served, bounded in bytes.

- The cache takes this server's own objects when they are committed. It reads objects of other servers once (single flight: all readers
  of one extent wait for one request).
- Stored batches have base offset 0. The cache *rebases* a slice in place on first use (`kernel.rebase`), so that it can serve one view per
  run of batches without a copy. Rebasing is deterministic, so it is safe to repeat.
- The cache evicts the least recently used extents. Views that readers still hold keep evicted bytes alive; `size_bytes` counts only cached
  extents, `kept_bytes` the evicted ones. A client that does not read its response could keep many objects by a small part of each. While
  `kept_bytes` is above half of `bytes_max`, and after each read from the store, readers therefore get copies of small parts.
- Bytes that turn out to be damaged leave the cache, and the next reader reads them again.
- The bytes being read from the store at once are bounded, so memory outside the cache stays bounded however many readers lag.
"""

import asyncio
import sys
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
    """Limits of the object cache."""

    bytes_max: int = 128 * 1024 * 1024
    """Bytes of objects kept in memory. More bytes save reads of the object store by lagging consumers."""
    slice_fraction_min: float = 0.125
    """A cache miss reads the whole object if the slice is at least this fraction of it, else only the range of the slice."""
    unread_ms: int = 10_000
    """Time (ms) without a read after which this server's own large objects are not copied into the cache, until the next read. The copy
    takes a tenth of the processor time of large batches; the first reader after a pause reads the object store."""
    loading_bytes_max: int = 64 * 1024 * 1024
    """Bytes that are being read from the object store at once; further reads wait. A larger limit is faster for many lagging consumers."""


class Extent:
    """Bytes of one object from position `start` on, and the positions of the slices already rebased (None: all)."""

    __slots__ = ("buffer", "rebased", "start")

    def __init__(self, start: int, buffer: memoryview, rebased: set[int] | None) -> None:
        self.start = start
        self.buffer = buffer
        self.rebased = rebased

    def view(self, piece: Slice) -> memoryview:
        """Return the slice's bytes with its offsets written in. Raises as `write_offsets`."""
        self.write_offsets(piece)
        low = piece.position - self.start
        return self.buffer[low : low + piece.length]

    def cut(self, piece: Slice, offset: int, bytes_max: int, *, is_first: bool) -> tuple[memoryview, bool]:
        """Return the batches of a slice whose offsets are written in; see `ObjectCache.cut`."""
        low = piece.position - self.start
        high = low + piece.length
        start, end = kernel.find_run(self.buffer, low, high, offset, bytes_max, is_first)
        return self.buffer[start:end], end == high

    def write_offsets(self, piece: Slice) -> None:
        """Write the slice's offsets into its batches, once.

        Raises:
            Corrupt: the bytes are not the batches that were committed.
        """
        if self.rebased is not None and piece.position not in self.rebased:
            kernel.rebase(self.buffer, (piece,), NO_LEADER_EPOCH, self.start)
            self.rebased.add(piece.position)


ExtentKey = tuple[str, int, int]
_LAST_REFERENCES = 2
"""References to memory that nothing but `_count_kept` knows: its variable, and the argument of `getrefcount`."""


class ObjectCache:
    """Byte-bounded, single-flight cache in front of an object store. Use it from the event loop's thread only."""

    def __init__(
        self, store: ObjectStore, settings: CacheSettings, on_lookup: Callable[[bool], None] = lambda is_hit: None
    ) -> None:
        """`on_lookup` is called for every look-up, with True for a hit."""
        self._store = store
        self._settings = settings
        self._on_lookup = on_lookup
        self._extents: OrderedDict[ExtentKey, Extent] = OrderedDict()
        self._loading: dict[ExtentKey, asyncio.Task[Extent]] = {}
        self._gate = ByteGate(settings.loading_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._unread_s = settings.unread_ms / 1000
        self._read_at = -self._unread_s
        self.size_bytes = 0
        self.kept_bytes = 0
        """Bytes of evicted extents that views of readers keep in memory, as of the last eviction."""
        self._kept: list[tuple[object, int]] = []  # their memory and its size (bytes)

    def note_reader(self, wait_ms: float = 0) -> None:
        """Somebody reads, or waits up to `wait_ms` for what is committed next."""
        self._read_at = max(self._read_at, self._loop.time() + wait_ms / 1000)

    def has_readers(self) -> bool:
        """Whether somebody has read within `unread_ms`: what is committed now may soon be read."""
        return self._loop.time() - self._read_at < self._unread_s

    def add(self, ref: ObjectRef, buffer: bytearray | None, slices: Sequence[Slice]) -> None:
        """Cache a whole object that was just committed, and rebase its `slices`. The cache owns the buffer from then on. None: no copy."""
        if buffer is None:
            return
        kernel.rebase(buffer, slices, NO_LEADER_EPOCH)
        self._insert((ref.key, 0, ref.size), Extent(0, memoryview(buffer), None))

    def peek(self, ref: ObjectRef, piece: Slice) -> memoryview | None:
        """Return the slice's bytes if they are cached and not damaged, else None; never waits."""
        extent = self._extent(ref, piece)
        return None if extent is None else self._light(extent, extent.view(piece))

    def cut(
        self, ref: ObjectRef, piece: Slice, offset: int, bytes_max: int, *, is_first: bool
    ) -> tuple[memoryview, bool] | None:
        """As `peek`, but return only the run of batches that `kernel.find_run` finds, and whether it reaches the end of the slice."""
        extent = self._extent(ref, piece)
        if extent is None:
            return None
        view, is_whole = extent.cut(piece, offset, bytes_max, is_first=is_first)
        return self._light(extent, view), is_whole

    def _light(self, extent: Extent, part: memoryview) -> memoryview:
        """The part, or a copy if too many evicted bytes are kept, and the part may keep many times its size."""
        if self.kept_bytes * 2 <= self._settings.bytes_max or self._is_large(extent, part):
            return part
        return memoryview(bytes(part))

    def _is_large(self, extent: Extent, part: memoryview) -> bool:
        return len(part) >= len(extent.buffer) * self._settings.slice_fraction_min

    def _extent(self, ref: ObjectRef, piece: Slice) -> Extent | None:
        """The extent that has the slice, with the slice's offsets written in; None if it is not cached or damaged."""
        extents = self._extents
        key: ExtentKey = (ref.key, 0, ref.size)
        extent = extents.get(key)
        if extent is None:
            key = (ref.key, piece.position, piece.position + piece.length)
            extent = extents.get(key)
            if extent is None:
                return None
        extents.move_to_end(key)
        try:
            extent.write_offsets(piece)
        except Corrupt:
            self._drop(key)  # `get` reads the bytes again
            return None
        self._on_lookup(True)
        return extent

    async def get(self, ref: ObjectRef, piece: Slice, *, is_tail: bool) -> memoryview:
        """Return the slice's bytes; reads them from the store if they are not cached.

        `is_tail`: read the whole object, because other readers will soon want its other slices. Otherwise `slice_fraction_min` decides.

        Raises:
            NotFound: the object was deleted (swept): resolve the offset again.
            Corrupt: the object's bytes differ from what was committed.
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
        extent = await asyncio.shield(task)
        try:
            part = extent.view(piece)
        except Corrupt:
            if self._extents.get(key) is extent:
                self._drop(key)  # the next reader finds the repaired object
            raise
        return part if self._is_large(extent, part) else memoryview(bytes(part))

    def extent_of(self, ref: ObjectRef, piece: Slice, *, is_tail: bool) -> ExtentKey:
        """Return (object, start, end) of the bytes that `get` would read for a slice that is not cached."""
        if is_tail or piece.length >= ref.size * self._settings.slice_fraction_min:
            return (ref.key, 0, ref.size)
        return (ref.key, piece.position, piece.position + piece.length)

    def _loaded(self, key: ExtentKey, task: asyncio.Task[Extent]) -> None:
        self._loading.pop(key, None)
        if not task.cancelled():
            task.exception()  # mark the error as retrieved: all waiters may have been cancelled

    async def _load(self, key: ExtentKey) -> Extent:
        name, start, end = key
        try:
            async with self._gate.hold(end - start):
                (part,) = await self._store.read(name, [ByteRange(start, end)])
        except OutOfRange as error:  # a byte range; readers must not mistake it for an offset out of range
            raise Corrupt(f"object {name} is shorter than its committed size: {error}") from error
        if len(part) != end - start:
            raise Corrupt(f"object {name}: expected {end - start} bytes at {start}, got {len(part)}")
        extent = Extent(start, part, set())
        self._insert(key, extent)
        return extent

    def _insert(self, key: ExtentKey, extent: Extent) -> None:
        if key in self._extents:
            self._drop(key)
        self._extents[key] = extent
        self.size_bytes += len(extent.buffer)
        while self.size_bytes > self._settings.bytes_max and len(self._extents) > 1:
            _, oldest = self._extents.popitem(last=False)
            self.size_bytes -= len(oldest.buffer)
            metrics.CACHE_EVICTED_BYTES.value += len(oldest.buffer)
            self._kept.append((oldest.buffer.obj, len(oldest.buffer)))
            del oldest
        self._count_kept()

    def _count_kept(self) -> None:
        """Forget evicted memory of which no reader has a view any more, and count the rest: a view refers to its memory."""
        kept, self._kept = self._kept, []
        while kept:
            memory, size_bytes = kept.pop()
            if sys.getrefcount(memory) > _LAST_REFERENCES:
                self._kept.append((memory, size_bytes))
        self.kept_bytes = sum(size_bytes for _, size_bytes in self._kept)

    def _drop(self, key: ExtentKey) -> None:
        self.size_bytes -= len(self._extents.pop(key).buffer)

    async def close(self) -> None:
        """Cancel reads in progress and drop all bytes."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        self._extents.clear()
        self._kept.clear()
        self.size_bytes = self.kept_bytes = 0
