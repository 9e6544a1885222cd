"""`Tables` on a PyIceberg catalog and an `ObjectStore`.

Every call runs on one of a few dedicated threads, which use the event loop for object store access (`table/io.py`). If a call exceeds
its deadline, it raises `Unavailable`, but its thread continues until its own, shorter, deadlines. The call may still take effect; the
applied tasks show whether it did. The catalog is opened on the first call, so a worker can start before its catalog.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeAlias, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from typing_extensions import override

from bearlake.clock import Clock, SystemClock
from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.table import CommitCheck, PredecessorCheck, Tables, no_predecessor, unchecked, upkeep
from bearlake.table.applied_tasks import read_applied_tasks
from bearlake.table.catalog import open_catalog
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_iceberg import stage_columns
from bearlake.table.commit import Committer, reload
from bearlake.table.foreign import translated
from bearlake.table.io import Locations, StoreBridge
from bearlake.table.lookup import Lookup
from bearlake.table.model import TableCommit, TableState, TableSummary
from bearlake.table.names import MetadataNames
from bearlake.table.naming import is_current
from bearlake.table.settings import TableSettings
from bearlake.table.threads import TableThreads

T = TypeVar("T")
LoadedTable: TypeAlias = Table
"""A version of a table, for callers that pass it on."""


def open_tables(
    settings: TableSettings,
    store: ObjectStore,
    store_url: str,
    *,
    clock: Clock | None = None,
    randomness: random.Random | None = None,
) -> "IcebergTables":
    """Return the tables in the catalog of `settings`, with their files in `store`, whose URL is `store_url`.

    Call on the store's event loop. Connects to nothing yet; `close` does not close the store.
    """
    return IcebergTables(settings, store, store_url, clock or SystemClock(), randomness or random.Random())  # noqa: S311


class IcebergTables(Tables):
    """The tables of streams in an Iceberg catalog."""

    def __init__(
        self, settings: TableSettings, store: ObjectStore, store_url: str, clock: Clock, randomness: random.Random
    ) -> None:
        urls = [settings.location_url, store_url] if settings.location_url else [store_url]
        self.settings = settings
        self.locations = Locations(*urls)
        self._store = store
        self._clock = clock
        self.bridge = StoreBridge(
            store,
            self.locations,
            deadline_ms=settings.file_deadline_ms,
            cache_bytes_max=settings.metadata_cache_bytes_max,
        )
        self._stopping = threading.Event()
        self.committer = Committer(
            locations=self.locations, settings=settings, randomness=randomness, stopping=self._stopping
        )
        self._names = MetadataNames(self.locations, settings.metadata_names_cached_count_max)
        self._threads = TableThreads(count=settings.thread_count, pending_count_max=settings.pending_count_max)
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._lookup: Lookup | None = None

    @override
    async def ensure(
        self, stream: Stream, *, has_predecessor: PredecessorCheck = no_predecessor, check: CommitCheck = unchecked
    ) -> TableState:
        """Return or create the table. `has_predecessor` and `check` run on the event loop."""

        async def ask() -> bool:
            return await has_predecessor()

        async def ask_check() -> None:
            await check()

        def ensure() -> TableState:
            table = self.lookup().ensure(stream, lambda: self.bridge.call(ask), lambda: self.bridge.call(ask_check))
            return self._state(table)

        return await self.run(stream.name, ensure)

    @override
    async def state(self, stream: Stream) -> TableState | None:
        def state() -> TableState | None:
            table = self.lookup().find(stream)
            return None if table is None else self._state(table)

        return await self.run(stream.name, state)

    @override
    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        """Commit. `check` runs on the event loop, even for a thread that continues after its caller gave up."""

        async def ask() -> None:
            await check()

        def commit_now() -> TableState:
            table = self._existing(stream)
            return self._state(self.committer.commit(table, commit, closed_tasks, lambda: self.bridge.call(ask)))

        return await self.run(stream.name, commit_now)

    @override
    async def fence(self, stream: Stream) -> TableState | None:
        def fence() -> TableState | None:
            table = self.lookup().find(stream)
            return None if table is None else self._state(self.committer.fence(table))

        return await self.run(stream.name, fence)

    @override
    async def is_absent(self, stream: Stream) -> bool | None:
        return await self.run(stream.name, lambda: self.lookup().is_absent(stream))

    @override
    async def live_files(self, stream: Stream, keys: Collection[str]) -> set[str] | None:
        def live() -> set[str] | None:
            table = self.lookup().find(stream)
            return None if table is None else upkeep.live_files(table, keys, self._names)

        return await self.run(stream.name, live)

    @override
    async def expire(self, stream: Stream, *, keep_ms: int, keep_count_min: int, needed: Collection[int] = ()) -> int:
        now_ms = self._clock.now_ms()

        def expire() -> tuple[Table, set[str], set[str]] | None:
            table = self.lookup().find(stream)
            if table is None:
                return None
            before, before_ms = list(table.metadata.snapshots), now_ms - keep_ms
            after, released = upkeep.expire(
                table,
                self.committer,
                self._names,
                before_ms=before_ms,
                keep_count_min=keep_count_min,
                needed=needed,
            )
            dead = upkeep.released_files(after, before, self._names) if is_current(stream) else set()
            return after, released, dead

        if (expired := await self.run(stream.name, expire)) is None:
            return 0
        table, released, dead = expired
        folder = f"{self.locations.key(table.metadata.location)}/metadata/"
        listed = [found async for found in self._store.list(folder)]

        def delete() -> int:
            if dead:
                self.bridge.delete(sorted(dead))
            before_ms = now_ms - self.settings.metadata_grace_ms
            return upkeep.delete_unnamed(
                reload(table), listed, released, self.bridge, self.committer, self._names, before_ms=before_ms
            )

        return await self.run(stream.name, delete)

    @override
    async def delete_before(self, stream: Stream, timestamp_ms: int) -> int:
        def delete() -> int:
            table = self.lookup().find(stream)
            return 0 if table is None else upkeep.delete_before(table, self.committer, timestamp_ms)

        return await self.run(stream.name, delete)

    @override
    async def drop(self, stream: Stream) -> None:
        try:
            await self.run(stream.name, lambda: self.lookup().drop(stream))
        except NotFound:
            return  # another process was first

    @override
    async def summary(self, stream: Stream) -> TableSummary | None:
        def summary() -> TableSummary | None:
            table = self.lookup().find(stream)
            return None if table is None else upkeep.summary(table, self._state(table))

        return await self.run(stream.name, summary)

    async def load(self, stream: Stream) -> LoadedTable | None:
        """Return the stream's table in its current version, or None. Its files are read on threads: use it inside `run`."""
        return await self.run(stream.name, lambda: self.lookup().find(stream))

    async def add_columns(self, stream: Stream, book: ColumnBook) -> None:
        """Give the stream's table, which exists, the columns of the book that it lacks. Raises as `commit`."""

        def add() -> None:
            self.committer.repeat(self._existing(stream), lambda attempt: stage_columns(attempt, book))

        await self.run(stream.name, add)

    def add_root(self, store: ObjectStore, url: str) -> None:
        """Let tables that are no stream's lie in another store too, whose URL is `url`. `close` does not close the store."""
        bridge = StoreBridge(
            store,
            Locations(url),
            deadline_ms=self.settings.file_deadline_ms,
            cache_bytes_max=self.settings.metadata_cache_bytes_max,
        )
        self.bridge.add_root(bridge)

    def limit_metadata_of_others(self, bytes_max: int, value_count_max: int) -> None:
        """Raise `TooLarge` for metadata files with more bytes, uncompressed, or JSON values, of tables that are no stream's: their engines
        can replace the files at any time, and this process reads them as a whole."""
        self.bridge.limit_metadata_of_others(bytes_max, value_count_max)

    async def namespaces(self) -> list[str]:
        """Return the names of the catalog's namespaces: the catalog answers. Opens the catalog if needed."""

        def names() -> list[str]:
            return sorted(".".join(name) for name in self.lookup().catalog.list_namespaces())

        return await self.run("namespaces", names)

    @override
    async def close(self) -> None:
        """Stop running calls at their next step, and wait up to `close_deadline_ms` for them."""
        self._stopping.set()
        self.bridge.close()
        self._threads.shutdown(wait=False)
        ended = asyncio.to_thread(self._threads.shutdown, wait=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.close_deadline_ms / 1000):
                await ended
        with self._lock:
            catalog, self._catalog, self._lookup = self._catalog, None, None
        if catalog is not None:
            await asyncio.to_thread(catalog.close)

    async def run(self, what: str, call: Callable[[], T], *, deadline_ms: int | None = None) -> T:
        """Run a blocking call on a thread; errors are translated and name `what`. `deadline_ms` None: the deadline of the settings."""

        def translate() -> T:
            if self._stopping.is_set():
                raise Unavailable(f"table of {what}: the tables are being closed")
            with translated(f"table of {what}"):
                return call()

        deadline_ms = self.settings.deadline_ms if deadline_ms is None else deadline_ms
        if self._stopping.is_set():
            raise Unavailable(f"table of {what}: the tables are closed")
        try:
            return await self._threads.run(what, translate, deadline_ms=deadline_ms)
        except TimeoutError as error:
            raise Unavailable(f"table of {what}: no answer within {deadline_ms} ms") from error

    def lookup(self) -> Lookup:
        """Return the catalog lookup; open the catalog if needed. Blocks: call only inside `run`."""
        with self._lock:
            if self._lookup is None:
                self._catalog = open_catalog(self.settings, self.bridge.properties())
                self._lookup = Lookup(self._catalog, self.locations, self.settings)
            return self._lookup

    def _existing(self, stream: Stream) -> Table:
        table = self.lookup().find(stream)
        if table is None:
            raise NotFound(f"stream {stream.name} has no table")
        return table

    def _state(self, table: Table) -> TableState:
        applied = read_applied_tasks(table.metadata.properties)
        namespace, name = table.name()[0], table.name()[-1]
        return TableState(
            identifier=(namespace, name),
            location_key=self.locations.key(table.metadata.location),
            metadata_location=table.metadata_location,
            snapshot_id=table.metadata.current_snapshot_id,
            ends=applied.ends,
            applied=applied.applied,
            last_column_id=table.metadata.last_column_id,
            column_names=[field.name for field in table.schema().fields],
        )
