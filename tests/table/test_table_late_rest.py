"""Requests to Apache Iceberg's REST catalog that arrive late, twice or without an answer; and the requirements of each request.

Promised to readers of the table: each acknowledged record is a row once, and the table stays readable.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from bearlake.clock import ManualClock, SystemClock
from bearlake.errors import Fenced, Unavailable
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.settings import TableSettings
from fixtures.late_proxy import LateProxy, Request, late_proxy
from fixtures.tables import START_MS, Work, a_stream, commit_of, local_store

pytestmark = pytest.mark.integration
HOUR_MS = 3_600_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
def proxy(iceberg_rest_url: str) -> Iterator[LateProxy]:
    with late_proxy(iceberg_rest_url) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
async def workers(
    proxy: LateProxy, store: tuple[ObjectStore, str], clock: ManualClock
) -> AsyncIterator[list[IcebergTables]]:
    """The tables of a worker that uses the proxy, and of a worker that uses the catalog directly."""
    opened = [
        open_tables(TableSettings(catalog_url=url, commit_pause_max_ms=5), *store, clock=clock)
        for url in (proxy.url, proxy.target)
    ]
    yield opened
    for tables in opened:
        await tables.close()


class Reader:
    """A second engine that uses the catalog directly."""

    def __init__(self, proxy: LateProxy) -> None:
        self._catalog = RestCatalog("other", uri=proxy.target)

    def table(self, name: str) -> Any:
        return self._catalog.load_table(("streams", name))

    def offsets(self, name: str) -> list[int]:
        rows = self.table(name).scan(selected_fields=("_offset",)).to_arrow().to_pylist()
        return sorted(row["_offset"] for row in rows)


async def check_late(
    proxy: LateProxy, workers: list[IcebergTables], work: Work, change: TableChange, name: str, meanwhile: Any
) -> list[int]:
    """Hold the worker's commit, run `meanwhile`, then execute the commit; return the table's offsets.

    The worker then commits again, as it does after an unknown outcome.
    """
    with proxy.keeping(Request.is_commit), pytest.raises(Unavailable):
        await workers[0].commit(work.stream, commit_of(change), closed_tasks=[])
    await meanwhile()
    for _ in range(2):  # and a proxy may repeat them
        late = list(proxy.kept)
        await asyncio.to_thread(proxy.deliver)
        proxy.kept = late
    proxy.kept = []
    return await asyncio.to_thread(Reader(proxy).offsets, name)


async def test_each_row_is_in_the_table_once_whenever_the_catalog_executes_a_commit(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    """Two epochs of one task; the first epoch's request arrives late, several times."""
    late, rival = workers
    reader = Reader(proxy)

    async def nothing() -> None:
        pass

    for number, name in enumerate(["first", "second", "fenced", "branched", "rolled_back"]):
        work = Work(store[0], a_stream(name, 7 + number))
        await late.ensure(work.stream)
        if name != "first":  # otherwise the table is empty: its main branch does not exist yet
            await late.commit(work.stream, commit_of(await work.append(1, 0, 1)), closed_tasks=[])
        start = 0 if name == "first" else 1
        mine, theirs = [await work.append(2, start, start + 1, epoch=epoch) for epoch in (1, 2)]

        async def overtake(work: Work = work, theirs: TableChange = theirs) -> None:
            await rival.commit(work.stream, commit_of(theirs), closed_tasks=[])

        async def fence(work: Work = work) -> None:
            await rival.fence(work.stream)

        async def branch(name: str = name) -> None:
            table = await asyncio.to_thread(reader.table, name)
            head = table.metadata.current_snapshot_id
            await asyncio.to_thread(lambda: table.manage_snapshots().create_branch(head, "audit").commit())

        async def roll_back(name: str = name, overtake: Any = overtake) -> None:
            head = (await asyncio.to_thread(reader.table, name)).metadata.current_snapshot_id
            await overtake()
            table = await asyncio.to_thread(reader.table, name)
            await asyncio.to_thread(lambda: table.manage_snapshots().rollback_to_snapshot(head).commit())

        between = {"fenced": fence, "branched": branch, "rolled_back": roll_back}.get(name, overtake)
        found = await check_late(proxy, workers, work, mine, name, between)
        expected = list(range(start + 1))
        if name in ("fenced", "rolled_back"):
            expected = expected[:-1]
            assert not await rival.live_files(work.stream, [mine.add[0].key]) or name == "rolled_back"
        assert found == expected, name
        state = await late.commit(work.stream, commit_of(mine), closed_tasks=[])
        if name != "rolled_back":  # the marks show that the rows are in the table, but a user has removed them
            assert await asyncio.to_thread(reader.offsets, name) == list(range(start + 1)), name
        assert state.ends == {0: start + 1}


async def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    work = Work(store[0], a_stream())
    await workers[0].ensure(work.stream)
    proxy.loses = Request.is_commit
    for task in range(3):
        await workers[0].commit(work.stream, commit_of(await work.append(task, task, task + 1)), closed_tasks=[])
    merged = await work.append(3, 3, 4)
    await workers[0].commit(work.stream, commit_of(merged), closed_tasks=[])
    merge = TableChange(
        task=AppliedTask(task_id=4, epoch=1), add=[await work.file(0, 3, 4)], remove=[merged.add[0].key]
    )
    await workers[0].commit(work.stream, commit_of(merge), closed_tasks=[])

    assert await asyncio.to_thread(Reader(proxy).offsets, "orders") == [0, 1, 2, 3]
    assert len([request for request in proxy.seen if request.is_commit()]) == 5


