"""The first rounds of a current table over a stream with many keys: how often they write the table, and what they come to."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.compaction.current_rounds import bytes_of_round, plan_round
from bearlake.compaction.settings import CurrentSettings
from bearlake.table.current_model import CurrentFile, CurrentView, SourceFile
from fixtures.current_lake import CurrentLake
from fixtures.typed_lake import TypedLake, settings, typed_lake

FILE_COUNT = 24
KEYS_PER_FILE = 10
VALUE_BYTES = 4_000


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


def view_of(size: int, read: int, written: int) -> CurrentView:
    """A stream of `size` bytes in files of one byte, all with different keys, of which `read` are in a current table of `written` bytes."""
    sources = [
        SourceFile(key=str(at), size=1, partition_min=0, partition_max=0, offset_min=at, offset_max=at)
        for at in range(size)
    ]
    return CurrentView(
        table="",
        column_ids=frozenset(),
        location_key="",
        snapshot_id=None,
        starts={0: read},
        ends={0: size},
        sources=sources,
        files=[CurrentFile(key="", size=written, bucket=0)],
        state=None,
        bucket_count=1,
        source="",
        source_snapshot=0,
        sequence=0,
    )


@pytest.mark.parametrize("size", [10, 100, 1_000])
def test_all_rounds_write_about_twice_a_new_table_however_large_it_is(size: int) -> None:
    read = written = 0
    while read < size:
        view = view_of(size, read, read)
        read = plan_round(view, bytes_of_round(view, 1)).ends[0]
        written += read

    assert written <= 3 * size


def test_a_small_table_takes_what_the_settings_say() -> None:
    view = view_of(100, 50, 3)
    assert plan_round(view, bytes_of_round(view, 10)).ends == {0: 60}


async def test_a_new_table_of_many_keys_needs_few_rounds(lake: TypedLake) -> None:
    scene = CurrentLake(lake, await lake.create(table__value__mode="raw", table__current__buckets="2"))
    randomness = random.Random(1)
    for number in range(FILE_COUNT):
        records = [(b"%d-%d" % (number, key), randomness.randbytes(VALUE_BYTES)) for key in range(KEYS_PER_FILE)]
        await scene.send(*records)
        await lake.compact(scene.view)
    await scene.alter(table__current="on", table__current__freshness_ms="1000")
    current = CurrentSettings(pause_ms=20, retry_max_ms=100, round_bytes_max=VALUE_BYTES * KEYS_PER_FILE)
    await scene.update(replace(settings(), current=current))

    def round_count() -> int:
        table = lake.tables.lookup().find(scene.derived)
        assert table is not None
        return len(table.metadata.snapshots)

    assert await lake.tables.run("rounds", round_count) <= 10
    assert await scene.newest() == await scene.expected()
