"""Random rounds of a current table, against a model row by row: any records, any cuts, any number of items, keys in several partitions."""

import asyncio
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.compaction.current_rounds import Round, half_of, items_of, plan_round, state_after
from bearlake.compaction.encoding import decode_item, decode_item_result, encode_item, encode_item_result
from bearlake.compaction.settings import CompactionSettings, CurrentSettings, MergeSettings, WorkerSettings
from bearlake.compaction.task import run
from bearlake.compaction.workbench import TaskLimits, Workbench
from bearlake.errors import Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.current_rules import CurrentRules, Envelope
from bearlake.table import current_rows
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_model import CurrentFile, CurrentState, CurrentView, SourceFile
from bearlake.table.current_rows import RowFile, parse_file
from bearlake.table.file_budget import FileBudget
from bearlake.table.schema import ARROW_SCHEMA
from fixtures.current_lake import Key, Row, newest_of
from fixtures.file_ends import with_impossible_position
from fixtures.tables import a_stream
from fixtures.typed_values import ValueFile

EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
KEYS = [b"", b"\0", b"a", b"aa", b"\xff", b"k0", b"k1", b"k" * 300]
Sent = tuple[int, bytes | None, bytes | None, int]
"""Partition index, key, value, timestamp (ms after `EPOCH`)."""

RECORD = st.tuples(
    st.integers(0, 2),
    st.sampled_from([None, *KEYS]),
    st.one_of(st.none(), st.binary(max_size=4)),
    st.integers(0, 5),
)


@dataclass
class Table:
    """A stream's data files, and its current table, without a catalog."""

    bucket_count: int
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    rows: list[dict[str, Any]] = field(default_factory=list)
    sources: list[SourceFile] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    files: list[CurrentFile] = field(default_factory=list)
    current_ends: Mapping[int, int] = field(default_factory=dict)
    state: CurrentState | None = None
    round_count: int = 0
    memory_bytes: int = 1 << 30
    limits: TaskLimits = field(default_factory=TaskLimits)

    async def add(self, records: Sequence[Sent]) -> None:
        """Add a data file of the stream."""
        made = []
        for index, key, value, at in records:
            offset = self.ends.get(index, 0)
            self.ends[index] = offset + 1
            time = EPOCH + timedelta(milliseconds=at)
            made.append(
                {
                    "_partition_id": index,
                    "_offset": offset,
                    "_timestamp": time,
                    "_key": key,
                    "_value": value,
                    "_headers": [],
                }
            )
        made.sort(key=lambda row: (row["_partition_id"], row["_offset"]))
        self.rows += made
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pylist(made, schema=ARROW_SCHEMA)
        pq.write_table(table, sink, row_group_size=3, store_schema=False)
        content = sink.getvalue().to_pybytes()
        key = f"table/s/t/data/{len(self.sources):06d}.parquet"
        await self.store.put(key, [content])
        offsets, indices = [row["_offset"] for row in made], [row["_partition_id"] for row in made]
        self.sources.append(
            SourceFile(
                key=key,
                size=len(content),
                partition_min=min(indices),
                partition_max=max(indices),
                offset_min=min(offsets),
                offset_max=max(offsets),
            )
        )

    def view(self) -> CurrentView:
        """Both tables as a round sees them."""
        return CurrentView(
            table="",
            column_ids=frozenset(),
            location_key="table/s/t_current",
            snapshot_id=None,
            starts=self.current_ends,
            ends=dict(self.ends),
            sources=self.sources,
            files=self.files,
            state=self.state,
            bucket_count=self.bucket_count,
            source="",
            source_snapshot=0,
            sequence=0,
        )

    async def update(self, config: CompactionSettings, *, cut: int | None = None) -> bool:
        """Make a round, up to an offset if there is a `cut`. False: its records take too much memory, and nothing has changed."""
        view = self.view()
        found = plan_round(view, config.current.round_bytes_max)
        if cut is not None:
            ends = {index: max(view.starts.get(index, 0), min(end, cut)) for index, end in view.ends.items()}
            found = Round(ends=ends, sources=self.sources, is_whole=False)
        rules = CurrentRules(
            bucket_count=self.bucket_count,
            envelope=Envelope.NONE,
            freshness_ms=0,
            remember_ms=1_000,
            loses_tombstones=False,
        )
        self.round_count += 1
        items = items_of(a_stream(), view, found, rules, CurrentColumns(), config, f"{self.round_count:04x}")
        bits = random.Random(self.round_count).getrandbits
        limits = replace(self.limits, current_bytes=self.memory_bytes)
        bench = Workbench(random_bits=bits, limits=limits)
        results = []
        for item in items:
            result = await run(decode_item(encode_item(item)), self.store, bench)
            results.append(decode_item_result(encode_item_result(result)))
        if any(result.exceeds_memory for result in results):
            return False
        unchanged = {key for result in results for key in result.unchanged}
        self.files = [file for file in self.files if file.key in unchanged]
        for result in results:
            for written, bucket in zip(result.files, result.buckets, strict=True):
                self.files.append(CurrentFile(key=written.file.key, size=written.file.size, bucket=bucket))
        self.current_ends = found.ends
        newest_us = max(result.newest_us for result in results)
        self.state = state_after(view, found, rules, round_id="", newest_us=newest_us, now_ms=self.round_count)
        return True

    async def newest(self) -> dict[Key, Row]:
        """The current table's rows by key."""
        found: dict[Key, Row] = {}
        for file in self.files:
            size = await self.store.size(file.key)
            (content,) = await self.store.read(file.key, [(0, size)])  # type: ignore[list-item]
            for row in pq.read_table(pa.BufferReader(content)).to_pylist():
                assert row["_key"] not in found, "a key has two rows"
                found[row["_key"]] = (row["_partition_id"], row["_offset"], row["_value"])
        return found

    def expected(self) -> dict[Key, Row]:
        """The newest records below the current table's ends."""
        return newest_of(self.rows, self.current_ends)


