"""Retries, in one place: bounded attempts, exponential pauses with jitter, a total deadline.

Only `Unavailable` is retried; every operation is safe to repeat, since keys are never reused. Waits use the event loop's time.

Source: Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): full jitter.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from typing_extensions import override

from bearlake.errors import AlreadyExists, BearlakeError, NotFound, Unavailable
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectInfo, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Settings of the retries."""

    attempt_count_max: int = 6
    """Attempts per call. More attempts survive longer outages, but hold the caller's memory longer."""

    pause_first_ms: int = 50
    """Upper bound of the first pause; doubles for each further pause. A pause is drawn between 0 and its bound, so that servers do not
    retry in step."""

    pause_max_ms: int = 5_000
    """Upper bound of every pause."""

    deadline_ms: int = 60_000
    """Longest time of a call with its retries. Must be far below the grace period of the orphan sweep, so that no put comes after its key
    was swept."""


class RetryingObjectStore(ObjectStore):
    """An `ObjectStore` that retries failed calls of `inner`; `randomness` draws the pauses."""

    def __init__(self, inner: ObjectStore, settings: RetrySettings, randomness: random.Random) -> None:
        self._inner = inner
        self._settings = settings
        self._randomness = randomness

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """`AlreadyExists` after an `Unavailable` of the same call counts as success, if the object is there."""
        await self._put(key, parts, None)

    @override
    def blocking_put(self) -> BlockingPut | None:
        """Its attempt is the first one; a failure of the store is retried as that of any other attempt."""
        inner = self._inner.blocking_put()
        return None if inner is None else replace(inner, again=self._put)

    async def _put(self, key: str, parts: Sequence[Buffer], failed: BearlakeError | None) -> None:
        """`failed`: what an earlier attempt has raised."""
        if failed is not None and not isinstance(failed, Unavailable):
            raise failed
        was_unavailable = failed is not None

        async def attempt() -> None:
            nonlocal was_unavailable
            try:
                await self._inner.put(key, parts)
            except Unavailable:
                was_unavailable = True
                raise
            except AlreadyExists:
                if not was_unavailable:
                    raise
                await self._confirm(key, sum(memoryview(part).nbytes for part in parts))

        try:
            await self._retry(attempt, key, failed)
        finally:
            failed = None  # as `last` in `_retry`

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        return await self._retry(lambda: self._inner.read(key, ranges), key)

    @override
    async def size(self, key: str) -> int:
        return await self._retry(lambda: self._inner.size(key), key)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        await self._retry(lambda: self._inner.delete(keys), "deletion")

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _confirm(self, key: str, size: int) -> None:
        """Raise `Unavailable` unless the object is there, which an earlier attempt may have stored.

        A store can refuse a key whose object it does not have: Versity S3 Gateway 1.8 with a sidecar stores an object's ETag first, and
        after a full disk has only that.
        """
        try:
            found = await self._inner.size(key)
        except NotFound as error:
            raise Unavailable(f"object {key}: the store says that it exists, but does not have it") from error
        if found != size:
            raise Unavailable(f"object {key}: the store has {found} bytes under this key, not the {size} of this put")

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str, last: Unavailable | None = None) -> T:
        """`last`: the error of a first attempt that has been made."""
        deadline_ms = self._settings.deadline_ms
        failure_count = 0 if last is None else 1
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                if last is not None:
                    if failure_count >= self._settings.attempt_count_max:
                        raise last
                    await asyncio.sleep(self._pause_s(failure_count))
                while True:
                    try:
                        return await attempt()
                    except Unavailable as error:
                        last = error
                        failure_count += 1
                        if failure_count >= self._settings.attempt_count_max:
                            raise
                    await asyncio.sleep(self._pause_s(failure_count))
        except TimeoutError as error:
            raise Unavailable(f"{what}: no success within {deadline_ms} ms and {failure_count} attempts") from (
                last or error
            )
        finally:
            # The error's traceback holds this frame, and so the object's buffers: without this line, until cycles are collected.
            last = None

    def _pause_s(self, failure_count: int) -> float:
        bound_ms = min(self._settings.pause_max_ms, self._settings.pause_first_ms * 2 ** (failure_count - 1))
        return self._randomness.uniform(0, bound_ms) / 1000

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """A failed listing continues after the last object; attempts are counted anew after each object."""
        last, failure_count = after, 0
        while True:
            try:
                async for found in self._inner.list(prefix, last):
                    last, failure_count = found.key, 0
                    yield found
                return
            except Unavailable:
                failure_count += 1
                if failure_count >= self._settings.attempt_count_max:
                    raise
            await asyncio.sleep(self._pause_s(failure_count))
