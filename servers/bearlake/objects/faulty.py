"""A store that fails as real stores do, for tests, the simulation and benchmarks with latency.

Faults come from an injected random source and waits from the event loop, so a seed replays exactly, also in virtual time. A call can
meet, in this order: a stall (it waits, and may give up), its latency, an error before the effect, the effect, a lost reply (the effect
happened, but the caller gets `Unavailable`). A torn read delivers only part of its bytes, and is `Unavailable` as well.
"""

import asyncio
import math
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from typing_extensions import override

from bearlake.errors import Unavailable
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.objects.fault_settings import InjectedFaults

T = TypeVar("T")

STALL_POLL_MS = 20
"""How often (ms) a stalled call checks `is_stalled` again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A log-normal distribution, the usual shape of a service's latency; `spread` 0 makes it constant."""

    median_ms: float = 0.0
    """Half of the calls take longer. S3: about 20 for a small read, 80 for a put of 8 MiB."""

    spread: float = 0.0
    """Standard deviation of the logarithm; with 0.5, one call in a hundred takes 3.2 times the median."""

    max_ms: float = math.inf
    """No call takes longer."""

    def draw_s(self, randomness: random.Random) -> float:
        """Draw a latency in seconds."""
        return min(self.median_ms * math.exp(randomness.gauss(0.0, self.spread)), self.max_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """How often and how the store fails; rates are probabilities per call, 0 to 1."""

    put_latency: Latency = field(default_factory=Latency)
    """Latency of puts."""

    read_latency: Latency = field(default_factory=Latency)
    """Latency of all other calls."""

    error_rate: float = 0.0
    """`Unavailable` without an effect; a listing may also fail after any of its objects."""

    lost_reply_rate: float = 0.0
    """`Unavailable` although the put or deletion happened."""

    torn_read_rate: float = 0.0
    """`Unavailable` after some of the bytes have arrived."""

    stall_rate: float = 0.0
    """A stall of the whole store begins with this call."""

    stall_ms: float = 0.0
    """Length of such a stall."""

    stall_deadline_ms: float = 1_000.0
    """A call during a stall waits for its end, at most this long, and is then `Unavailable` without an effect."""


def faulty(inner: ObjectStore, faults: InjectedFaults, randomness: random.Random) -> "FaultyObjectStore":
    """Return `inner` with the faults of a server's settings."""
    settings = FaultSettings(
        put_latency=Latency(median_ms=faults.put_latency_ms, spread=faults.latency_spread),
        read_latency=Latency(median_ms=faults.read_latency_ms, spread=faults.latency_spread),
        error_rate=faults.error_fraction,
        lost_reply_rate=faults.lost_reply_fraction,
        stall_deadline_ms=faults.stall_deadline_ms,
    )
    stall_file = faults.stall_file
    return FaultyObjectStore(inner, settings, randomness, lambda: bool(stall_file) and os.path.exists(stall_file))


class FaultyObjectStore(ObjectStore):
    """An `ObjectStore` that passes calls on to `inner`, with faults. Closing it closes `inner`."""

    def __init__(
        self,
        inner: ObjectStore,
        settings: FaultSettings,
        randomness: random.Random,
        is_stalled: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_stalled` returns True during a stall that was started elsewhere; every call checks it."""
        self._inner = inner
        self._settings = settings
        self._randomness = randomness
        self._is_stalled = is_stalled
        self._stalled_until_s = -math.inf

    def stall(self, duration_ms: float) -> None:
        """Stop answering for `duration_ms` from now; call this inside the running event loop."""
        end_s = asyncio.get_running_loop().time() + duration_ms / 1000
        self._stalled_until_s = max(self._stalled_until_s, end_s)

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._call(
            lambda: self._inner.put(key, parts),
            key,
            self._settings.put_latency,
            self._settings.lost_reply_rate,
        )

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        return await self._call(
            lambda: self._inner.read(key, ranges), key, self._settings.read_latency, self._settings.torn_read_rate
        )

    @override
    async def size(self, key: str) -> int:
        return await self._call(lambda: self._inner.size(key), key, self._settings.read_latency, 0.0)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        settings = self._settings
        await self._call(lambda: self._inner.delete(keys), "deletion", settings.read_latency, settings.lost_reply_rate)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _call(self, call: Callable[[], Awaitable[T]], what: str, latency: Latency, lost_rate: float) -> T:
        await self._before(what, latency)
        result = await call()
        if self._happens(lost_rate):
            raise Unavailable(f"{what}: injected fault after the effect")
        return result

    async def _before(self, what: str, latency: Latency) -> None:
        if self._happens(self._settings.stall_rate):
            self.stall(self._settings.stall_ms)
        await self._wait_for_stall(what)
        delay_s = latency.draw_s(self._randomness)
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        if self._happens(self._settings.error_rate):
            raise Unavailable(f"{what}: injected fault before the effect")

    async def _wait_for_stall(self, what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.stall_deadline_ms / 1000
        while self._is_stalled() or self._stalled_until_s > loop.time():
            if loop.time() >= deadline_s:
                raise Unavailable(f"{what}: the store is stalled")
            end_s = loop.time() + STALL_POLL_MS / 1000 if self._is_stalled() else self._stalled_until_s
            await asyncio.sleep(min(end_s, deadline_s) - loop.time())

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._randomness.random() < rate

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._before(prefix, self._settings.read_latency)
        async for found in self._inner.list(prefix, after):
            yield found
            if self._happens(self._settings.error_rate):
                raise Unavailable(f"listing of {prefix!r}: injected fault")
