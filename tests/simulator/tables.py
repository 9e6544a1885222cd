"""`table.Tables` in memory, for the simulation: the same applied tasks (`table/applied_tasks.py`), snapshots as sets of keys, and the
same steps of a commit attempt: load, check, replace the loaded version.

It passes the same behaviour test as the real tables (`tests/compaction/test_tables_behaviour.py`). `RemoteTables` are tables behind the
simulated network: a call may be lost before or after its effect, and the effect may happen after its caller has died. The load and the
replacement are separate calls; a worker may freeze between them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import Conflict, Corrupt, NotFound
from bearlake.metadata.model import Stream
from bearlake.table import CommitCheck, PredecessorCheck, Tables, Unmergeable, no_predecessor, unchecked
from bearlake.table import naming as table_naming
from bearlake.table.applied_tasks import AppliedTasks, decide
from bearlake.table.model import DataFile, SnapshotSummary, TableCommit, TableState, TableSummary
from simulator.network import Network

T = TypeVar("T")


@dataclass(slots=True)
class Snapshot:
    """The files of a table as of one commit."""

    id: int
    timestamp_ms: int
    operation: str
    files: Mapping[str, DataFile]


@dataclass(slots=True)
class MemoryTable:
    """One table. `files` are those of the newest snapshot."""

    stream: Stream
    identifier: tuple[str, str]
    location_key: str
    version: int = 0
    applied_tasks: AppliedTasks = field(default_factory=lambda: AppliedTasks(ends={}, applied={}))
    snapshots: list[Snapshot] = field(default_factory=list)

    @property
    def files(self) -> Mapping[str, DataFile]:
        """Data files of the newest snapshot."""
        return self.snapshots[-1].files if self.snapshots else {}

    def state(self) -> TableState:
        """The table's state."""
        return TableState(
            identifier=self.identifier,
            location_key=self.location_key,
            metadata_location=f"{self.location_key}/metadata/{self.version}",
            snapshot_id=self.snapshots[-1].id if self.snapshots else None,
            ends=self.applied_tasks.ends,
            applied=self.applied_tasks.applied,
        )

    def load(self) -> "LoadedTable":
        """The table as it is now."""
        return LoadedTable(self, self.version, self.applied_tasks, self.files)

    def replace(self, files: Mapping[str, DataFile], operation: str, now_ms: int) -> None:
        """Add a new snapshot."""
        self.version += 1
        self.snapshots.append(Snapshot(self.version, now_ms, operation, files))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The table version that a commit attempt has loaded."""

    table: MemoryTable
    version: int
    applied_tasks: AppliedTasks
    files: Mapping[str, DataFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The version with which a commit attempt replaces the loaded version; `commit` None: a replacement without a commit."""

    applied_tasks: AppliedTasks
    files: Mapping[str, DataFile]
    operation: str
    commit: TableCommit | None


class Overtaken(Conflict):
    """The table's version has changed since the load; the replacement had no effect."""


OnChange = Callable[[MemoryTable, TableCommit | None], None]
"""Called with each new snapshot's table and the commit that made it; None for the table's own retention."""


