"""For arbitrary batches, every offset is named once, rows equal what consumers saw, and the rest is kept byte for byte."""

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.compaction.model import ItemResult
from bearlake.compaction.segments import ranges_of
from bearlake.compaction.task import run
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, HEADER_BYTES, Compression
from bearlake.records.codec import Producer, Record
from fixtures.compaction_items import Wal, key_of, merge_item, read_tables, served, workbench

BYTES = st.none() | st.binary(max_size=300)
RECORD = st.builds(
    Record,
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text("aä\0", max_size=3), BYTES), max_size=3).map(tuple),
    timestamp=st.integers(-1, 9_000_000_000_000),
)
PRODUCER = st.builds(Producer, id=st.integers(0, 9), epoch=st.integers(0, 9), base_sequence=st.integers(0, 99))


def _patch(batch: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, kernel.crc32c(changed, 21))
    return bytes(changed)


GOOD = st.builds(
    codec.encode, st.lists(RECORD, min_size=1, max_size=6), codec=st.sampled_from(Compression), producer=PRODUCER
)
STAMPED = st.builds(lambda batch, time: bytes(codec.stamp(batch, time)), GOOD, st.integers(0, 9_000_000_000_000))
CONTROL = GOOD.map(
    lambda _: _patch(codec.encode([Record(value=b"c")]), 21, ">h", ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)
)
BROKEN = st.builds(
    lambda records: _patch(codec.encode(records), HEADER_BYTES, ">b", 127), st.lists(RECORD, min_size=1, max_size=3)
)
INEXACT = st.just(codec.encode([Record(value=b"v", headers=(("\udcff", b"1"),))]))
BATCH = st.one_of(GOOD, GOOD, STAMPED, CONTROL, BROKEN, INEXACT)
OBJECT = st.dictionaries(st.integers(0, 4), st.lists(BATCH, min_size=1, max_size=5), min_size=1, max_size=4)


def expected_rows(batch: bytes) -> list[tuple[Any, ...]]:
    return [
        (record.key, record.value, [{"key": key, "value": value} for key, value in record.headers], record.timestamp)
        for record in codec.decode(batch, 1 << 20)
    ]


def seen_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["_key"], row["_value"], row["_headers"], round(row["_timestamp"].timestamp() * 1000)) for row in rows]


def ranges(results: list[ItemResult]) -> list[tuple[int, int, int]]:
    swaps = [written.swap for result in results for written in result.files]
    swaps += [kept for result in results for kept in result.kept_objects]
    return [(key - key_of(0), start, end) for key, start, end in ranges_of(p for swap in swaps for p in swap.slices)]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(OBJECT, min_size=1, max_size=4),
    st.sampled_from([1, 500, 100_000]),
    st.sampled_from([1, 3000, 10**6]),
    st.sampled_from([1, 700, 10**6]),
)
async def test_every_offset_is_served_as_it_was_written(
    objects: list[dict[int, list[bytes]]], row_group_bytes: int, file_bytes_max: int, window_bytes: int
) -> None:
    store = MemoryObjectStore()
    wal = Wal(store)
    for batches in objects:
        await wal.put(batches)
    item = wal.item(row_group_bytes=row_group_bytes, file_bytes_max=file_bytes_max)

    result = await run(item, store, workbench(window_bytes=window_bytes, kept_bytes=200))

    assert ranges([result]) == [(index, 0, end) for index, end in sorted(wal.ends.items())]
    found = await served(store, result)
    for at, batch in wal.batches.items():
        content = found.pop(at, [])
        is_control = kernel.batches(batch, 0, len(batch))[0][2].attributes & ATTRIBUTE_CONTROL
        if isinstance(content, bytes):
            assert content == batch
        else:
            assert seen_rows(content) == ([] if is_control else expected_rows(batch))
    assert not found
    if result.files:
        await _check_merge(store, result, merge_bytes=window_bytes)


async def _check_merge(store: MemoryObjectStore, result: ItemResult, merge_bytes: int) -> None:
    merged = await run(merge_item([result], row_group_bytes=2000), store, workbench(seed=1, merge_bytes=merge_bytes))

    before = [row for table in await read_tables(store, result) for row in table.to_pylist()]
    after = [row for table in await read_tables(store, merged) for row in table.to_pylist()]
    assert after == before
    only_rows = ItemResult(**{**_fields(result), "kept_objects": []})
    assert ranges([merged]) == ranges([only_rows])
    assert await served(store, merged) == await served(store, only_rows)


def _fields(result: ItemResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ItemResult.__slots__}
