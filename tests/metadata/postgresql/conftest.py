"""Helpers that tests of the PostgreSQL store share."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, ObjectCommitted, PartitionKey, ServerRef
from bearlake.metadata.postgresql.commit import arguments, outcomes_of, runs_of, slices_of
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata, open_postgresql
from fixtures.postgresql_metadata import Opening
from fixtures.postgresql_proxy import Proxy


class Writer:
    """A server that commits objects with one batch per partition, each with its own token, and retries until it gets an answer."""

    def __init__(self, metadata: Metadata, server: ServerRef, name: str) -> None:
        self.metadata = metadata
        self.server = server
        self.name = name
        self.object_count = 0
        self.unanswered_count = 0

    @classmethod
    async def on(cls, metadata: Metadata, name: str = "server-0") -> "Writer":
        """Register a server on this store."""
        registration = await registering.register(
            metadata.servers, name, zone=None, endpoints={}, version="1", timeout_ms=600_000
        )
        return cls(metadata, registration.server, name)

    def object(self, partitions: list[PartitionKey], record_count: int = 3, producer: int = -1) -> ObjectCommit:
        """Return a new object with a batch for each partition."""
        turn, self.object_count = self.object_count, self.object_count + 1
        batches = [
            BatchCommit(
                key, i * 100, 100, record_count, 1_000 + turn, producer, 0 if producer >= 0 else -1, turn * record_count
            )
            for i, key in enumerate(partitions)
        ]
        return ObjectCommit(
            token=f"{self.name}/{turn:06}", server=self.server, size=100 * len(batches), batches=batches
        )

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Repeat the commit with the same token until the store answers."""
        while True:
            try:
                return await self.metadata.log.commit(commit)
            except Unavailable:
                self.unanswered_count += 1


@pytest.fixture
async def lossy(postgresql_url: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[PostgresqlMetadata, Proxy]]:
    """A store with the module's SETTINGS behind a proxy that can lose answers."""
    proxy = Proxy(postgresql_url)
    metadata = await open_postgresql(await proxy.start(), request.module.SETTINGS)
    yield metadata, proxy
    await metadata.close()
    await proxy.stop()


@pytest.fixture
def writer_on() -> type[Writer]:
    """The class of committing servers."""
    return Writer


@pytest.fixture
def commit_as_before() -> Callable[[Metadata, ObjectCommit], Awaitable[ObjectCommitted]]:
    """Commits with parameters by position, as servers of layout 26 do, so the function must keep its signature."""

    async def commit(metadata: Metadata, commit_: ObjectCommit) -> ObjectCommitted:
        runs = runs_of(commit_.batches)
        row = await metadata._database.row(  # type: ignore[attr-defined]
            f"select log_position, outcomes from bearlake.commit_object({', '.join(f'${i}' for i in range(1, 20))})",
            *arguments(commit_, runs).values(),
        )
        decided = row["outcomes"] or ()
        return ObjectCommitted(
            position=row["log_position"], outcomes=outcomes_of(runs, decided), slices=slices_of(runs, decided)
        )

    return commit


@pytest.fixture
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Opening]:
    """Opens stores, and closes them at the end."""
    stores: list[PostgresqlMetadata] = []

    async def open_one(url: str, settings: PostgresqlSettings | None = None) -> PostgresqlMetadata:
        stores.append(await open_postgresql(url, settings or request.module.SETTINGS))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def admin(postgresql_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the database beside the store."""
    connection = await asyncpg.connect(postgresql_url)
    yield connection
    await connection.close()
