"""Objects in this process's memory: for tests, the simulation and `memory:///`.

Bytes are copied on put and on read, so no buffer is ever shared with a caller. There are no threads, and each call awaits only
one iteration of the event loop, so the store runs on any asyncio loop, also with virtual time. Its content is lost with the process.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Collection, Sequence

from typing_extensions import override

from bearlake.clock import Clock, SystemClock
from bearlake.errors import AlreadyExists, Invalid, NotFound
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.objects.keys import check_key, check_prefix
from bearlake.objects.ranges import check_within


class MemoryObjectStore(ObjectStore):
    """An `ObjectStore` in memory; `clock` stamps the objects."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._keys: list[str] = []  # sorted; keys are ASCII, so this is bytewise order

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        await asyncio.sleep(0)
        if key in self._objects:
            raise AlreadyExists(f"object {key} exists")
        self._objects[key] = (b"".join(parts), self._clock.now_ms())
        insort(self._keys, key)

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        check_key(key)
        for start, end in ranges:
            if not 0 <= start <= end:
                raise Invalid(f"byte range [{start}, {end}): expected 0 <= start <= end")
        await asyncio.sleep(0)
        if not ranges:
            return []
        content = self._content(key)
        check_within(key, ranges, len(content))
        return [memoryview(bytearray(content[start:end])) for start, end in ranges]

    @override
    async def size(self, key: str) -> int:
        check_key(key)
        await asyncio.sleep(0)
        return len(self._content(key))

    @override
    async def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            check_key(key)
        await asyncio.sleep(0)
        for key in keys:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects put or deleted during the listing may or may not appear."""
        check_prefix(prefix)
        last = after
        while True:
            await asyncio.sleep(0)
            at = max(bisect_right(self._keys, last), bisect_left(self._keys, prefix))
            if at == len(self._keys) or not self._keys[at].startswith(prefix):
                return
            last = self._keys[at]
            content, modified_ms = self._objects[last]
            yield ObjectInfo(key=last, size=len(content), modified_ms=modified_ms)

    @override
    async def close(self) -> None:
        """The objects stay readable."""

    def _content(self, key: str) -> bytes:
        entry = self._objects.get(key)
        if entry is None:
            raise NotFound(f"object {key} does not exist")
        return entry[0]
