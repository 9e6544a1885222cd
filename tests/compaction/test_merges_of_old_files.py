"""Merges take files of versions without CRCs, and refuse those whose footer cannot be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.task import run
from bearlake.errors import Corrupt
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.codec import Record
from bearlake.table import file_tail
from fixtures.compaction_items import Wal, merge_item, read_tables, read_whole, workbench
from fixtures.file_ends import with_impossible_position, without_crcs

TIME_MS = 1_700_000_000_000


async def two_files(store: MemoryObjectStore) -> list[ItemResult]:
    """Two data files of one partition, of 20 records each."""
    results = []
    wal = Wal(store)
    for file in range(2):
        known = len(wal.slices)
        await wal.put({0: [codec.encode([Record(value=b"%d-%d" % (file, at), timestamp=TIME_MS) for at in range(20)])]})
        item = replace(wal.item(), slices=wal.slices[known:])
        results.append(await run(item, store, workbench(seed=file)))
    return results


async def merge_with(change: Callable[[bytes], bytes], store: MemoryObjectStore) -> tuple[WorkItem, list[Any]]:
    """A merge of two files, of which the first one is changed; and the rows of both."""
    results = await two_files(store)
    rows = [row for result in results for table in await read_tables(store, result) for row in table.to_pylist()]
    old = results[0].files[0].swap.object
    content = change(await read_whole(store, old))
    await store.put("earlier.parquet", [content])
    item = merge_item(results)
    slices = [
        located._replace(object_key="earlier.parquet", object_size=len(content))
        if located.object_key == old.key
        else located
        for located in item.slices
    ]
    inputs = {located.object_key: located.object for located in slices}
    return replace(item, slices=slices, inputs=list(inputs.values())), rows


async def test_a_file_without_crcs_and_one_with_them_become_one_with_crcs() -> None:
    store = MemoryObjectStore()
    item, rows = await merge_with(without_crcs, store)

    merged = await run(item, store, workbench())

    (written,) = merged.files
    content = await read_whole(store, written.swap.object)
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == rows
    assert file_tail.split(memoryview(content)).crcs is not None


async def test_a_merge_refuses_a_page_before_the_file() -> None:
    store = MemoryObjectStore()
    item, _ = await merge_with(with_impossible_position, store)

    with pytest.raises(Corrupt, match="unexpected content"):
        await run(item, store, workbench())
