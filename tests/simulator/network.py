"""Faults of calls between servers and stores, and between clients and servers.

    request under way ──(lost: no effect)──► effect at the store ──(reply lost)──► reply under way ──► caller
            └─ refused at once: no effect                └─ happens even if the caller has given up or is dead

A call without an answer within the deadline is `Unavailable`, and its effect may still happen later (a zombie). A stall of a store
delays every call until the stall ends. All faults are drawn from one seeded random source.
"""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from typing_extensions import override

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.metadata import BlockingCommit, Metadata
from bearlake.metadata.faulty import READS
from bearlake.metadata.transactions import Decide, Transaction, Transactions, change_in_two_steps
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.wal import keys as wal_keys
from simulator import here
from simulator.full_disks import FullDisks, FullDiskSettings
from simulator.loop import Process, current_process

T = TypeVar("T")

LATE_S = 10.0
OVERLOADED_RATE = 0.2
"""Fraction of the metadata store's refusals that are `Overloaded` (a queue is full)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How often calls fail; rates are probabilities per call."""

    delay_ms: float = 2.0
    """Mean delay of a request and of a reply; exponentially distributed."""
    slow_rate: float = 0.0
    """A message takes up to twice the deadline."""
    refused_rate: float = 0.0
    """`Unavailable` at once, without an effect."""
    lost_request_rate: float = 0.0
    """`Unavailable` after the deadline, without an effect."""
    lost_reply_rate: float = 0.0
    """`Unavailable` after the deadline; the effect happened."""
    doomed_put_rate: float = 0.0
    """Probability per WAL object that every put of the object fails without an effect, however often it is retried."""
    deadline_ms: float = 300.0
    """Longest wait for a reply."""
    late_rate: float = 0.0
    """A request to the metadata store arrives up to `LATE_S` after its caller has given up (a suspended database process)."""
    has_stores_here: bool = False
    """Servers put and commit objects in a thread (`here.py`), as with stores on their machine."""
    can_be_late: bool = True
    """A metadata store call that its caller gave up may take effect at any later time. False: only until the process's next write
    begins, which the store's own client ensures."""
    disks: FullDiskSettings = field(default_factory=FullDiskSettings)
    """How often the disks of the stores are full."""


