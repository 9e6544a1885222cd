"""What can happen to a call between a server and a store, and to one between a client and a server.

    request under way ──(lost: no effect)──► effect at the store ──(reply lost)──► reply under way ──► caller
            └─ refused at once: no effect                └─ takes place even when the caller has given up, or is dead

A call that has no answer within the deadline is `Unavailable`, and its effect may still come (a zombie). A stall of a store delays every
call until it is over. All of it is drawn from one seeded random source.
"""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.testing.loop import Process
from bearlake.wal.keys import PREFIX

T = TypeVar("T")

OVERLOADED_RATE = 0.2
"""Part of the metadata store's refusals that say `Overloaded`: a queue is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How often calls fail; rates are probabilities per call."""

    delay_ms: float = 2.0
    """Mean of the delay of a request, and of a reply; exponentially distributed."""
    slow_rate: float = 0.0
    """A message takes up to twice the deadline."""
    refused_rate: float = 0.0
    """`Unavailable` at once, without an effect."""
    lost_request_rate: float = 0.0
    """`Unavailable` after the deadline, without an effect."""
    lost_reply_rate: float = 0.0
    """`Unavailable` after the deadline; the effect took place."""
    doomed_put_rate: float = 0.0
    """Probability per WAL object: every put of it fails, without an effect, however often it is tried."""
    deadline_ms: float = 300.0
    """Longest wait for a reply."""


class Network:
    """Draws the fate of every call and counts the faults."""

    def __init__(
        self,
        settings: NetworkSettings,
        randomness: random.Random,
        stores: Process,
        on_bug: Callable[[Exception], None],
    ) -> None:
        """`stores` is the process in which effects take place; `on_bug` is told of an effect that raised what no store may raise."""
        self.settings = settings
        self.faults: Counter[str] = Counter()
        self.call_count = 0
        self.is_healthy = False
        """No faults from now on (calls under way keep their fate)."""
        self._random = randomness
        self._context = stores.context
        self._on_bug = on_bug
        self._stalled_until_s: dict[str, float] = {}

    def stall(self, store: str, duration_ms: float) -> None:
        """Let the store (`objects`, `metadata`) take no calls for so long."""
        if not self.is_healthy:
            self.faults[f"stall of {store}"] += 1
            self._stalled_until_s[store] = asyncio.get_running_loop().time() + duration_ms / 1000

    def delay_s(self) -> float:
        """How long one message takes."""
        settings = self.settings
        if self.happens(settings.slow_rate, "slow message"):
            return self._random.random() * 2 * settings.deadline_ms / 1000
        return self._random.expovariate(1.0) * settings.delay_ms / 1000

    def happens(self, rate: float, fault: str) -> bool:
        """Whether the fault happens now; counts it."""
        if self.is_healthy or rate <= 0 or self._random.random() >= rate:
            return False
        self.faults[fault] += 1
        return True

    async def call(self, store: str, what: str, effect: Callable[[], Awaitable[T]], *, wait_ms: float = 0.0) -> T:
        """Call a store. `wait_ms` is how long the store itself may take before it answers (long polls).

        Raises:
            Unavailable: the effect may or may not have taken place, or may still.
            Overloaded: no effect.
            BearlakeError: what the effect raised.
        """
        self.call_count += 1
        loop = asyncio.get_running_loop()
        settings = self.settings
        if self.happens(settings.refused_rate, "refused"):
            await asyncio.sleep(self.delay_s())
            kind = Overloaded if store == "metadata" and self._random.random() < OVERLOADED_RATE else Unavailable
            raise kind(f"{what}: refused")
        reply: asyncio.Future[T] = loop.create_future()
        give_up = loop.call_later((settings.deadline_ms + wait_ms) / 1000, _give_up, reply, what)
        if not self.happens(settings.lost_request_rate, "lost request"):
            stalled_until_s = 0.0 if self.is_healthy else self._stalled_until_s.get(store, 0.0)
            arrival = max(loop.time() + self.delay_s(), stalled_until_s)
            is_lost = self.happens(settings.lost_reply_rate, "lost reply")
            loop.call_at(arrival, self._arrive, effect, reply, is_lost, context=self._context)
        try:
            return await reply
        finally:
            give_up.cancel()

    def _arrive(self, effect: Callable[[], Awaitable[T]], reply: "asyncio.Future[T]", is_lost: bool) -> None:
        loop = asyncio.get_running_loop()
        loop.create_task(self._take_place(effect, reply, is_lost), context=self._context.copy())  # noqa: RUF006

    async def _take_place(self, effect: Callable[[], Awaitable[T]], reply: "asyncio.Future[T]", is_lost: bool) -> None:
        result: T | None = None
        error: BearlakeError | None = None
        try:
            result = await effect()
        except BearlakeError as raised:
            error = raised
        except Exception as bug:  # noqa: BLE001 - the boundary of the store: nothing else may leave it
            self._on_bug(bug)
            return
        if not is_lost:
            asyncio.get_running_loop().call_later(self.delay_s(), answer, reply, result, error)