def config_of(
    *, item_bytes: int = 1 << 20, round_bytes: int = 1 << 20, file_bytes: int = 1 << 20
) -> CompactionSettings:
    """Settings that split the work as a test likes."""
    return CompactionSettings(
        current=CurrentSettings(item_bytes_max=item_bytes, round_bytes_max=round_bytes),
        merge=MergeSettings(file_bytes=file_bytes),
        worker=WorkerSettings(row_group_bytes=64),
    )


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.lists(RECORD, min_size=1, max_size=8), max_size=3), st.one_of(st.none(), st.integers(0, 6))
        ),
        min_size=1,
        max_size=6,
    ),
    bucket_count=st.sampled_from([1, 2, 5]),
    item_bytes=st.sampled_from([1, 1 << 20]),
    file_bytes=st.sampled_from([1, 1 << 20]),
)
def test_any_rounds_lead_to_the_newest_record_of_each_key(
    rounds: list[tuple[list[list[Sent]], int | None]], bucket_count: int, item_bytes: int, file_bytes: int
) -> None:
    async def check() -> None:
        table = Table(bucket_count)
        for files, cut in rounds:
            for records in files:
                await table.add(records)
            await table.update(config_of(item_bytes=item_bytes, file_bytes=file_bytes), cut=cut)
            assert await table.newest() == table.expected()
        await table.update(config_of())
        assert table.current_ends == table.ends
        assert await table.newest() == table.expected()

    asyncio.run(check())


@settings(max_examples=20, deadline=None)
@given(files=st.lists(st.lists(RECORD, min_size=1, max_size=10), min_size=1, max_size=6), share=st.integers(1, 4_000))
def test_rounds_that_take_few_bytes_come_to_the_same_end(files: list[list[Sent]], share: int) -> None:
    async def check() -> None:
        table = Table(3)
        for records in files:
            await table.add(records)
        for _ in range(400):
            await table.update(config_of(round_bytes=share))
            assert await table.newest() == table.expected()
            if table.current_ends == table.ends:
                return
        raise AssertionError(f"no end: {table.current_ends} of {table.ends}")

    asyncio.run(check())


def test_buckets_without_new_records_keep_their_files() -> None:
    async def check() -> None:
        table = Table(64)
        await table.add([(0, b"k%d" % number, b"1", 0) for number in range(200)])
        await table.update(config_of())
        before = {file.key for file in table.files}
        await table.add([(0, b"k7", b"2", 0)])
        await table.update(config_of())

        assert len(before - {file.key for file in table.files}) == 1
        assert len(table.files) == len(before)
        assert (await table.newest())[b"k7"] == (0, 200, b"2")

    asyncio.run(check())