class Network:
    """Draws the fate of every call and counts the faults."""

    def __init__(
        self,
        settings: NetworkSettings,
        randomness: random.Random,
        stores: Process,
        on_bug: Callable[[Exception], None],
        disk_randomness: random.Random,
    ) -> None:
        """`stores` is the process that executes the effects; `on_bug` receives errors that no store may raise."""
        self.settings = settings
        self.faults: Counter[str] = Counter()
        self.call_count = 0
        self.is_healthy = False
        """True: no faults from now on (calls in flight keep their fate)."""
        self._random = randomness
        self._disks = FullDisks(settings.disks, disk_randomness, self.faults)
        self._context = stores.context
        self._on_bug = on_bug
        self._stalled_until_s: dict[str, float] = {}
        self._cut_until_s: dict[str, float] = {}

    @property
    def context(self) -> contextvars.Context:
        """The context of the process that executes the effects."""
        return self._context

    def on_bug(self, bug: Exception) -> None:
        """Report an error that no store may raise."""
        self._on_bug(bug)

    def stall(self, store: str, duration_ms: float) -> None:
        """Make the store (`objects`, `metadata`) accept no calls for the duration."""
        if not self.is_healthy:
            self.faults[f"stall of {store}"] += 1
            self._stalled_until_s[store] = asyncio.get_running_loop().time() + duration_ms / 1000

    def cut(self, process: str, duration_s: float) -> None:
        """Drop all requests of the process for the duration."""
        if not self.is_healthy:
            self.faults["process cut off"] += 1
            self._cut_until_s[process] = asyncio.get_running_loop().time() + duration_s

    def write_objects(self) -> None:
        """Raises `Unavailable` if the object store has no room now."""
        if not self.is_healthy:
            self._disks.write_objects()

    def write_metadata(self) -> None:
        """Raises `OutOfRoom` if the metadata store has no room now."""
        if not self.is_healthy:
            self._disks.write_metadata()

    def is_cut(self, process: str) -> bool:
        """Return whether all requests of the process are dropped now."""
        if self.is_healthy or not self._cut_until_s:
            return False
        return asyncio.get_running_loop().time() < self._cut_until_s.get(process, 0.0)

    def delay_s(self) -> float:
        """Draw the delay of one message."""
        settings = self.settings
        if self.happens(settings.slow_rate, "slow message"):
            return self._random.random() * 2 * settings.deadline_ms / 1000
        return self._random.expovariate(1.0) * settings.delay_ms / 1000

    def happens(self, rate: float, fault: str) -> bool:
        """Draw whether the fault happens now, and count it."""
        if self.is_healthy or rate <= 0 or self._random.random() >= rate:
            return False
        self.faults[fault] += 1
        return True

    async def call(
        self,
        store: str,
        what: str,
        effect: Callable[[], Awaitable[T]],
        *,
        wait_ms: float = 0.0,
        given_up: "list[asyncio.TimerHandle] | None" = None,
    ) -> T:
        """Call a store. `wait_ms` is how long the store itself may wait before it answers (long polls).

        If the caller stops waiting before the effect happens, the call is added to `given_up`.

        Raises:
            Unavailable: the effect may have happened, or may still happen.
            Overloaded: no effect.
            BearlakeError: the error of the effect.
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
        arriving: asyncio.TimerHandle | None = None
        if not (self.is_cut(current_process()) or self.happens(settings.lost_request_rate, "lost request")):
            stalled_until_s = 0.0 if self.is_healthy else self._stalled_until_s.get(store, 0.0)
            arrival = max(loop.time() + self.delay_s(), stalled_until_s)
            if store == "metadata" and self.happens(settings.late_rate, "late effect"):
                arrival += (settings.deadline_ms + wait_ms) / 1000 + self._random.random() * LATE_S
            is_lost = self.happens(settings.lost_reply_rate, "lost reply")
            arriving = loop.call_at(arrival, self._arrive, effect, reply, is_lost, context=self._context)
        try:
            return await reply
        finally:
            give_up.cancel()
            if given_up is not None and arriving is not None and arriving.when() > loop.time():
                given_up.append(arriving)

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
        except Exception as bug:  # noqa: BLE001 - the boundary of the store: no other error may leave it
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


class RemoteObjectStore(ObjectStore):
    """An `ObjectStore` behind the network."""

    def __init__(self, network: Network, inner: ObjectStore) -> None:
        self._network = network
        self._inner = inner
        self._fates: dict[str, bool] = {}
        """By key: whether every put of this WAL object fails."""

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Copy the bytes now; the request may arrive later."""
        sent = b"".join(parts)
        if self._is_doomed(key):
            raise Unavailable(f"put {key}: never stored")
        await self._network.call("objects", f"put {key}", lambda: self._store(key, sent))

    @override
    def blocking_put(self) -> BlockingPut | None:
        return here.blocking_put(self._network, self._put_here) if self._network.settings.has_stores_here else None

    async def _put_here(self, key: str, sent: bytes) -> None:
        if self._is_doomed(key):
            raise Unavailable(f"put {key}: never stored")
        await self._store(key, sent)

    async def _store(self, key: str, sent: bytes) -> None:
        self._network.write_objects()
        await self._inner.put(key, [sent])

    def _is_doomed(self, key: str) -> bool:
        if not key.startswith(wal_keys.PREFIX):
            return False  # workers retry a failed put under another key
        if key not in self._fates:
            self._fates[key] = self._network.happens(self._network.settings.doomed_put_rate, "doomed put")
        return self._fates[key]

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        return await self._network.call("objects", f"read {key}", lambda: self._inner.read(key, ranges))

    @override
    async def size(self, key: str) -> int:
        return await self._network.call("objects", f"size {key}", lambda: self._inner.size(key))

    @override
    async def delete(self, keys: Collection[str]) -> None:
        await self._network.call("objects", "delete", lambda: self._inner.delete(keys))

    @override
    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Without faults."""
        return self._inner.list(prefix, after)

    async def close(self) -> None:
        """Nothing: the store belongs to all servers."""


class _RemoteNoun:
    """One noun of the metadata store behind the network; every method is a network call."""

    def __init__(self, network: Network, inner: Any, noun: str, given_up: list[asyncio.TimerHandle] | None) -> None:
        self._network = network
        self._given_up = given_up
        self._inner = inner
        self._noun = noun

    def blocking_commit(self) -> BlockingCommit | None:
        """None, unless the stores are on the servers' machine."""
        if not self._network.settings.has_stores_here:
            return None
        return here.CommitHere(self._network, self._written(self._inner.commit), self._given_up)

    def _written(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The method, which fails while the store has no room."""

        async def write(*arguments: Any, **named: Any) -> Any:
            self._network.write_metadata()
            return await method(*arguments, **named)

        return write

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)
        if name not in READS:
            method = self._written(method)

        def call(*arguments: Any, **named: Any) -> Awaitable[Any]:
            wait_ms = named["wait_ms"] if name == "wait" else 0.0
            what = f"{self._noun}.{name}"
            more: dict[str, Any] = {}
            if self._given_up is not None and name not in READS:
                for late in self._given_up:
                    late.cancel()
                self._given_up.clear()
                more["given_up"] = self._given_up
            return self._network.call("metadata", what, lambda: method(*arguments, **named), wait_ms=wait_ms, **more)

        return call


class _RemoteTransactions(_RemoteNoun):
    """`Transactions` behind the network."""

    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        """One call to a store on the server's machine, as in SQLite; else two, as in PostgreSQL."""
        if not self._network.settings.has_stores_here:
            return await change_in_two_steps(cast("Transactions", self), transactional_id, decide)
        has_gone = False
        call = super().__getattr__("change")
        try:
            row: Transaction | None = await call(transactional_id, lambda held: None if has_gone else decide(held))
        finally:
            has_gone = True
        return row


class RemoteMetadata(Metadata):
    """`metadata.Metadata` behind the network."""

    def __init__(self, network: Network, inner: Any, *, can_be_late: bool = True) -> None:
        """`can_be_late`: requests may take effect after their callers gave up."""
        given_up: list[asyncio.TimerHandle] | None = None if can_be_late else []

        def noun(
            name: str,
        ) -> Any:  # Any: the proxies have the methods of the nouns that they replace
            return _RemoteNoun(network, getattr(inner, name), name, given_up)

        self.streams: Any = noun("streams")
        self.servers: Any = noun("servers")
        self.log: Any = noun("log")
        self.producers: Any = noun("producers")
        self.groups: Any = noun("groups")
        self.leases: Any = noun("leases")
        self.tasks: Any = noun("tasks")
        self.objects: Any = noun("objects")
        self.schemas: Any = noun("schemas")
        self.cursors: Any = noun("cursors")
        self.defaults: Any = noun("defaults")
        self.users: Any = noun("users")
        self.access: Any = noun("access")
        self.quotas: Any = noun("quotas")
        self.transactions: Any = _RemoteTransactions(network, inner.transactions, "transactions", given_up)
        self.table_columns: Any = noun("table_columns")
        self._inner = inner

    @override
    async def cluster_id(self) -> str:
        found: str = await self._inner.cluster_id()
        return found

    @override
    async def now_ms(self) -> int:
        found: int = await self._inner.now_ms()
        return found

    async def close(self) -> None:
        """Nothing: the store belongs to all servers."""


def run_in(process: Process, loop: asyncio.AbstractEventLoop, work: Any) -> "asyncio.Task[Any]":
    """Start a coroutine as a task of the process."""
    context: contextvars.Context = process.context.copy()
    return loop.create_task(work, context=context)
