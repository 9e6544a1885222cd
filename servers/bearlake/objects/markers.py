"""An object store with transaction markers. No store holds these objects: their bytes follow from their keys (`records/markers.py`).

Every reader of WAL objects goes through this wrapper (`objects/open.py`), so markers are served, cached and compacted as other batches.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

from typing_extensions import override

from bearlake.errors import Invalid, NotFound, OutOfRange
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.records import markers


class MarkerObjectStore(ObjectStore):
    """Passes calls on to `inner`, except for objects of markers. Closing it closes `inner`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Raises `Invalid` for a key of markers: nobody puts them."""
        _refuse(key)
        await self._inner.put(key, parts)

    @override
    def blocking_put(self) -> BlockingPut | None:
        inner = self._inner.blocking_put()
        if inner is None:
            return None
        put = inner.attempt

        def attempt(key: str, parts: Sequence[Buffer]) -> None:
            _refuse(key)
            put(key, parts)

        return replace(inner, attempt=attempt)

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """Never raises `NotFound` for markers."""
        if not key.startswith(markers.PREFIX):
            return await self._inner.read(key, ranges)
        found = _parse(key)
        batch = found.batch()
        return [_view(found, batch, start, end) for start, end in ranges]

    @override
    async def size(self, key: str) -> int:
        return _parse(key).size if key.startswith(markers.PREFIX) else await self._inner.size(key)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        stored = [key for key in keys if not key.startswith(markers.PREFIX)]
        if stored:
            await self._inner.delete(stored)

    @override
    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Markers are not listed."""
        return self._inner.list(prefix, after)

    @override
    async def close(self) -> None:
        await self._inner.close()


def _refuse(key: str) -> None:
    if key.startswith(markers.PREFIX):
        raise Invalid(f"{key!r} is a key of transaction markers, which are not stored")


def _parse(key: str) -> markers.Markers:
    try:
        return markers.parse(key)
    except Invalid as error:
        raise NotFound(f"no object {key!r}") from error


def _view(found: markers.Markers, batch: bytes, start: int, end: int) -> memoryview:
    """Build only the batches that the range touches: an object may have a marker for each of many partitions."""
    if not 0 <= start <= end <= found.size:
        raise OutOfRange(f"bytes [{start}, {end}) of {found.key()}", start=0, end=found.size)
    first = start // markers.MARKER_BYTES
    last = -(-end // markers.MARKER_BYTES)
    shift = first * markers.MARKER_BYTES
    return memoryview(bytearray(batch * (last - first)))[start - shift : end - shift]
