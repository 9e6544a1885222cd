# ruff: noqa: SLF001 - rows and steps of the file that no method shows
"""The SQLite store: its file, its threads, crashes, layouts of other versions, and translation of all errors."""

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Corrupt, Invalid, Overloaded, Unavailable, Unsupported
from bearlake.metadata.compaction import OffsetRange, Swap, TaskClaim
from bearlake.metadata.model import (
    BATCH_NAMED,
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    OutcomeKind,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.sqlite import commit as commit_module
from bearlake.metadata.sqlite import commits as commits_module
from bearlake.metadata.sqlite.migrate import statements
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, new_cluster_id, open_sqlite
from bearlake.metadata.subscriptions import CursorSave, CursorUpdate
from fixtures import by_name

PRODUCERS = ("partition_producers", "producer_names", "partition_epochs")


class Opened:
    """A store with one stream and one server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stores: list[SqliteMetadata] = []
        self.stream: Stream
        self.server: ServerRef

    async def open(self, **settings: Any) -> SqliteMetadata:
        store = await open_sqlite(self.path, SqliteSettings(**settings), clock=ManualClock())
        self.stores.append(store)
        return store

    def object(self, token: str, partition: int = 0) -> ObjectCommit:
        batch = BatchCommit(self.stream.partition(partition), 0, 10, 2, 0)
        return ObjectCommit(token=token, server=self.server, size=10, batches=[batch])


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened(tmp_path / "metadata.db")
    store = await opened.open()
    opened.stream = await store.streams.create(StreamSpec(name="orders", partition_count=3))
    registration = await store.servers.register("a", zone=None, endpoints={}, version="1", timeout_ms=1_000)
    opened.server = registration.server
    yield opened
    for opened_store in opened.stores:
        await opened_store.close()


async def end_of(store: SqliteMetadata, opened: Opened) -> int:
    key = opened.stream.partition(0)
    return (await store.log.bounds([key]))[key].end


# Crashes: an unfinished transaction has no effect, in the file or in memory.


class Crash(BaseException):
    """Raised where the process crashes."""


@pytest.mark.parametrize("step", ["write_commit", "check_server"])
async def test_a_crash_inside_a_commit_leaves_no_trace(
    opened: Opened, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened.stores[0]
    await store.log.commit(opened.object("wal/0"))
    await (await opened.open()).log.commit(
        opened.object("wal/1")
    )  # another process: the next commit must follow the log first
    whole = getattr(commit_module, step)

    def crashing(*arguments: Any) -> None:
        whole(*arguments)
        raise Crash

    monkeypatch.setattr(commits_module, step, crashing)
    with pytest.raises(Crash):
        await store.log.commit(opened.object("wal/2"))
    monkeypatch.undo()
    survivor = await opened.open()

    assert await end_of(survivor, opened) == await end_of(store, opened) == 4
    assert (await store.log.commit(opened.object("wal/2"))).outcomes[0].base_offset == 4
    assert (await survivor.log.commit(opened.object("wal/2"))).outcomes[0].base_offset == 4


@pytest.mark.parametrize("step_count", range(1, 24, 2))
async def test_a_crash_inside_maintenance_leaves_no_trace(opened: Opened, step_count: int) -> None:
    """Interrupt SQLite after this many times 20 instructions of its virtual machine, anywhere in the transactions."""
    store = opened.stores[0]
    for number in range(4):
        await store.log.commit(opened.object(f"wal/{number}", number % 2))
    victim = await opened.open()
    left = [step_count]

    def interrupt(*_: object) -> int:
        left[0] -= 1
        return 0 if left[0] > 0 else 1

    writer = victim._database.writer
    await victim._database.run(writer.set_progress_handler, interrupt, 20)
    with pytest.raises(Unavailable):
        await victim.log.maintain(entry_count_min=0)
    while await store.log.maintain(entry_count_min=0):
        pass
    located = await store.log.locate(opened.stream.partition(0), 0, limit=10)

    assert [located_slice.slice.base_offset for located_slice in located.slices] == [0, 2]
    assert [located_slice.object_key for located_slice in located.slices] == ["wal/0", "wal/2"]


# SQLite's errors.


async def test_a_store_that_is_locked_for_too_long_is_unavailable(opened: Opened) -> None:
    impatient = await opened.open(busy_timeout_ms=0)
    blocker = sqlite3.connect(opened.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as raised:
        await impatient.log.commit(opened.object("wal/1"))
    blocker.execute("ROLLBACK")
    blocker.close()

    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    assert (await impatient.log.commit(opened.object("wal/1"))).outcomes[0].base_offset == 0


async def test_no_sqlite_error_leaks_from_any_method(opened: Opened) -> None:
    store = opened.stores[0]
    key = opened.stream.partition(0)
    lease = await store.leases.acquire("l", opened.server)
    claim = TaskClaim(task_id=1, epoch=1, worker=opened.server)
    raw = sqlite3.connect(opened.path, isolation_level=None)
    for (name,) in raw.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        raw.execute(f"ALTER TABLE {name} RENAME TO lost_{name}")
    raw.close()

    for call in (
        store.cluster_id(),
        store.streams.create(StreamSpec(name="x", partition_count=1)),
        store.streams.get("x"),
        store.streams.list(),
        store.streams.newest("x"),
        store.streams.alter(1, set_configs={}, unset_configs=(), version=1),
        store.streams.add_partitions(1, 2),
        store.streams.terminate(1),
        store.streams.delete(1),
        store.streams.by_numbers([1]),
        store.servers.last_epoch("a"),
        store.servers.register("a", zone=None, endpoints={}, version="1", timeout_ms=1),
        store.servers.heartbeat(opened.server),
        store.servers.lapse_count(opened.server),
        store.servers.lapse(opened.server, 0),
        store.servers.drain(opened.server),
        store.servers.leave(opened.server),
        store.servers.live(),
        store.leases.acquire("l", opened.server),
        store.leases.holder("l"),
        store.leases.release(lease),
        store.groups.load("g"),
        store.groups.commit_offsets("g", {}, lease),
        store.groups.offsets("g"),
        store.groups.delete_offsets("g", [key], lease),
        store.groups.delete("g", lease),
        store.groups.list(),
        store.producers.allocate(1),
        store.producers.advance_clock(-1),
        store.producers.expire(idle_ms=1, limit=1),
        store.producers.named(key, "n"),
        store.producers.raise_epoch(key, lease),
        store.cursors.create(key, "s", mark_delete=0, properties={}, after=0),
        store.cursors.load(key),
        store.cursors.save([CursorSave(key, [CursorUpdate("s", 1, b"", 1)], lease)]),
        store.cursors.delete(key, {"s": 0}, lease, after=0),
        store.cursors.list(1),
        store.log.commit(opened.object("wal/1")),
        store.log.follow(0, limit=1),
        store.log.head(),
        store.log.bounds([key]),
        store.log.locate(key, 0, limit=1),
        store.log.locate_timestamp(key, 0),
        store.log.locate_max_timestamp(key),
        store.log.trim(key, 0),
        store.log.producers(key),
        store.log.usage([key]),
        store.log.forbid(["wal/1"]),
        store.log.slices([OffsetRange(key, 0, 1)]),
        store.log.swap(Swap(claim=claim, objects=())),
        store.log.retain(opened.stream, [0], before_ms=1, size_max=1),
        store.log.maintain(entry_count_min=0),
        store.tasks.offer([], lease),
        store.tasks.claim(opened.server, limit=1, bytes_max=1),
        store.tasks.prepare(claim, b"", ["data/1"]),
        store.tasks.release([claim]),
        store.tasks.fail(claim, "", retry_after_ms=0, is_quarantined=False),
        store.tasks.cancel(claim),
        store.tasks.retry(1),
        store.tasks.list(),
        store.tasks.uncompacted(after=key, limit=1),
        store.tasks.backlog(),
        store.tasks.compacted([key]),
        store.objects.unused(ObjectKind.WAL, unused_ms=0),
        store.objects.deleted(["wal/1"]),
        store.objects.data_files(1),
    ):
        with pytest.raises(Unavailable) as raised:
            await call
        assert isinstance(raised.value.__cause__, sqlite3.Error)


async def test_a_closed_store_is_unavailable_and_can_be_closed_twice(opened: Opened) -> None:
    store = opened.stores[0]
    await store.close()
    await store.close()

    with pytest.raises(Unavailable):
        await store.log.head()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("metadata-")]


async def test_a_file_that_is_not_a_database_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"not a database, but long enough to have a header of one hundred bytes" * 10)

    with pytest.raises(Corrupt):
        await open_sqlite(path, SqliteSettings(), clock=ManualClock())


async def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await open_sqlite(tmp_path, SqliteSettings(), clock=ManualClock())


# Layouts.


async def test_a_newer_layout_is_refused_and_not_changed(opened: Opened) -> None:
    await opened.stores[0].close()
    raw = sqlite3.connect(opened.path, isolation_level=None)
    raw.execute("INSERT INTO migrations VALUES (9999, '9999_future', 0)")
    before = raw.execute("SELECT * FROM migrations").fetchall()

    with pytest.raises(Unsupported, match="9999"):
        await open_sqlite(opened.path, SqliteSettings(), clock=ManualClock())
    assert raw.execute("SELECT * FROM migrations").fetchall() == before
    raw.close()


async def test_stores_opened_at_the_same_time_share_one_layout(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"metadata{number}.db"
        stores = await asyncio.gather(*(open_sqlite(path, SqliteSettings(), clock=ManualClock()) for _ in range(6)))

        assert len({await store.cluster_id() for store in stores}) == 1
        for store in stores:
            await store.close()


def test_scripts_are_split_after_each_statement() -> None:
    script = "-- one; two\nCREATE TABLE a (x TEXT DEFAULT ';');\nCREATE TABLE b (\n  y\n);\n"

    assert [statement.strip() for statement in statements(script)] == [
        "-- one; two\nCREATE TABLE a (x TEXT DEFAULT ';');",
        "CREATE TABLE b (\n  y\n);",
    ]


# Bounds.


async def test_too_many_waiting_steps_are_refused(opened: Opened) -> None:
    store = await opened.open(queue_length_max=3)
    gate = threading.Event()
    blocked = [asyncio.create_task(store._database.run(gate.wait, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await store.log.head()
    gate.set()
    await asyncio.gather(*blocked)

    assert await store.log.head() == 1


async def test_memory_stays_bounded_without_maintenance(opened: Opened) -> None:
    store = await opened.open(unrolled_entry_count_max=5, roll_entry_count_max=3)
    for number in range(30):
        await store.log.commit(opened.object(f"wal/{number}"))
        ledger = store._log._follower.ledger

        assert ledger.applied - ledger.rolled <= 5


async def test_a_raised_epoch_does_not_make_other_processes_start_over(opened: Opened) -> None:
    store, other = opened.stores[0], await opened.open()
    key = opened.stream.partition(0)
    lease = await store.leases.acquire("l", opened.server)
    await store.log.commit(opened.object("wal/0"))
    await store.log.commit(opened.object("wal/1", 1))
    states = dict(store._log.follower.ledger.partitions)
    await other.producers.raise_epoch(key, lease)
    batch = BatchCommit(key, 0, 10, 2, 0, 7, 0, 0, BATCH_NAMED)
    late = await store.log.commit(ObjectCommit(token="wal/2", server=opened.server, size=10, batches=[batch]))

    assert late.outcomes[0].kind is OutcomeKind.FENCED
    assert all(store._log.follower.ledger.partitions[known] is state for known, state in states.items())


async def test_objects_count_references_until_their_last_slice_is_gone(opened: Opened) -> None:
    store = opened.stores[0]
    key, other = opened.stream.partition(0), opened.stream.partition(1)
    batches = [BatchCommit(key, 0, 10, 2, 0), BatchCommit(other, 10, 10, 2, 0)]
    await store.log.commit(ObjectCommit(token="wal/1", server=opened.server, size=20, batches=batches))

    async def slice_count() -> int:
        while await store.log.maintain(entry_count_min=0):
            pass
        reader = store._database.reader
        found = await store._database.run_read(lambda: reader.execute("SELECT slice_count FROM objects").fetchone())
        return int(found[0])

    assert await slice_count() == 2
    await store.log.trim(key, 2)
    assert await slice_count() == 1
    await by_name.delete(store, "orders")
    assert await slice_count() == 0


async def test_a_deleted_stream_leaves_no_rows(opened: Opened) -> None:
    store = await opened.open(sweep_page_count_max=1)
    key = opened.stream.partition(1)
    lease = await store.leases.acquire("l", opened.server)
    await store.groups.commit_offsets("g", {}, lease)
    await store.cursors.create(key, "s", mark_delete=0, properties={}, after=0)
    await store.producers.named(key, "n")
    await store.producers.raise_epoch(key, lease)
    for number in range(3):
        await store.log.commit(opened.object(f"wal/{number}", number))
    await by_name.delete(store, "orders")
    for _ in range(12):
        await store.log.maintain(entry_count_min=0)

    def rows() -> list[int]:
        tables = ("index_pages", "partitions", "group_offsets", "sweeps", "log", "cursors", *PRODUCERS)
        return [store._database.reader.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]

    assert await store._database.run_read(rows) == [0] * 9
    assert await store.log.bounds([key]) == {}


async def test_forbidden_tokens_are_forgotten_after_days(tmp_path: Path) -> None:
    clock = ManualClock()
    store = await open_sqlite(tmp_path / "metadata.db", SqliteSettings(), clock=clock)
    await store.log.forbid(["wal/1"])
    clock.advance(8 * 24 * 3_600_000)
    await store.log.maintain(entry_count_min=0)
    left = await store._database.run_read(
        lambda: store._database.reader.execute("SELECT count(*) FROM forbidden_tokens").fetchone()
    )
    await store.close()

    assert left == (0,)


@pytest.mark.parametrize(
    "wrong", [{"page_slice_count_max": 0}, {"poll_interval_ms": -1}, {"queue_length_max": 0}, {"busy_timeout_ms": -1}]
)
def test_contradictory_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        SqliteSettings(**wrong)


def test_cluster_ids_do_not_look_like_options() -> None:
    drawn = [uuid.UUID(bytes=b"\xfb" + bytes(15)), uuid.UUID(bytes=b"\x00" * 16)]

    assert new_cluster_id(lambda: drawn.pop(0)) == "A" * 22
