import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.moving import Moving
from bearlake.compaction.segments import ranges_of
from bearlake.compaction.task import run
from bearlake.errors import Corrupt, NotFound
from bearlake.metadata.model import LocatedSlice, Slice
from bearlake.objects import ObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.codec import Record
from bearlake.table.rows import Keys
from fixtures.compaction_items import Wal, key_of, merge_item, read_tables, read_whole, served, workbench

TIME_MS = 1_700_000_000_000


def batch(randomness: random.Random, count: int) -> bytes:
    return codec.encode(
        [
            Record(key=b"k%d" % at, value=randomness.randbytes(randomness.randrange(200)), timestamp=TIME_MS + at)
            for at in range(count)
        ]
    )


def inexact() -> bytes:
    return codec.encode([Record(value=b"v", headers=(("caf\udce9", b"1"),), timestamp=TIME_MS)])


async def small_files(
    store: ObjectStore, *, seed: int, file_count: int, partition_count: int, inexact_every: int = 0
) -> list[ItemResult]:
    """Results of COMPACT items, each with one WAL object."""
    randomness = random.Random(seed)
    wal = Wal(store)
    results = []
    for turn in range(file_count):
        seen = set(wal.slices)
        batches = {
            index: [batch(randomness, randomness.randrange(1, 30)) for _ in range(randomness.randrange(1, 5))]
            for index in range(partition_count)
        }
        if inexact_every and turn % inexact_every == 0:
            for index in range(0, partition_count, 2):
                batches[index].insert(randomness.randrange(len(batches[index]) + 1), inexact())
        await wal.put(batches)
        item = wal.item(row_group_bytes=4000)
        fresh = [located for located in wal.slices if located not in seen]
        results.append(await run(_with_slices(item, fresh), store, workbench(seed=turn)))
    return results


def _with_slices(item: WorkItem, slices: Sequence[LocatedSlice]) -> WorkItem:
    return replace(item, slices=slices)


async def all_rows(store: ObjectStore, results: list[ItemResult]) -> list[dict[str, Any]]:
    rows = [row for result in results for table in await read_tables(store, result) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition_id"], row["_offset"]))


def segments(results: list[ItemResult]) -> list[Slice]:
    return [piece for result in results for written in result.files for piece in written.swap.slices]


@pytest.mark.parametrize("merge_bytes", [10_000_000, 30_000, 1])
@pytest.mark.parametrize(("seed", "partition_count", "inexact_every"), [(1, 1, 0), (2, 7, 0), (3, 5, 3), (4, 60, 2)])
async def test_a_merge_keeps_all_rows_and_batches_in_order_with_any_memory_limit(
    seed: int, partition_count: int, inexact_every: int, merge_bytes: int
) -> None:
    store = MemoryObjectStore()
    small = await small_files(
        store, seed=seed, file_count=9, partition_count=partition_count, inexact_every=inexact_every
    )

    result = await run(
        merge_item(small, row_group_bytes=20_000, file_bytes_max=60_000), store, workbench(merge_bytes=merge_bytes)
    )

    tables = await read_tables(store, result)
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows == await all_rows(store, small)
    assert ranges_of(segments([result])) == ranges_of(segments(small))
    before = [await served(store, result_) for result_ in small]
    after = await served(store, result)
    rows_before = {at: batch for found in before for at, batch in found.items() if isinstance(batch, list)}
    assert after == rows_before
    assert sum(piece.length for piece in segments([result])) == sum(piece.length for piece in segments(small))
    for written in result.files:
        footer = pq.ParquetFile(pa.BufferReader(await read_whole(store, written.swap.object))).metadata
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        if merge_bytes > 1000:
            assert max(group.total_byte_size for group in groups) < 22_000


async def test_segments_that_become_adjacent_in_one_file_are_joined() -> None:
    store = MemoryObjectStore()
    small = await small_files(store, seed=5, file_count=6, partition_count=3)

    result = await run(merge_item(reversed(small)), store, workbench())

    (written,) = result.files
    assert [piece.partition for piece in written.swap.slices] == [key_of(0), key_of(1), key_of(2)]
    assert len(segments(small)) == 18


async def test_files_whose_offsets_interleave_are_sorted() -> None:
    store = MemoryObjectStore()
    small = await small_files(store, seed=6, file_count=6, partition_count=2)
    odd = await run(merge_item(small[1::2]), store, workbench(seed=70))

    result = await run(merge_item([*small[0::2], odd]), store, workbench(seed=71, merge_bytes=3000))

    (table,) = await read_tables(store, result)
    assert table.to_pylist() == await all_rows(store, small)
    assert len(segments([result])) == 2


async def test_rows_that_the_index_no_longer_names_are_moved_too() -> None:
    store = MemoryObjectStore()
    small = await small_files(store, seed=7, file_count=3, partition_count=2)
    item = merge_item(small)
    kept = [located for located in item.slices if located.slice.base_offset > 0]

    result = await run(_with_slices(item, kept), store, workbench())

    assert result.row_count == sum(result_.row_count for result_ in small)
    assert ranges_of(segments([result])) == ranges_of(located.slice for located in kept)


async def test_a_missing_input_is_not_found() -> None:
    store = MemoryObjectStore()
    small = await small_files(store, seed=8, file_count=2, partition_count=1)
    await store.delete([small[0].files[0].file.key])

    with pytest.raises(NotFound):
        await run(merge_item(small), store, workbench())


async def test_a_segment_without_rows_is_corrupt() -> None:
    store = MemoryObjectStore()
    small = await small_files(store, seed=9, file_count=2, partition_count=1)
    item = merge_item(small)
    beyond = item.slices[-1]._replace(slice=item.slices[-1].slice._replace(base_offset=10_000))

    with pytest.raises(Corrupt, match="no row of segment"):
        await run(_with_slices(item, [*item.slices, beyond]), store, workbench())


def keys(*pairs: tuple[int, int]) -> Keys:
    partitions, offsets = zip(*pairs, strict=True)
    return Keys(pa.table({"_partition_id": pa.array(partitions, pa.int32()), "_offset": pa.array(offsets, pa.int64())}))


def test_a_segment_is_cut_at_the_end_of_a_file_and_its_bytes_are_divided() -> None:
    moving = Moving([Slice(key_of(0), 0, 10, 5, 1001, 7)])
    moving.add_group(keys((0, 0), (0, 3)), 0)

    first = moving.end_file((0, 4))
    moving.add_group(keys((0, 4), (0, 8)), 0)
    second = moving.end_file(None)

    assert first == [Slice(key_of(0), 0, 4, 0, 400, 7)]
    assert second == [Slice(key_of(0), 4, 6, 0, 601, 7)]


def test_a_gap_at_the_end_of_a_segment_stays_in_it_when_the_file_ends() -> None:
    moving = Moving([Slice(key_of(0), 0, 10, 5, 1000, 7), Slice(key_of(1), 0, 2, 9, 10, 8)])
    moving.add_group(keys((0, 0), (0, 3)), 0)

    first = moving.end_file((1, 0))
    moving.add_group(keys((1, 0)), 0)

    assert first == [Slice(key_of(0), 0, 10, 0, 1000, 7)]
    assert moving.end_file(None) == [Slice(key_of(1), 0, 2, 0, 10, 8)]