async def test_a_late_commit_does_not_affect_a_table_that_was_created_again(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    """A user dropped the table; its stream gets a new, empty table."""
    work = Work(store[0], a_stream())
    await workers[0].ensure(work.stream)
    change = await work.append(1, 0, 1)

    async def recreate() -> None:
        await workers[1].drop(work.stream)
        await workers[1].ensure(work.stream)

    assert await check_late(proxy, workers, work, change, "orders", recreate) == []


async def test_a_late_creation_changes_no_table_that_exists(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    work = Work(store[0], a_stream())
    with proxy.keeping(Request.is_creation), pytest.raises(Unavailable):
        await workers[0].ensure(work.stream)
    made = await workers[1].ensure(work.stream)
    await workers[1].commit(work.stream, commit_of(await work.append(1, 0, 1)), closed_tasks=[])
    statuses = await asyncio.to_thread(proxy.deliver)

    assert set(statuses) == {409}
    state = await workers[1].state(work.stream)
    assert state is not None
    assert state.identifier == made.identifier
    assert await asyncio.to_thread(Reader(proxy).offsets, "orders") == [0]


async def test_files_of_commits_that_were_given_up_are_deleted(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str], clock: ManualClock
) -> None:
    """The folder is as small as without abandoned commits, and these do no harm later."""
    work = Work(store[0], a_stream())
    made = await workers[0].ensure(work.stream)
    await workers[0].commit(work.stream, commit_of(await work.append(1, 0, 1)), closed_tasks=[])
    folder = f"{made.location_key}/metadata/"
    for _ in range(3):
        with proxy.keeping(Request.is_commit), pytest.raises(Unavailable):
            await workers[0].commit(work.stream, commit_of(await work.append(2, 1, 2)), closed_tasks=[])
    manifests = [found.key async for found in store[0].list(folder) if found.key.endswith(".avro")]
    clock.advance(100 * HOUR_MS)
    await workers[1].expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)
    statuses = await asyncio.to_thread(proxy.deliver)
    left = [found.key async for found in store[0].list(folder) if found.key.endswith(".avro")]

    assert len(manifests) == 2 + 2 * len(statuses)
    assert len(left) == 2 + 1  # the fence's manifest list names the manifest of the first commit
    assert set(statuses) == {409}
    assert await asyncio.to_thread(Reader(proxy).offsets, "orders") == [0]


async def test_every_commit_requires_what_it_changes(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str], clock: ManualClock
) -> None:
    """The table by its UUID, and the branch whose snapshot or whose history it changes; an expiry: all branches and tags."""
    tables, reader = workers[0], Reader(proxy)
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    first = await work.append(1, 0, 1)
    await tables.commit(work.stream, commit_of(first), closed_tasks=[])
    merge = TableChange(task=AppliedTask(task_id=2, epoch=1), add=[await work.file(0, 0, 1)], remove=[first.add[0].key])
    both = commit_of(merge, await work.append(3, 1, 2, timestamp_ms=START_MS + HOUR_MS))
    await tables.commit(work.stream, both, closed_tasks=[1])
    await tables.fence(work.stream)
    await tables.delete_before(work.stream, START_MS + HOUR_MS)
    theirs = await asyncio.to_thread(reader.table, "orders")
    heads = [snapshot.snapshot_id for snapshot in theirs.metadata.snapshots]
    await asyncio.to_thread(lambda: theirs.manage_snapshots().create_tag(heads[0], "audit").commit())
    clock.advance(100 * HOUR_MS)
    await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    commits = [request.document() for request in proxy.seen if request.is_commit()]
    assert len(commits) == 5
    for commit in commits:
        required = {found["type"]: found for found in commit["requirements"]}
        refs = {found["ref"]: found.get("snapshot-id") for found in commit["requirements"] if "ref" in found}
        actions = {update["action"] for update in commit["updates"]}
        assert required["assert-table-uuid"]["uuid"] == str(theirs.metadata.table_uuid)
        assert set(refs) >= {update["ref-name"] for update in commit["updates"] if "ref-name" in update}
        assert "main" in refs
        if "remove-snapshots" in actions:
            assert set(refs) == {"main", "audit"}
            assert None not in refs.values()
    created = [request.document() for request in proxy.seen if request.is_creation()]
    assert [found.get("stage-create", False) for found in created] == [False]


async def test_a_fence_holds_against_a_commit_that_a_catalog_executes_later(
    proxy: LateProxy, workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    """The first commit to an empty table, whose main branch does not exist: only the fence can exclude it."""
    work = Work(store[0], a_stream())
    await workers[0].ensure(work.stream)
    change = await work.append(1, 0, 1)
    asked: list[int] = []

    async def check() -> None:
        asked.append(len(asked))
        if len(asked) > 1:
            raise Fenced("overtaken")

    with proxy.keeping(Request.is_commit), pytest.raises(Fenced):
        await workers[0].commit(work.stream, commit_of(change), closed_tasks=[], check=check)
    await workers[1].fence(work.stream)

    assert await asyncio.to_thread(proxy.deliver) == [409]
    assert await workers[1].live_files(work.stream, [change.add[0].key]) == set()