class MemoryTables(Tables):
    """`Tables` in memory."""

    def __init__(
        self,
        clock: Clock,
        on_change: OnChange = lambda table, commit: None,
        on_drop: Callable[[MemoryTable], None] = lambda table: None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._on_drop = on_drop
        self.tables: dict[int, MemoryTable] = {}
        self.renamed: dict[int, MemoryTable] = {}
        """Tables that were renamed to a name other than their stream's."""

    @override
    async def ensure(
        self, stream: Stream, *, has_predecessor: PredecessorCheck = no_predecessor, check: CommitCheck = unchecked
    ) -> TableState:
        """Return the table, creating it if needed. Unlike in a real catalog, a drop names the stream and is never late."""
        await asyncio.sleep(0)
        if stream.number not in self.tables:
            await check()
        table = self.tables.get(stream.number)
        if table is None:
            taken = {other.identifier for other in self.tables.values()}
            identifier = next(
                identifier for identifier in table_naming.table_identifiers(stream) if identifier not in taken
            )
            location = table_naming.location_key(stream)
            table = self.tables[stream.number] = MemoryTable(stream, identifier, location)
        return table.state()

    @override
    async def state(self, stream: Stream) -> TableState | None:
        await asyncio.sleep(0)
        table = self.tables.get(stream.number)
        return None if table is None else table.state()

    @override
    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        return await commit_to(self, stream, commit, closed_tasks, check)

    @override
    async def fence(self, stream: Stream) -> TableState | None:
        return await fence(self, stream)

    async def load(self, stream: Stream) -> LoadedTable:
        """Load the table. Raises `NotFound`."""
        await asyncio.sleep(0)
        return self._existing(stream).load()

    async def replace(self, stream: Stream, seen: LoadedTable, by: Replacement) -> TableState:
        """Replace the loaded version by compare-and-swap. Raises `Overtaken`, `NotFound`."""
        await asyncio.sleep(0)
        table = self._existing(stream)
        if table is not seen.table or table.version != seen.version:
            raise Overtaken(f"the table of {stream.name} is not at version {seen.version} any more")
        table.applied_tasks = by.applied_tasks
        table.replace(by.files, by.operation, self._clock.now_ms())
        if by.commit is not None:
            self._on_change(table, by.commit)
        return table.state()

    def rename_away(self, stream: Stream) -> None:
        """Rename the table, as another engine may."""
        self.renamed[stream.number] = self.tables.pop(stream.number)

    def rename_back(self, stream: Stream) -> None:
        """Restore the table's name."""
        self.tables[stream.number] = self.renamed.pop(stream.number)

    @override
    async def is_absent(self, stream: Stream) -> bool | None:
        await asyncio.sleep(0)
        return stream.number not in self.tables and stream.number not in self.renamed

    @override
    async def live_files(self, stream: Stream, keys: Collection[str]) -> set[str] | None:
        await asyncio.sleep(0)
        table = self.tables.get(stream.number)
        if table is None:
            return None
        return {key for key in keys if any(key in snapshot.files for snapshot in table.snapshots)}

    @override
    async def expire(self, stream: Stream, *, keep_ms: int, keep_count_min: int, needed: Collection[int] = ()) -> int:
        await asyncio.sleep(0)
        table = self.tables.get(stream.number)
        if table is None:
            return 0
        before_ms = self._clock.now_ms() - keep_ms
        count = len(table.snapshots)
        newest = max(1, keep_count_min)
        old, kept = table.snapshots[:-newest], table.snapshots[-newest:]
        table.snapshots = [
            item
            for item, later in zip(old, table.snapshots[1:], strict=False)
            if later.timestamp_ms >= before_ms or item.id in needed
        ] + kept
        return count - len(table.snapshots)

    @override
    async def delete_before(self, stream: Stream, timestamp_ms: int) -> int:
        await asyncio.sleep(0)
        table = self.tables.get(stream.number)
        if table is None:
            return 0
        kept = {key: file for key, file in table.files.items() if file.max_timestamp_ms >= timestamp_ms}
        count = len(table.files) - len(kept)
        if count:
            table.replace(kept, "delete", self._clock.now_ms())
            self._on_change(table, None)
        return count

    @override
    async def drop(self, stream: Stream) -> None:
        await asyncio.sleep(0)
        table = self.tables.pop(stream.number, None)
        if table is not None:
            self._on_drop(table)

    @override
    async def summary(self, stream: Stream) -> TableSummary | None:
        await asyncio.sleep(0)
        table = self.tables.get(stream.number)
        if table is None:
            return None
        files = table.files.values()
        return TableSummary(
            state=table.state(),
            file_count=len(files),
            row_count=sum(file.row_count for file in files),
            size_bytes=sum(file.size for file in files),
            manifest_count=len(table.snapshots),
            snapshots=[
                SnapshotSummary(
                    snapshot_id=snapshot.id,
                    timestamp_ms=snapshot.timestamp_ms,
                    operation=snapshot.operation,
                    added_files=0,
                    added_rows=0,
                    deleted_files=0,
                )
                for snapshot in table.snapshots
            ],
        )

    @override
    async def close(self) -> None:
        pass

    def _existing(self, stream: Stream) -> MemoryTable:
        table = self.tables.get(stream.number)
        if table is None:
            raise NotFound(f"stream {stream.name} has no table")
        return table


class Versions(Protocol):
    """The two table calls of a commit attempt."""

    async def load(self, stream: Stream) -> LoadedTable:
        """The table as it is now."""

    async def replace(self, stream: Stream, seen: LoadedTable, by: Replacement) -> TableState:
        """Replace the version that was loaded by a new one."""


async def commit_to(
    tables: Versions, stream: Stream, commit: TableCommit, closed_tasks: Collection[int], check: CommitCheck
) -> TableState:
    """`Tables.commit`."""
    while True:
        seen = await tables.load(stream)
        decision = decide(seen.applied_tasks, commit.changes, closed_tasks)
        if not decision.changes:
            return seen.table.state()
        await check()
        files = dict(seen.files)
        for change in decision.changes:
            for key in change.remove:
                if files.pop(key, None) is None:
                    raise Unmergeable(f"the data file {key} is not in the table")
            files.update({file.key: file for file in change.add})
        is_append = not any(change.remove for change in decision.changes)
        by = Replacement(
            applied_tasks=decision.applied,
            files=files,
            operation="append" if is_append else "replace",
            commit=TableCommit(changes=decision.changes),
        )
        with suppress(Overtaken):
            return await tables.replace(stream, seen, by)


async def fence(tables: Versions, stream: Stream) -> TableState | None:
    """`Tables.fence`."""
    while True:
        try:
            seen = await tables.load(stream)
            by = Replacement(applied_tasks=seen.applied_tasks, files=seen.files, operation="append", commit=None)
            return await tables.replace(stream, seen, by)
        except NotFound:
            return None
        except Overtaken:
            continue


class PartlyUnreadable:
    """`Tables` where every call for one stream fails with `Corrupt` until `heal`."""

    def __init__(self, inner: Tables, name: str) -> None:
        self._inner = inner
        self.name = name

    def heal(self) -> None:
        """Make all tables readable from now on."""
        self.name = ""

    def __getattr__(self, method_name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, method_name)

        async def call(stream: Stream, *arguments: Any, **named: Any) -> Any:  # Any: whatever the method takes
            if stream.name == self.name:
                raise Corrupt(f"the table of {stream.name} is unreadable")
            return await method(stream, *arguments, **named)

        return call


class RemoteTables:
    """`Tables` behind the network."""

    def __init__(self, network: Network, inner: Tables) -> None:
        self._network = network
        self._inner = inner

    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        """Commit to the table; the network may delay, repeat or lose each request."""
        return await commit_to(cast("Versions", self), stream, commit, closed_tasks, check)

    async def fence(self, stream: Stream) -> TableState | None:
        """Fence the table; the network may delay, repeat or lose each request."""
        return await fence(cast("Versions", self), stream)

    async def replace(self, stream: Stream, seen: LoadedTable, by: Replacement) -> TableState:
        """Replace the version that was loaded. The network gives requests that remove files from the table their own name."""
        what = "tables.merge" if by.operation == "replace" else "tables.replace"
        inner = cast("Versions", self._inner)
        return await self._network.call("catalog", what, lambda: inner.replace(stream, seen, by))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        def call(*arguments: Any, **named: Any) -> Awaitable[Any]:  # Any: whatever the method takes
            return self._network.call("catalog", f"tables.{name}", lambda: method(*arguments, **named))

        return call