def test_a_late_older_record_of_another_partition_neither_wins_nor_revives_a_deleted_key() -> None:
    async def check() -> None:
        table = Table(1)
        await table.add(
            [(1, b"gone", b"1", 3), (1, b"gone", None, 1), (1, b"here", b"new", 3), (1, b"here", b"newer", 1)]
        )
        await table.update(config_of())
        await table.add([(0, b"gone", b"late", 2), (0, b"here", b"late", 2)])
        await table.update(config_of())

        assert await table.newest() == {b"here": (1, 3, b"newer")}
        assert await table.newest() == table.expected()

    asyncio.run(check())


def test_a_round_whose_records_take_too_much_memory_is_made_again_with_fewer() -> None:
    async def check() -> None:
        table = Table(2, memory_bytes=200_000)
        for start in range(0, 40, 10):
            await table.add([(0, b"k%d" % number, bytes(20_000), 0) for number in range(start, start + 10)])
        wanted, sizes = 1 << 20, []
        while table.current_ends != table.ends:
            if await table.update(config_of(round_bytes=wanted)):
                sizes.append(wanted)
                assert await table.newest() == table.expected()
            else:
                wanted = half_of(table.view(), wanted)

        assert len(sizes) > 1
        with pytest.raises(Invalid, match=r"compaction\.task\.current_bytes"):
            half_of(table.view(), 1)

    asyncio.run(check())


async def expanding(table: Table, record_count: int, value: pa.Array) -> None:
    """Add a small file of another engine whose records all have the same value, of any size, as an index into a dictionary."""
    count = range(record_count)
    columns = {
        "_partition_id": pa.array([0 for _ in count], pa.int32()),
        "_offset": pa.array(count, pa.int64()),
        "_timestamp": pa.array(count, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "_key": pa.array([b"k%d" % (at % 20) for at in count]),
        "_value": pa.DictionaryArray.from_arrays(pa.array([0 for _ in count], pa.int32()), value),
    }
    fields = [
        pa.field(name, column.type, metadata=ARROW_SCHEMA.field(name).metadata) for name, column in columns.items()
    ]
    sink = pa.BufferOutputStream()
    rows = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    pq.write_table(rows, sink, store_schema=False, compression="zstd")
    content = sink.getvalue().to_pybytes()
    assert len(content) < 50_000
    await table.store.put("expanding.parquet", [content])
    table.ends = {0: record_count}
    source = SourceFile(
        key="expanding.parquet",
        size=len(content),
        partition_min=0,
        partition_max=0,
        offset_min=0,
        offset_max=record_count - 1,
    )
    table.sources.append(source)


def test_a_small_file_that_stands_for_many_bytes_takes_little_memory() -> None:
    async def check() -> None:
        value = bytes(100_000)
        table = Table(1, memory_bytes=8_000_000)
        await expanding(table, 2_000, pa.array([value]))
        before = pa.default_memory_pool()
        counting = pa.proxy_memory_pool(before)
        pa.set_memory_pool(counting)
        try:
            assert await table.update(config_of())
        finally:
            pa.set_memory_pool(before)

        assert await table.newest() == {b"k%d" % (at % 20): (0, at, value) for at in range(1_980, 2_000)}
        assert counting.max_memory() < 32_000_000

    asyncio.run(check())


def test_a_record_that_takes_too_much_memory_is_named_with_its_file_column_and_setting() -> None:
    async def check() -> None:
        table = Table(1, memory_bytes=8_000_000)
        await expanding(table, 100, pa.array([bytes(10_000_000)]))

        with pytest.raises(
            Invalid, match=r"^expanding\.parquet: .* column _value; .* compaction\.task\.current_bytes, 8000000"
        ):
            await table.update(config_of())

    asyncio.run(check())


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        (
            TaskLimits(current_group_bytes=100),
            r"row group 0: it takes \d+ bytes of the file; .*current_group_bytes, 100 ",
        ),
        (TaskLimits(current_footer_bytes=9), r"its footer takes \d+ bytes; .*current_footer_bytes, 9 bytes"),
    ],
)
def test_a_row_group_or_a_footer_that_is_too_large_is_refused_with_its_file_and_setting(
    limits: TaskLimits, refused: str
) -> None:
    async def check() -> None:
        table = Table(1)
        table.limits = limits
        await table.add([(0, b"a", bytes(range(256)) * 4 * at, 0) for at in range(20)])

        with pytest.raises(Invalid, match=rf"^table/s/t/data/000000\.parquet: .*{refused}"):
            await table.update(config_of())

    asyncio.run(check())