def answer(reply: "asyncio.Future[Any]", result: Any, error: BaseException | None = None) -> None:
    """Answer a call, unless its caller has given up."""
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(result)


def _give_up(reply: "asyncio.Future[Any]", what: str) -> None:
    answer(reply, None, Unavailable(f"{what}: no answer"))


class RemoteObjectStore:
    """An `ObjectStore` behind the network."""

    def __init__(self, network: Network, inner: ObjectStore) -> None:
        self._network = network
        self._inner = inner
        self._fates: dict[str, bool] = {}
        """Whether an object can never be put, by key."""

    async def put(self, key: str, parts: Sequence[Buffer], on_durable: Callable[[], None] | None = None) -> None:
        """See `ObjectStore.put`; the bytes are taken now, whenever they arrive."""
        sent = b"".join(parts)
        if self._is_doomed(key):
            raise Unavailable(f"put {key}: never stored")
        await self._network.call("objects", f"put {key}", lambda: self._inner.put(key, [sent]))

    def _is_doomed(self, key: str) -> bool:
        if not key.startswith(PREFIX):
            return False
        if key not in self._fates:
            self._fates[key] = self._network.happens(self._network.settings.doomed_put_rate, "doomed put")
        return self._fates[key]

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """See `ObjectStore.read`."""
        return await self._network.call("objects", f"read {key}", lambda: self._inner.read(key, ranges))

    async def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        return await self._network.call("objects", f"size {key}", lambda: self._inner.size(key))

    async def delete(self, keys: Collection[str]) -> None:
        """See `ObjectStore.delete`."""
        await self._network.call("objects", "delete", lambda: self._inner.delete(keys))

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore.list`; without faults."""
        return self._inner.list(prefix, after)

    async def close(self) -> None:
        """Nothing: the store belongs to all servers."""


class _RemoteNoun:
    """One noun of the metadata store behind the network; every method is a call."""

    def __init__(self, network: Network, inner: Any, noun: str) -> None:
        self._network = network
        self._inner = inner
        self._noun = noun

    def blocking_commit(self) -> None:
        """None: the store is behind the network."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        def call(*arguments: Any, **named: Any) -> Awaitable[Any]:
            wait_ms = named["wait_ms"] if name == "wait" else 0.0
            return self._network.call(
                "metadata", f"{self._noun}.{name}", lambda: method(*arguments, **named), wait_ms=wait_ms
            )

        return call


class RemoteMetadata:
    """`metadata.Metadata` behind the network."""

    def __init__(self, network: Network, inner: Any) -> None:
        # Any: the proxies have the methods of the nouns that they stand for, whatever those are.
        self.streams: Any = _RemoteNoun(network, inner.streams, "streams")
        self.servers: Any = _RemoteNoun(network, inner.servers, "servers")
        self.log: Any = _RemoteNoun(network, inner.log, "log")
        self.producers: Any = _RemoteNoun(network, inner.producers, "producers")
        self.groups: Any = _RemoteNoun(network, inner.groups, "groups")
        self.leases: Any = _RemoteNoun(network, inner.leases, "leases")
        self.tasks: Any = _RemoteNoun(network, inner.tasks, "tasks")
        self.objects: Any = _RemoteNoun(network, inner.objects, "objects")
        self.schemas: Any = _RemoteNoun(network, inner.schemas, "schemas")
        self.cursors: Any = _RemoteNoun(network, inner.cursors, "cursors")
        self.defaults: Any = _RemoteNoun(network, inner.defaults, "defaults")
        self._inner = inner

    async def cluster_id(self) -> str:
        """See `Metadata.cluster_id`."""
        found: str = await self._inner.cluster_id()
        return found

    async def now_ms(self) -> int:
        """See `Metadata.now_ms`."""
        found: int = await self._inner.now_ms()
        return found

    async def close(self) -> None:
        """Nothing: the store belongs to all servers."""


def run_in(process: Process, loop: asyncio.AbstractEventLoop, work: Any) -> "asyncio.Task[Any]":
    """Start a coroutine as a task of the process."""
    context: contextvars.Context = process.context.copy()
    return loop.create_task(work, context=context)
