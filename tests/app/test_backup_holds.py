"""What the holds of backups keep, and what a store that a restore has replaced may do."""

from pathlib import Path

import pytest

from bearlake.compaction.holds import SLACK_MS, Holds
from bearlake.errors import Fenced, NotFound
from bearlake.wal import keys as wal_keys
from fixtures.backed_up import Place, lose_time, write_parts

pytestmark = pytest.mark.integration


async def test_without_the_hold_the_sweeps_delete_what_the_backup_needs(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        made = await place.back_up()
        await Holds(lake.stores.store).release(made.id)
        await lose_time(lake)

    with pytest.raises(NotFound, match="lacks"):
        await place.restore()

    async with place.opened() as lake:  # nothing was changed
        assert "lost too" in (await lake.log(await lake.find())).values()


async def test_a_hold_ends_with_its_time(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up(valid_ms=0)
        await lose_time(lake)

    with pytest.raises(NotFound, match="lacks"):
        await place.restore()


async def test_a_hold_keeps_nothing_that_was_made_after_the_backup(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
        view = await lake.find()
        for _ in range(2):
            await lake.write(view, "later")
            await lake.compact(view)
        (hold,) = await Holds(lake.stores.store).everything()
        later_ms = hold.taken_ms + 2 * SLACK_MS

        assert not hold.needs(f"wal/2099010100/{wal_keys.uuid7(later_ms, 0)}", later_ms)
        assert hold.needs(f"wal/2025010100/{wal_keys.uuid7(hold.taken_ms - 1, 0)}", later_ms)
        assert not hold.needs(f"table/streams/orders-00/data/{hold.task_id + 1:016x}-1-a.parquet", later_ms)
        assert hold.needs(f"table/streams/orders-00/data/{hold.task_id:016x}-1-a.parquet", later_ms)
        assert not hold.needs("wal/any", hold.began_ms - SLACK_MS - 1)


async def test_a_backup_of_a_lost_time_stays_valid_after_a_restore(place: Place) -> None:
    async with place.opened() as lake:
        first = await write_parts(lake)
        await place.back_up("monday")
        await lose_time(lake)
        second = await lake.log(await lake.find())
        await place.back_up("tuesday")
    await place.restore("monday")
    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == first
        await lose_time(lake)  # the objects of Tuesday are orphans to this store

    await place.restore("tuesday")

    async with place.opened() as lake:
        view = await lake.find()
        assert await lake.log(view) == second
        await lake.compact(view)
        assert await lake.table(view) == second


async def test_a_store_that_a_restore_has_replaced_deletes_nothing(tmp_path: Path) -> None:
    old = Place(tmp_path, f"sqlite://{tmp_path}/metadata.db")
    new = Place(tmp_path, f"sqlite://{tmp_path}/restored.db")
    async with old.opened() as lake:
        await write_parts(lake)
        await old.back_up()
    await new.restore(may_replace=False)
    async with new.opened() as lake:
        await lake.write(await lake.find(), "new")
        kept = await lake.keys("wal/")
        await lake.sweep()
    async with old.opened() as lake:
        with pytest.raises(Fenced, match="has replaced this metadata store"):
            await lake.sweep()
        assert await lake.keys("wal/") >= kept