def test_columns_beyond_the_end_of_the_file_are_damage() -> None:
    async def check() -> None:
        table = Table(1)
        await table.add([(0, random.Random(1).randbytes(9_000), b"v", 0)])
        key = table.sources[0].key
        (content,) = await table.store.read(key, [ByteRange(0, table.sources[0].size)])
        cut = bytes(content[:4]) + bytes(content[-int.from_bytes(content[-8:-4], "little") - 8 :])
        await table.store.delete([key])
        await table.store.put(key, [cut])
        table.sources[0] = replace(table.sources[0], size=len(cut))

        with pytest.raises(
            Corrupt,
            match=r"^table/s/t/data/000000\.parquet: data file: its column chunks have more bytes than the file",
        ):
            await table.update(config_of())

    asyncio.run(check())


def test_a_round_that_does_not_reach_the_end_keeps_the_time_of_the_last_one_that_did() -> None:
    async def check() -> None:
        table = Table(1)
        await table.add([(0, b"a", b"1", 0), (0, b"b", b"1", 0)])
        await table.update(config_of(), cut=1)  # the first round of all
        assert table.state is not None
        assert (table.state.at_ms, table.state.is_whole) == (1, False)
        await table.update(config_of())
        assert (table.state.at_ms, table.state.is_whole) == (2, True)
        await table.add([(0, b"a", b"2", 0), (0, b"b", None, 0)])
        await table.update(config_of(), cut=3)

        assert (table.state.at_ms, table.state.is_whole) == (2, False)

    asyncio.run(check())


async def test_a_round_refuses_a_file_with_a_page_before_its_beginning() -> None:
    table = Table(bucket_count=1)
    file = ValueFile(None, [[[b"value"]]])
    content = with_impossible_position(b"".join(file.finished.parts))
    await table.store.put("earlier.parquet", [content])
    source = SourceFile(
        key="earlier.parquet", size=len(content), partition_min=0, partition_max=0, offset_min=0, offset_max=0
    )
    table.sources.append(source)
    table.ends[0] = 1

    with pytest.raises(Corrupt, match=r"^earlier\.parquet: "):
        await table.update(config_of())


async def test_a_record_that_has_several_rows_is_damage() -> None:
    table = Table(bucket_count=1)
    await table.add([(0, b"a", b"1", 0), (0, b"b", b"2", 0)])
    (content,) = await table.store.read(table.sources[0].key, [ByteRange(0, table.sources[0].size)])
    await table.store.put("again.parquet", [content])
    table.sources.append(replace(table.sources[0], key="again.parquet"))

    with pytest.raises(Corrupt, match="data files have 4 rows for 2 records"):
        await table.update(config_of())


class CountingStore(MemoryObjectStore):
    """Counts the parsed footers that are in memory whenever something is read."""

    def __init__(self) -> None:
        super().__init__()
        self.count_max = 0
        self.parsed: list[weakref.ref[FileBudget]] = []
        """The budget of each footer, which lives as long as it."""

    def parse(self, tail: memoryview, size: int | None = None) -> RowFile:
        file = parse_file(tail, size)
        self.parsed.append(weakref.ref(file.budget))
        return file

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        found = await super().read(key, ranges)
        self.count_max = max(self.count_max, sum(budget() is not None for budget in self.parsed))
        return list(found)


async def test_the_footers_of_a_rounds_files_are_not_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    monkeypatch.setattr(current_rows, "parse_file", store.parse)
    table = Table(bucket_count=1, store=store)
    for at in range(30):
        await table.add([(0, b"%d" % at, b"v", 0)])

    assert await table.update(config_of())
    assert await table.newest() == table.expected()
    assert len(store.parsed) >= 30
    assert 1 <= store.count_max <= 3
