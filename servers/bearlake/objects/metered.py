"""Counts and times every call to a store, through a small interface that telemetry implements."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from typing_extensions import override

from bearlake.errors import BearlakeError
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectInfo, ObjectStore


class Recorder(Protocol):
    """Takes one observation per call. Must not block or raise."""

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        """Record the end of one call of `operation` (put, read, size, delete, list).

        `outcome`: `ok`, `cancelled`, or the error kind in snake case (`already_exists`, `not_found`, `out_of_range`, `unavailable`,
        `denied`, …): a bounded set, fit for labels. `size_bytes`: bytes put or read; 0 for other calls and
        after an error.
        """


class MeteredObjectStore(ObjectStore):
    """An `ObjectStore` that reports each call of `inner` to `recorder`; times are the event loop's (s)."""

    def __init__(self, inner: ObjectStore, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        with self._observed("put") as call:
            await self._inner.put(key, parts)
            call.size_bytes = sum(map(len, parts))

    @override
    def blocking_put(self) -> BlockingPut | None:
        """The caller measures the first attempt."""
        inner = self._inner.blocking_put()
        return None if inner is None else replace(inner, attempted=self._attempted)

    def _attempted(self, seconds: float, size: int, error: BearlakeError | None) -> None:
        outcome, size_bytes = ("ok", size) if error is None else (_outcome(error), 0)
        self._recorder.observe("put", outcome, seconds, size_bytes)

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        with self._observed("read") as call:
            views = await self._inner.read(key, ranges)
            call.size_bytes = sum(map(len, views))
        return views

    @override
    async def size(self, key: str) -> int:
        with self._observed("size"):
            return await self._inner.size(key)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        with self._observed("delete"):
            await self._inner.delete(keys)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    def _observed(self, operation: str) -> "_Call":
        return _Call(operation, self._recorder)

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """One observation per listing; its time includes the consumer's time."""
        with self._observed("list"):
            async for found in self._inner.list(prefix, after):
                yield found


class _Call:
    """One call, from its start to the end of the block. A class, because a generator would cost twice the time on each put."""

    __slots__ = ("_loop", "_operation", "_recorder", "_start_s", "size_bytes")

    def __init__(self, operation: str, recorder: Recorder) -> None:
        self._operation = operation
        self._recorder = recorder
        self.size_bytes = 0

    def __enter__(self) -> "_Call":
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        outcome = "ok" if error is None else _outcome(error)
        self._recorder.observe(self._operation, outcome, self._loop.time() - self._start_s, self.size_bytes)


def _outcome(error: BaseException) -> str:
    if isinstance(error, BearlakeError):
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return "cancelled" if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else "ok"
