"""Promotions of several streams: with a missing name, interrupted in the middle, and two at once; on both metadata stores."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bearlake.app.importing import promote
from bearlake.errors import NotFound, Unavailable
from bearlake.importing.promotion import Promoted
from bearlake.metadata.model import StreamSpec
from bearlake.streams.catalog import Catalog
from bearlake.streams.configs import IMPORT_SOURCE
from fixtures.backed_up import Lake, Place

pytestmark = pytest.mark.integration

NAMES = ("bills", "orders", "visits")


async def imported(lake: Lake, names: Sequence[str] = NAMES) -> None:
    """Create streams as an import does."""
    for name in names:
        configs = {IMPORT_SOURCE: f"kafka:far/{name}"}
        await lake.stores.metadata.streams.create(StreamSpec(name=name, partition_count=1, configs=configs))


async def marks(lake: Lake, names: Sequence[str] = NAMES) -> Mapping[str, str | None]:
    """The marks of streams by name, as the store has them."""
    streams = [await lake.stores.metadata.streams.get(name) for name in names]
    return {stream.name: stream.configs.get(IMPORT_SOURCE) for stream in streams}


async def test_a_missing_name_promotes_none(place: Place) -> None:
    async with place.opened() as lake:
        await imported(lake)

        with pytest.raises(NotFound, match="missing"):
            await promote(place.settings, [*NAMES, "missing"])

        assert None not in (await marks(lake)).values()
        assert await lake.keys("backups/promoted/") == set()


async def test_a_promotion_that_is_interrupted_is_completed_by_the_same_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, count, shown = Catalog.change, 0, list[Promoted]()

    async def fail_at_the_second(catalog: Catalog, *given: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise Unavailable("the store is gone")
        return await change(catalog, *given)

    async with place.opened() as lake:
        await imported(lake)
        monkeypatch.setattr(Catalog, "change", fail_at_the_second)
        with pytest.raises(Unavailable):
            await promote(place.settings, NAMES, shown.append)
        assert [stream.name for stream in shown] == ["bills"]
        assert await marks(lake) == {"bills": None, "orders": "kafka:far/orders", "visits": "kafka:far/visits"}

        done = await promote(place.settings, NAMES)

        assert [stream.source for stream in done] == ["", "kafka:far/orders", "kafka:far/visits"]
        assert set((await marks(lake)).values()) == {None}
        assert len(await lake.keys("backups/promoted/")) == 3


async def test_two_promotions_at_once_do_not_disturb_each_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins and ends in the middle of the first. Neither is a server of the deployment, whose name the other would take."""
    change, second = Catalog.change, list[Sequence[Promoted]]()

    async def with_another(catalog: Catalog, *given: Any) -> Any:
        monkeypatch.setattr(Catalog, "change", change)
        second.append(await promote(place.settings, NAMES))
        return await change(catalog, *given)

    async with place.opened() as lake:
        await imported(lake)
        monkeypatch.setattr(Catalog, "change", with_another)

        first = await promote(place.settings, NAMES)

        assert [stream.name for stream in first] == [stream.name for stream in second[0]] == list(NAMES)
        assert set((await marks(lake)).values()) == {None}
        assert await lake.stores.metadata.servers.last_epoch("import-promote") == 0


async def test_many_promotions_at_once_all_succeed(place: Place) -> None:
    async with place.opened() as lake:
        await imported(lake)

        found = await asyncio.gather(*(promote(place.settings, NAMES) for _ in range(4)))

        assert [len(done) for done in found] == [3] * 4
        assert set((await marks(lake)).values()) == {None}


async def test_a_stream_that_is_not_being_imported_is_not_changed(place: Place) -> None:
    async with place.opened() as lake:
        before = (await lake.create("own")).stream

        done = await promote(place.settings, ["own"])

        assert done == [Promoted(name="own", source="")]
        assert await lake.stores.metadata.streams.get("own") == before
