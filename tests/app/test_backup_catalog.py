"""Restores of a store whose Iceberg catalog is in the same PostgreSQL database, as with the chart's quick start."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from fixtures.backed_up import Lake, Place, lose_time, write_parts
from fixtures.postgresql import execute, in_thread

pytestmark = pytest.mark.integration


@pytest.fixture
def empty_url(postgresql_url: str) -> Iterator[str]:
    """URL of another database of the same server."""
    name = f"test_{uuid.uuid4().hex}"
    in_thread(execute(postgresql_url, f"create database {name}"))
    yield urlunsplit(urlsplit(postgresql_url)._replace(path=f"/{name}"))
    in_thread(execute(postgresql_url, f"drop database {name} with (force)"))


async def check(lake: Lake, before: dict[int, str]) -> None:
    """The log and the table are as they were, and both go on."""
    view = await lake.find()
    assert await lake.log(view) == before
    assert await lake.table(view) == {offset: value for offset, value in before.items() if value != "tail"}
    await lake.write(view, "new")
    await lake.compact(view)
    await lake.sweep()
    assert list((await lake.log(view)).values()) == [*before.values(), "new"]
    assert await lake.table(view) == await lake.log(view)


@pytest.mark.parametrize("is_in_place", [True, False])
async def test_a_store_and_its_catalog_come_back_together(
    tmp_path: Path, postgresql_url: str, empty_url: str, is_in_place: bool
) -> None:
    lost = Place(tmp_path, postgresql_url, postgresql_url)
    async with lost.opened() as lake:
        before = dict(await write_parts(lake))
        await lost.back_up()
        await lose_time(lake)
    place = lost if is_in_place else Place(tmp_path, empty_url, empty_url)

    done = await place.restore(may_replace=is_in_place)

    assert done.table_count == 1
    async with place.opened() as lake:
        await check(lake, before)
