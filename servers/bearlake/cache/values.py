"""A cache of values decoded from objects (footers, row groups): bounded in bytes, single flight.

All readers of one key wait for one load. The cache evicts the least recently used values; an evicted value stays alive while a reader
holds it. The bytes being loaded at once are bounded, too, so memory outside the cache stays bounded however many readers lag. So are the
bytes that were read ahead and that no reader has used yet: more of them would evict each other. Who has read a value ahead can give it
up again (`forget_ahead`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

from bearlake.cache.gate import ByteGate
from bearlake.errors import BearlakeError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ValueCache(Generic[K, V]):
    """Values by key. Use it from the event loop's thread only."""

    def __init__(
        self,
        *,
        bytes_max: int,
        loading_bytes_max: int,
        ahead_bytes_max: int | None = None,
        size_of: Callable[[V], int],
        on_lookup: Callable[[bool], None] = lambda is_hit: None,
        on_evicted: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """Keep at most `bytes_max` bytes, measured by `size_of` (a single larger value is allowed).

        Loads in progress take at most `loading_bytes_max` bytes, as declared to `get`. Values that were read ahead and not used yet take at
        most `ahead_bytes_max` bytes, as declared to `read_ahead` (None: no limit; a single larger value is allowed). `on_lookup` is called
        for every look-up (True for a hit), `on_evicted` with the size of each evicted value.
        """
        self._bytes_max = bytes_max
        self._size_of = size_of
        self._on_lookup = on_lookup
        self._on_evicted = on_evicted
        self._gate = ByteGate(loading_bytes_max)
        self._loading_bytes_max = loading_bytes_max
        self._loading_bytes = 0
        """Memory that all loads take, those that wait for room included."""
        self._values: OrderedDict[K, V] = OrderedDict()
        self._loading: dict[K, asyncio.Task[V]] = {}
        self._given_up: set[asyncio.Task[V]] = set()
        """Cancelled loads that have not ended yet."""
        self._ahead_bytes_max = ahead_bytes_max
        self._ahead: dict[K, int] = {}
        self.ahead_bytes = 0
        """Bytes that were read ahead and not used yet, loads in progress included."""
        self.size_bytes = 0

    def peek(self, key: K) -> V | None:
        """Return the value if it is cached, else None; never waits."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
            self._note_use(key)
            self._on_lookup(True)
        return value

    def knows(self, key: K) -> bool:
        """Whether the value is cached or being loaded; does not count as a use."""
        return key in self._values or key in self._loading

    def is_loading(self, key: K) -> bool:
        """Whether the value is being loaded."""
        return key in self._loading

    async def get(self, key: K, load_bytes: int, load: Callable[[], Coroutine[None, None, V]]) -> V:
        """Return the value; calls `load` if it is not cached. `load_bytes`: the memory that the load takes, about.

        Raises what `load` raises; failures are not cached.
        """
        value = self.peek(key)
        if value is not None:
            return value
        self._on_lookup(False)
        self._note_use(key)
        return await asyncio.shield(self._start(key, load_bytes, load))

    def read_ahead(
        self, key: K, load_bytes: int, load: Callable[[], Coroutine[None, None, V]], *, size_bytes: int = 0
    ) -> bool:
        """Start to load the value, of about `size_bytes` bytes, if it is not cached; returns whether it is, or is being loaded.

        No-op if the load would have to wait for room, or while too many bytes that were read ahead are not used yet.
        """
        if self.knows(key):
            return True
        if self._loading_bytes and self._loading_bytes + load_bytes > self._loading_bytes_max:
            return False
        if self._ahead_bytes_max is not None and self._ahead and self.ahead_bytes + size_bytes > self._ahead_bytes_max:
            return False
        self._ahead[key] = size_bytes
        self.ahead_bytes += size_bytes
        self._start(key, load_bytes, load)
        return True

    def forget_ahead(self, key: K) -> None:
        """Give up a value that was read ahead: cancel its load, or make it the next one to evict. No-op if a reader has used it."""
        if key not in self._ahead:
            return
        self._note_use(key)
        task = self._loading.pop(key, None)
        if task is None:
            self.done_with(key)
        else:  # nobody waits for it: whoever did would have used the value
            self._given_up.add(task)
            task.cancel()

    def _note_use(self, key: K) -> None:
        """Stop to count the value as read ahead."""
        self.ahead_bytes -= self._ahead.pop(key, 0)

    def done_with(self, key: K) -> None:
        """Make the value the next one to evict: a reader has read it to its end and moves on."""
        if key in self._values:
            self._values.move_to_end(key, last=False)

    def _start(self, key: K, load_bytes: int, load: Callable[[], Coroutine[None, None, V]]) -> "asyncio.Task[V]":
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.get_running_loop().create_task(self._load(key, load_bytes, load))
            self._loading_bytes += load_bytes
            task.add_done_callback(lambda done: self._loaded(key, load_bytes, done))
        return task

    async def _load(self, key: K, load_bytes: int, load: Callable[[], Coroutine[None, None, V]]) -> V:
        async with self._gate.hold(load_bytes):
            value = await load()
        self._insert(key, value)
        return value

    def _loaded(self, key: K, load_bytes: int, task: "asyncio.Task[V]") -> None:
        self._loading_bytes -= load_bytes
        self._given_up.discard(task)
        is_current = self._loading.get(key) is task
        if is_current:
            del self._loading[key]
        if is_current and (task.cancelled() or task.exception() is not None):
            self._note_use(key)
        if not task.cancelled():
            error = task.exception()  # marks the error as retrieved: all waiters may have been cancelled
            if error is not None and not isinstance(error, BearlakeError):
                asyncio.get_running_loop().call_exception_handler({"message": f"loading {key}", "exception": error})

    def _insert(self, key: K, value: V) -> None:
        before = self._values.pop(key, None)
        if before is not None:
            self.size_bytes -= self._size_of(before)
        self._values[key] = value
        self.size_bytes += self._size_of(value)
        while self.size_bytes > self._bytes_max and len(self._values) > 1:
            evicted, oldest = self._values.popitem(last=False)
            self._note_use(evicted)
            size = self._size_of(oldest)
            self.size_bytes -= size
            self._on_evicted(size)

    async def close(self) -> None:
        """Cancel loads in progress and drop all values."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        # Loads that were given up are cancelled already; a second time would end their wait for a thread that still uses memory.
        await asyncio.gather(*loading, *self._given_up, return_exceptions=True)
        self._values.clear()
        self._ahead.clear()
        self.size_bytes = self.ahead_bytes = 0
