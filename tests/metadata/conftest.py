"""The stores that the behaviour suite runs on.

A test asks for `metadata` (a handle on an empty store), and for `peer` where two servers meet (a second handle on the same
store; in memory it is the same one). `backend` opens further handles, makes further empty stores, and moves the store's time.

`scene` is `metadata` with a registered server and short ways to make streams, batches and commits; `compaction` adds a planner
and a worker.

To add a store: write a class with the four methods of `Backend`, and a fixture that yields one; name the fixture in `BACKENDS`.
The fixture of a store that cannot run here skips its tests. `turns` alternates the calls between two handles on one file.
"""

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from typing_extensions import override

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ObjectCommit,
    ObjectCommitted,
    PartitionKey,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.settings import SqliteSettings
from fixtures import by_name
from fixtures.compaction_scene import Compaction

BACKENDS = ["memory_backend", "sqlite_backend", "turns_backend", "faulty_backend", "emptied_postgresql_backend"]


class Backend(Protocol):
    """A store (not a handle). It is empty when the fixture yields it."""

    async def open(self) -> Metadata:
        """A new handle on this store, as another process would open it; closed by `close` at the latest."""

    async def fresh(self, **bounds: int) -> "Backend":
        """Another, empty store of the same kind (for one example of a property test), with other `bounds` by name of setting."""

    async def advance(self, delta_ms: int) -> None:
        """Move the store's time forward."""

    async def step(self, delta_ms: int) -> None:
        """Set the store's clock forward, or back if `delta_ms` is negative."""

    async def close(self) -> None:
        """Close all handles that were opened, and those of stores made by `fresh`."""


class MemoryBackend:
    """SQLite in memory, with one handle."""

    def __init__(self, **bounds: int) -> None:
        self.clock = ManualClock()
        self.settings = SqliteSettings(**bounds)
        self.handle: Metadata | None = None
        self.others: list[MemoryBackend] = []

    async def open(self) -> Metadata:
        """Return a new handle on this store, as another process would open it; closed by `close` at the latest."""
        if self.handle is None:
            self.handle = await open_metadata("memory:///", self.settings, clock=self.clock)
        return self.handle

    async def fresh(self, **bounds: int) -> "MemoryBackend":
        """Return another, empty store of the same kind, with other `bounds` by name of setting."""
        self.others.append(MemoryBackend(**bounds))
        return self.others[-1]

    async def advance(self, delta_ms: int) -> None:
        """Move the store's time forward."""
        self.clock.advance(delta_ms)

    async def step(self, delta_ms: int) -> None:
        """Set the store's clock forward, or back if `delta_ms` is negative."""
        self.clock.step(delta_ms)

    async def close(self) -> None:
        """Close all handles, also those of `fresh` stores."""
        for other in self.others:
            await other.close()
        if self.handle is not None:
            await self.handle.close()


class SqliteBackend:
    """SQLite in a file."""

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        self.folder = folder
        self.clock = clock or ManualClock()
        self.settings = SqliteSettings(synchronous="OFF")  # a power cut cannot be tested here
        self.handles: list[Metadata] = []
        self.others: list[SqliteBackend] = []

    async def open(self) -> Metadata:
        """Return a new handle on this store, as another process would open it; closed by `close` at the latest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.handles.append(await open_metadata(f"sqlite://{self.folder}/metadata.db", self.settings, clock=self.clock))
        return self.handles[-1]

    async def fresh(self, **bounds: int) -> "SqliteBackend":
        """Return another, empty store of the same kind, with other `bounds` by name of setting."""
        other = type(self)(self.folder / f"other-{len(self.others)}")
        other.settings = replace(other.settings, **bounds)
        self.others.append(other)
        return other

    async def advance(self, delta_ms: int) -> None:
        """Move the store's time forward."""
        self.clock.advance(delta_ms)

    async def step(self, delta_ms: int) -> None:
        """Set the store's clock forward, or back if `delta_ms` is negative."""
        self.clock.step(delta_ms)

    async def close(self) -> None:
        """Close all handles, also those of `fresh` stores."""
        for other in self.others:
            await other.close()
        for handle in self.handles:
            await handle.close()


