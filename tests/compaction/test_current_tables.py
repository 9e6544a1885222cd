"""Current tables: the newest record of each key, as of stated offsets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fixtures.current_lake import CurrentLake
from fixtures.deployment import NOW_MS
from fixtures.typed_lake import TypedLake, typed_lake


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def current(lake: TypedLake, partition_count: int = 1, **configs: str) -> CurrentLake:
    given = {"table__current": "on", "table__value__mode": "raw", "table__current__buckets": "4", **configs}
    return CurrentLake(lake, await lake.create(partition_count=partition_count, **given))


async def test_the_table_has_the_newest_value_of_each_key_and_no_deleted_key(lake: TypedLake) -> None:
    scene = await current(lake)
    await scene.send((b"ann", b"1"), (b"bob", b"2"), (b"ann", b"3"), (b"bob", None), (None, b"no key"))
    await scene.update()

    assert await scene.newest() == {b"ann": (0, 2, b"3")}

    await scene.send((b"bob", b"4"), (b"ann", None), (b"cat", b"5"))
    await scene.update()

    assert await scene.newest() == {b"bob": (0, 5, b"4"), b"cat": (0, 7, b"5")}
    assert await scene.ends() == {0: 8}
    assert await scene.newest() == await scene.expected()


async def test_a_tombstone_counts_against_older_records_of_other_partitions(lake: TypedLake) -> None:
    scene = await current(lake, 2)
    await scene.send((b"a", b"1"), (b"b", b"1"), index=0, timestamp_ms=NOW_MS)
    await scene.send((b"a", None), index=1, timestamp_ms=NOW_MS + 10)
    await scene.update()
    await scene.send((b"a", b"late"), (b"b", b"2"), index=0, timestamp_ms=NOW_MS + 5)
    await scene.update()

    assert await scene.newest() == {b"b": (0, 3, b"2")}
    assert await scene.newest() == await scene.expected()
