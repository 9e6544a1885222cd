"""Restores that end in the middle, run beside each other, or come too late: they complete, or are refused in words."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bearlake.app.backup.holding import holds, release
from bearlake.app.backup.taking import Progressed
from bearlake.errors import AlreadyExists, NotFound, Unavailable
from bearlake.metadata.open import open_metadata
from fixtures.backed_up import Place, lose_time, write_parts
from fixtures.postgresql import execute

pytestmark = pytest.mark.integration


UNMADE = (
    "drop schema bearlake cascade",
    "create schema bearlake",
    "create table bearlake.migration (version integer primary key, name text not null, applied_at timestamptz not null)",
)
"""What a process leaves that is killed between the two commits of a new store (`metadata/postgresql/migrate.py`)."""


def dies_at(step: str) -> Any:
    """Progress that ends the restore at that step."""

    def die(told: Progressed) -> None:
        if told.step == step:
            raise RuntimeError("killed")

    return die


def in_thread(call: Any) -> BaseException | None:
    """Run the coroutine as another process would, and return its error."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, call).exception()


@pytest.mark.parametrize("step", ["partitions", "tables"])
async def test_no_store_opens_until_a_restore_that_died_is_repeated(place: Place, step: str) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
        await lose_time(lake)
    with pytest.raises(RuntimeError):
        await place.restore(on_progress=dies_at(step))

    with pytest.raises(Unavailable, match="has not ended"):
        await open_metadata(place.url)

    await place.restore(may_replace=False)  # a store that a restore has begun to make is nobody's
    async with place.opened() as lake:
        view = await lake.find()
        assert await lake.log(view) == before
        await lake.compact(view)
        assert await lake.table(view) == before


async def test_a_restore_into_a_store_in_use_leaves_its_tables(tmp_path: Path) -> None:
    place = Place(tmp_path, f"sqlite://{tmp_path}/metadata.db")
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
        view = await lake.find()
        await lake.compact(view)
        await lake.write(view, "later")
        await lake.compact(view)
        log = await lake.log(view)

        with pytest.raises(Unavailable, match="open"):
            await place.restore()

        assert await lake.table(view) == log
        assert await lake.keys("backups/restores/") == set()


async def test_a_second_restore_waits_for_the_first(place: Place) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
    refused: list[BaseException | None] = []

    def restore_too(told: Progressed) -> None:
        if told.step == "tables" and not refused:
            refused.append(in_thread(place.restore(on_progress=dies_at("partitions"))))

    await place.restore(on_progress=restore_too)

    assert isinstance(refused[0], Unavailable), refused
    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == before


async def test_a_backup_whose_snapshots_are_gone_is_refused(place: Place) -> None:
    async with place.opened() as lake:
        view = await lake.create()
        for value in ("a", "b"):
            await lake.write(view, value)
            await lake.compact(view)
        await place.back_up()
        (hold,) = await holds(place.settings)
        await release(place.settings, hold.id)
        for value in ("c", "d"):
            await lake.write(view, value)
            await lake.compact(view)
        await lake.sweep()
        log = await lake.log(view)

    with pytest.raises(NotFound, match=r"metadata/.*\.avro"):
        await place.restore()

    async with place.opened() as lake:
        view = await lake.find()
        assert await lake.log(view) == await lake.table(view) == log
    assert any(key.endswith(".avro") for key in (await place.restore(may_lack=True)).missing)


async def test_a_restore_makes_the_store_that_a_killed_start_left_unmade(tmp_path: Path, postgresql_url: str) -> None:
    place = Place(tmp_path, postgresql_url)
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
    for statement in UNMADE:
        await execute(postgresql_url, statement)

    await place.restore(may_replace=False)

    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == before


async def test_two_backups_do_not_share_a_folder(place: Place) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        refused: list[BaseException | None] = []

        def back_up_too(told: Progressed) -> None:
            if told.step == "tables" and not refused:
                refused.append(in_thread(place.back_up()))

        await place.back_up(on_progress=back_up_too)
        await lose_time(lake)
    assert isinstance(refused[0], AlreadyExists), refused

    await place.restore()

    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == before


async def test_a_catalog_that_does_not_answer_ends_backup_and_restore_in_words(tmp_path: Path) -> None:
    place = Place(tmp_path, f"sqlite://{tmp_path}/metadata.db")
    away = replace(place, catalog=f"sqlite://{tmp_path}/none/catalog.db")
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
    with pytest.raises(Unavailable):
        await away.back_up("other")

    with pytest.raises(Unavailable):
        await away.restore()

    async with place.opened() as lake:  # nothing was changed
        assert await lake.log(await lake.find()) == before