class TurnsBackend(SqliteBackend):
    """Successive calls alternate between two handles on one file: each handle must see what the other wrote.

    Every limit is tiny, so that work takes many rounds and little stays in memory.
    """

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        super().__init__(folder, clock)
        self.settings = SqliteSettings(
            synchronous="OFF",
            partition_count_cached_max=2,
            page_slice_count_max=3,
            roll_entry_count_max=3,
            roll_slice_count_max=5,
            roll_partition_count_max=1,
            unrolled_entry_count_max=12,
            sweep_page_count_max=2,
        )

    @override
    async def open(self) -> Metadata:
        handles = [await super().open(), await super().open()]
        return Turns(handles)  # type: ignore[return-value]


class FaultyBackend(MemoryBackend):
    """A store that fails before its effect; its callers retry after `Unavailable`."""

    @override
    async def open(self) -> Metadata:
        if self.handle is None:
            faults = MetadataFaults(error_rate=0.1)
            inner = await super().open()
            self.handle = Persistent(FaultyMetadata(inner, faults, random.Random(7)))  # type: ignore[assignment]
        assert self.handle is not None
        return self.handle

    @override
    async def fresh(self, **bounds: int) -> "FaultyBackend":
        self.others.append(FaultyBackend(**bounds))
        return self.others[-1]  # type: ignore[return-value]


