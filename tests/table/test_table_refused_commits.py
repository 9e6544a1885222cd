"""Commits that the catalog refused, whose copies are executed late: the table stays readable.

A proxy copies requests.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from bearlake.clock import ManualClock
from bearlake.errors import Fenced, NotFound, Unavailable
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables
from fixtures.late_requests import appended, foreign, meanwhile, offsets
from fixtures.tables import Work, commit_of, pyiceberg_catalog

HOUR_MS = 3_600_000


async def test_a_copy_of_a_refused_commit_that_is_executed_after_two_rollbacks_leaves_the_table_readable(
    tmp_path: Path, tables: IcebergTables, work: Work
) -> None:
    """A proxy repeats the request. The rollbacks set another current snapshot and then the one that the request replaces."""
    ids = await appended(tables, work, 0, 1)
    change = await work.append(3, 2, 3)
    catalog: Any = tables.lookup().catalog
    execute, copies = catalog.commit_table, list[Callable[[], Any]]()

    def overtaken(*arguments: Any, **named: Any) -> Any:
        copies.append(lambda: execute(*arguments, **named))
        foreign(tmp_path).manage_snapshots().rollback_to_snapshot(ids[0]).commit()
        return execute(*arguments, **named)

    async def stop_at_the_second_attempt() -> None:
        if copies:
            raise Fenced("a newer worker has the task")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "commit_table", overtaken)
        with pytest.raises(Fenced):
            await tables.commit(work.stream, commit_of(change), closed_tasks=[], check=stop_at_the_second_attempt)
    foreign(tmp_path).manage_snapshots().set_current_snapshot(ids[1]).commit()
    await asyncio.to_thread(copies[0])

    assert offsets(tmp_path) == [0, 1, 2]


async def test_the_manifests_of_a_refused_commit_are_deleted_at_once_if_no_copy_can_succeed(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, store: tuple[ObjectStore, str]
) -> None:
    await appended(tables, work, 0)
    theirs = await work.append(3, 1, 2)

    async def overtake() -> None:
        await rival.commit(work.stream, commit_of(theirs), closed_tasks=[])

    with meanwhile(tables, "commit_table", overtake):
        await tables.commit(work.stream, commit_of(await work.append(4, 2, 3)), closed_tasks=[])
    left = {Path(info.key).name async for info in store[0].list("table/") if info.key.endswith(".avro")}
    named = foreign(tmp_path)
    files = {Path(snapshot.manifest_list).name for snapshot in named.metadata.snapshots}
    files |= {Path(m.manifest_path).name for s in named.metadata.snapshots for m in s.manifests(named.io)}

    assert left == files
    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_refused_commit_whose_copy_succeeded_and_has_expired_since_keeps_its_manifests(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock
) -> None:
    """The worker is paused before it learns of the refusal. Later snapshots name the manifests of the expired one."""
    await appended(tables, work, 0)
    catalog: Any = tables.lookup().catalog
    execute = catalog.commit_table

    async def go_on() -> None:
        await appended(rival, work, 2)
        clock.advance(100 * HOUR_MS)
        await rival.expire(work.stream, keep_ms=0, keep_count_min=1)

    def copied(*arguments: Any, **named: Any) -> Any:
        execute(*arguments, **named)
        patch.setattr(catalog, "commit_table", execute)
        asyncio.run_coroutine_threadsafe(go_on(), loop).result(30)
        return execute(*arguments, **named)

    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "commit_table", copied)
        await appended(tables, work, 1)

    assert offsets(tmp_path) == [0, 1, 2]


async def test_a_refused_commit_keeps_its_manifests_while_another_table_has_the_name(
    tmp_path: Path, tables: IcebergTables, work: Work
) -> None:
    """Another engine renames the table, and back; a copy of the request is executed then."""
    await appended(tables, work, 0)
    change = await work.append(2, 1, 2)
    catalog: Any = tables.lookup().catalog
    execute, copies = catalog.commit_table, list[Callable[[], Any]]()
    other = pyiceberg_catalog(tmp_path)

    def overtaken(*arguments: Any, **named: Any) -> Any:
        copies.append(lambda: execute(*arguments, **named))
        other.rename_table("streams.orders", "streams.old")
        made = other.create_table(
            "streams.orders", other.load_table("streams.old").schema(), f"file://{tmp_path}/objects/new"
        )
        for _ in range(9):
            made.append(made.schema().as_arrow().empty_table())
        return execute(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "commit_table", overtaken)
        with pytest.raises((NotFound, Unavailable)):
            await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    other.drop_table("streams.orders")
    other.rename_table("streams.old", "streams.orders")
    await asyncio.to_thread(copies[0])

    assert offsets(tmp_path) == [0, 1]


async def test_a_commit_that_a_proxy_repeats_after_a_refusal_leaves_the_table_readable(
    tmp_path: Path, tables: IcebergTables, work: Work
) -> None:
    """The catalog refuses one copy without a change of the table, and executes the other before the worker's next attempt."""
    await appended(tables, work, 0)
    catalog: Any = tables.lookup().catalog
    commit, load = catalog.commit_table, catalog.load_table
    copies: list[Callable[[], Any]] = []
    loads: list[Any] = []

    def refused(*arguments: Any) -> Any:
        catalog.commit_table = commit
        copies.append(lambda: commit(*arguments))
        raise CommitFailedException("busy")

    def loaded(*arguments: Any) -> Any:
        loads.append(arguments)
        if copies and len(loads) > 2:  # the worker's own load, and the load by which it finds the reason of the refusal
            copies.pop()()
        return load(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "commit_table", refused)
        patch.setattr(catalog, "load_table", loaded)
        await appended(tables, work, 1)

    assert not copies
    assert offsets(tmp_path) == [0, 1]