class Persistent:
    """Retries every call of the inner store until it is answered."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        for noun in Turns.NOUNS if isinstance(inner, FaultyMetadata) else ():
            setattr(self, noun, Persistent(getattr(inner, noun)))

    @staticmethod
    def blocking_commit() -> None:
        """Only `commit` is retried."""

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            for _ in range(100):
                with contextlib.suppress(Unavailable):
                    return await inner(*arguments, **options)
            raise AssertionError(f"{name} was never answered")

        return call


class Turns:
    """Passes each call to the next of several handles."""

    NOUNS = (
        "streams",
        "servers",
        "log",
        "producers",
        "groups",
        "leases",
        "tasks",
        "objects",
        "schemas",
        "cursors",
        "defaults",
        "users",
        "access",
        "quotas",
        "transactions",
        "table_columns",
    )

    def __init__(self, handles: list[Any], turn: list[int] | None = None) -> None:
        self._handles = handles
        self._turn = [0] if turn is None else turn
        for noun in self.NOUNS:
            if hasattr(handles[0], noun) and hasattr(handles[0], "cluster_id"):
                setattr(self, noun, Turns([getattr(handle, noun) for handle in handles], self._turn))

    def __getattr__(self, name: str) -> Any:
        self._turn[0] += 1
        return getattr(self._handles[self._turn[0] % len(self._handles)], name)

    async def close(self) -> None:
        """Close all handles."""
        for handle in self._handles:
            await handle.close()


@pytest.fixture
async def memory_backend() -> AsyncIterator[MemoryBackend]:
    """A store in memory."""
    backend = MemoryBackend()
    yield backend
    await backend.close()


@pytest.fixture
async def faulty_backend() -> AsyncIterator[FaultyBackend]:
    """A store whose calls sometimes fail."""
    backend = FaultyBackend()
    yield backend
    await backend.close()


@pytest.fixture
async def sqlite_backend(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    """A store in a file."""
    backend = SqliteBackend(tmp_path / "store")
    yield backend
    await backend.close()


@pytest.fixture
async def turns_backend(tmp_path: Path) -> AsyncIterator[TurnsBackend]:
    """A store whose calls go to two handles in turn."""
    backend = TurnsBackend(tmp_path / "store")
    yield backend
    await backend.close()


@pytest.fixture(params=BACKENDS, ids=[name.split("_")[-2] for name in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each kind of store in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def metadata(backend: Backend) -> Metadata:
    """A handle on the store."""
    return await backend.open()


@pytest.fixture
async def peer(backend: Backend, metadata: Metadata) -> Metadata:
    """Another handle on the same store."""
    return await backend.open()


class Scene:
    """A store with a server, and short ways to do common things."""

    def __init__(self, backend: Backend, metadata: Metadata, server: ServerRef) -> None:
        self.backend = backend
        self.metadata = metadata
        self.server = server
        self.object_count = 0
        self.seen = 0
        """The log position that the server names in its commits."""

    @classmethod
    async def on(cls, backend: Backend, metadata: Metadata) -> "Scene":
        """Register a server on this store."""
        return cls(backend, metadata, await cls.register(metadata))

    @staticmethod
    async def register(metadata: Metadata, name: str = "server-0", timeout_ms: int = 10_000) -> ServerRef:
        """Register a server; return its reference."""
        endpoints = {"kafka": "127.0.0.1:9092"}
        registration = await registering.register(
            metadata.servers, name, zone=None, endpoints=endpoints, version="1", timeout_ms=timeout_ms
        )
        return registration.server

    async def stream(self, name: str = "orders", partition_count: int = 1) -> Stream:
        """Create a stream."""
        return await by_name.create(self.metadata, StreamSpec(name=name, partition_count=partition_count))

    async def partition(self, name: str = "orders") -> PartitionKey:
        """Create a stream; return its first partition."""
        return (await self.stream(name)).partition(0)

    def batch(
        self,
        partition: PartitionKey,
        record_count: int = 1,
        *,
        length: int = 100,
        timestamp: int = 1_000,
        producer: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        flags: int = 0,
        expected: int = -1,
        after: int = -1,
    ) -> BatchCommit:
        """Return a batch of this partition; `producer` < 0: without idempotence."""
        if producer < 0:
            return BatchCommit(partition, -1, length, record_count, timestamp, expected_offset=expected)
        who = (producer, epoch, sequence)
        return BatchCommit(partition, -1, length, record_count, timestamp, *who, flags, expected, after)

    def object(self, *batches: BatchCommit, token: str = "", server: ServerRef | None = None) -> ObjectCommit:
        """An object with these batches back to back."""
        laid, position = [], 0
        for batch in batches:
            laid.append(batch._replace(position=position))
            position += batch.length
        self.object_count += 1
        return ObjectCommit(
            token=token or f"wal/{self.object_count:08}",
            server=server or self.server,
            size=position,
            batches=laid,
            seen=self.seen,
            is_transactional=any(batch.flags & BATCH_TRANSACTIONAL for batch in batches),
        )

    @staticmethod
    def seeing(commit: ObjectCommit, position: int) -> ObjectCommit:
        """The same, by a server that had seen this log position before the batches arrived."""
        return replace(commit, seen=position)

    async def commit(self, *batches: BatchCommit, token: str = "", by: Metadata | None = None) -> ObjectCommitted:
        """Commit one object with these batches."""
        return await (by or self.metadata).log.commit(self.object(*batches, token=token))

    async def maintain(self, entry_count_min: int = 1_000_000) -> None:
        """Maintain until nothing is left to do."""
        while await self.metadata.log.maintain(entry_count_min=entry_count_min):
            pass


@pytest.fixture
async def scene(backend: Backend, metadata: Metadata) -> Scene:
    """A registered server on the store."""
    return await Scene.on(backend, metadata)


@pytest.fixture
async def compaction(scene: Scene) -> Compaction:
    """The scene with a planner and a worker."""
    return await Compaction.on(scene)


@pytest.fixture
def new_scene() -> Callable[[Backend], Awaitable[Scene]]:
    """Makes a scene on another store, for the examples of property tests."""

    async def make(store: Backend) -> Scene:
        return await Scene.on(store, await store.open())

    return make
