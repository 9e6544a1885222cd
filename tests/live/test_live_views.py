"""Views of tables: every acknowledged record exactly once, while the log grows and compaction moves on."""

import asyncio
import gc
import json
import random
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import Clock, ManualClock
from bearlake.compaction.settings import ColumnSettings
from bearlake.errors import NotFound, Overloaded, Unavailable
from bearlake.live.catalog import LiveCatalog
from bearlake.live.settings import TAIL_PREFIX, LiveSettings
from bearlake.live.sweep import sweep
from bearlake.metadata.compaction import OffsetRange
from bearlake.objects import ByteRange, ObjectStore
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas.model import SchemaType
from bearlake.table.warehouse.model import Answer, Refused
from bearlake.wal.keys import KeySource
from fixtures.live_lake import Dated, LiveLake, live_lake
from fixtures.transactional import TransactionalWriter

RAW = {"table__value__mode": "raw"}


async def tail_keys(lake: LiveLake) -> set[str]:
    """The objects that views have written."""
    return {found.key async for found in lake.lake.stores.store.list(TAIL_PREFIX)}


async def test_records_are_there_before_the_first_compaction_and_each_once_after_it(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        assert await lake.offsets(view) == []
        await lake.lake.produce(view, b"0", b"1")
        assert await lake.offsets(view) == [0, 1]
        await lake.lake.compact(view)
        assert await lake.offsets(view) == [0, 1]
        await lake.lake.produce(view, b"2")
        assert await lake.offsets(view) == [0, 1, 2]
        await lake.lake.produce(view, b"3")
        assert [(row["_offset"], row["_value"]) for row in await lake.rows(view)] == [
            (offset, str(offset).encode()) for offset in range(4)
        ]


async def test_readers_see_what_was_acknowledged_while_compaction_runs(tmp_path: Path) -> None:
    """A record is acknowledged, a reader loads: the record is there, and no offset is missing or twice."""
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        is_over = False

        async def over() -> bool:
            return is_over

        worker = asyncio.create_task(lake.lake.work(over))
        try:
            for count in range(1, 60):
                await lake.lake.produce(view, str(count).encode())
                assert await lake.offsets(view) == list(range(count))
        finally:
            is_over = True
            await worker


async def test_open_and_aborted_transactions_are_not_visible(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"before")
        writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        await writer.send(b"open")
        await lake.lake.produce(view, b"behind")
        assert [row["_value"] for row in await lake.rows(view)] == [b"before"]
        await writer.end()
        assert [row["_value"] for row in await lake.rows(view)] == [b"before", b"open", b"behind"]
        await writer.aborted(b"aborted")
        await lake.lake.produce(view, b"last")
        assert [row["_value"] for row in await lake.rows(view)] == [b"before", b"open", b"behind", b"last"]
        await lake.lake.compact(view)
        assert [row["_value"] for row in await lake.rows(view)] == [b"before", b"open", b"behind", b"last"]


async def test_stable_records_before_an_open_transaction_of_the_same_slice_are_visible(tmp_path: Path) -> None:
    """One object, one slice: a plain batch, then one of an open transaction."""
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        await asyncio.gather(lake.lake.produce(view, b"plain"), writer.send(b"open"))
        key = view.stream.partition(0)
        located = await lake.lake.stores.metadata.log.locate(key, 0, limit=10)
        assert [found.slice.record_count for found in located.slices] == [2], "both batches are in one slice"

        assert [row["_value"] for row in await lake.rows(view)] == [b"plain"]
        await writer.end()
        assert [row["_value"] for row in await lake.rows(view)] == [b"plain", b"open"]


async def test_a_reader_with_nothing_new_gets_the_same_view_and_nothing_is_written(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        first = await lake.live.load(view.stream.number)
        keys = await tail_keys(lake)

        again = await lake.live.load(view.stream.number)

        assert again.version == first.version
        assert await tail_keys(lake) == keys


async def test_readers_that_share_a_view_share_its_manifests(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")

        answers = await asyncio.gather(*(lake.live.load(view.stream.number) for _ in range(20)))

        assert len({answer.version for answer in answers}) == 1
        assert len(await tail_keys(lake)) == 3


async def test_an_answer_that_is_too_large_to_remember_is_composed_again_and_nothing_is_written(tmp_path: Path) -> None:
    async with live_lake(tmp_path, answer_bytes_max=1) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        await lake.live.load(view.stream.number)
        keys = await tail_keys(lake)
        gc.collect()
        answers = [found.version for found in gc.get_objects() if isinstance(found, Answer)]
        assert not [version for version in answers if any(key.startswith(version) for key in keys)]

        assert await lake.offsets(view) == [0]
        assert await tail_keys(lake) == keys


async def test_the_same_view_has_the_same_id_and_rows_on_another_server(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0", b"1")
        other = LiveLake(lake.lake, type(lake.live)(*other_parts(lake)))
        first, second = [json.loads((await server.live.load(view.stream.number)).body) for server in (lake, other)]
        await lake.lake.compact(view)

        assert first["metadata"]["current-snapshot-id"] == second["metadata"]["current-snapshot-id"]
        assert await lake.read(first) == await lake.read(second)
        assert len(await lake.read(first)) == 2
        await other.live.close()


async def test_snapshots_of_a_view_are_older_than_its_load(tmp_path: Path) -> None:
    async with live_lake(tmp_path, clock_margin_ms=2_000) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        await lake.lake.compact(view)
        await lake.lake.produce(view, b"1")
        metadata = json.loads((await lake.live.load(view.stream.number)).body)["metadata"]

    times = {found["snapshot-id"]: found["timestamp-ms"] for found in metadata["snapshots"]}
    newest = times.pop(metadata["current-snapshot-id"])
    assert newest == lake.lake.stores.clock.now_ms() - 2_000
    assert all(time < newest for time in times.values())
    assert metadata["metadata-log"] == []


async def test_typed_values_have_the_columns_that_compaction_will_give_them(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create()
        number = await lake.lake.register(schema)
        head = b"\0" + number.to_bytes(4, "big")
        await lake.lake.produce(view, head + b"\x02", head + b"\x04")
        before = await lake.rows(view)
        await lake.lake.compact(view)
        after = await lake.lake.rows(view)

    assert [row["id"] for row in before] == [1, 2]
    assert before == after


async def test_values_of_protobuf_schemas_have_columns_too(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create()
        text = 'syntax = "proto3"; message Order { int64 id = 1; }'
        number = await lake.lake.register(text, type_=SchemaType.PROTOBUF)
        await lake.lake.produce(view, b"\0" + number.to_bytes(4, "big") + b"\0" + b"\x08\x07")
        before = await lake.rows(view)
        await lake.lake.compact(view)

        assert [row["id"] for row in before] == [7]
        assert before == await lake.lake.rows(view)


async def test_a_stream_without_a_table_has_no_view(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(table__enable="false", **RAW)
        await lake.lake.produce(view, b"0")

        with pytest.raises(NotFound, match=r"table\.enable"):
            await lake.live.load(view.stream.number)


async def test_a_deleted_stream_has_no_view(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.streams.delete(ANONYMOUS, view.stream)

        with pytest.raises(NotFound):
            await lake.live.load(view.stream.number)


async def test_a_tail_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    async with live_lake(tmp_path, tail_bytes_max=100) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"x" * 200)

        with pytest.raises(Overloaded, match="compaction is behind"):
            await lake.live.load(view.stream.number)


async def test_the_limit_of_a_tail_counts_what_earlier_views_have_written(tmp_path: Path) -> None:
    async with live_lake(tmp_path, tail_bytes_max=700) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, *[b"x" * 100] * 3)
        assert await lake.offsets(view) == [0, 1, 2]
        await lake.lake.produce(view, b"x" * 300)

        with pytest.raises(Overloaded, match="compaction is behind"):
            await lake.live.load(view.stream.number)


async def test_a_build_goes_on_with_the_pieces_of_one_that_failed(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        stores = lake.lake.stores
        store: Any = Failing(stores.store, at=3)
        settings = LiveSettings(piece_bytes_max=1)
        lake.live = LiveCatalog(stores.metadata, store, lake.lake.tables, ColumnSettings(), settings, stores.clock)
        view = await lake.lake.create(**RAW)
        for number in range(6):
            await lake.lake.produce(view, str(number).encode())
        with pytest.raises(Unavailable):
            await lake.live.load(view.stream.number)

        assert await lake.offsets(view) == list(range(6))
        assert store.count == 6 + 1, "the third piece twice, and no other"
        await lake.lake.produce(view, b"6")
        assert await lake.offsets(view) == list(range(7))
        assert store.count == 7 + 1
        await lake.live.close()


class Failing:
    """An object store whose put number `at` fails. Passes all else on to `inner`."""

    def __init__(self, inner: ObjectStore, at: int) -> None:
        self._inner = inner
        self._at = at
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, key: str, *parts: Any) -> None:
        """Put, or fail."""
        self.count += 1
        if self.count == self._at:
            raise Unavailable(f"put {self.count} fails")
        await self._inner.put(key, *parts)


async def test_old_pieces_are_swept_and_those_of_young_views_stay(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        await lake.live.load(view.stream.number)
        clock, settings = lake.lake.stores.clock, LiveSettings()
        store: Any = Dated(lake.lake.stores.store, clock)
        times = [found.modified_ms async for found in store.list(TAIL_PREFIX)]

        clock.advance(min(times) + settings.life_ms - clock.now_ms())
        assert await sweep(store, settings, clock, keys_of(clock)) == 0
        clock.advance(max(times) - min(times) + 1)
        assert await sweep(store, settings, clock, keys_of(clock)) == 3
        assert await tail_keys(lake) == set()


@pytest.mark.parametrize("seed", range(5))
async def test_the_files_of_a_view_exist_as_long_as_promised_after_each_load(tmp_path: Path, seed: int) -> None:
    """Loads at random times, without new records or with them; every old object is swept at once."""
    rng = random.Random(seed)
    async with live_lake(tmp_path) as lake:
        stores = lake.lake.stores
        clock, settings = stores.clock, LiveSettings()
        store: Any = Dated(stores.store, clock)
        lake.live = LiveCatalog(stores.metadata, store, lake.lake.tables, ColumnSettings(), settings, clock)
        lake.lake.tables.bridge.store = store
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        count, loaded = 1, list[tuple[int, int, Any]]()
        for _ in range(25):
            if rng.random() < 0.3:
                await lake.lake.produce(view, b"more")
                count += 1
            document = json.loads((await lake.live.load(view.stream.number)).body)
            loaded.append((clock.now_ms(), count, document))
            clock.advance(rng.choice([60_000, 600_000, settings.reuse_ms - 1, settings.reuse_ms]))
            await sweep(store, settings, clock, keys_of(clock))
            loaded = [entry for entry in loaded if entry[0] + settings.keep_ms >= clock.now_ms()]
            for _, row_count, known in loaded:
                assert len(await lake.read(known)) == row_count
        await lake.live.close()


async def test_a_server_whose_clock_is_hours_ahead_deletes_nothing_that_a_view_names(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        stores = lake.lake.stores
        store: Any = Dated(stores.store, stores.clock)
        settings = LiveSettings()
        live = LiveCatalog(stores.metadata, store, lake.lake.tables, ColumnSettings(), settings, stores.clock)
        lake.lake.tables.bridge.store = store
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        document = json.loads((await live.load(view.stream.number)).body)
        wrong = ManualClock(stores.clock.now_ms() + 12 * 3_600_000)

        assert await sweep(store, settings, wrong, keys_of(wrong)) == 0
        await live.close()
        assert len(await lake.read(document)) == 1
        assert len(await tail_keys(lake)) == 3, "nothing is left of the question for the store's time"


async def test_a_tail_of_too_many_slices_is_refused_before_all_of_them_are_read(tmp_path: Path) -> None:
    async with live_lake(tmp_path, tail_slice_count_max=2) as lake:
        view = await lake.lake.create(**RAW)
        for value in (b"0", b"1", b"2", b"3", b"4"):
            await lake.lake.produce(view, value)
        asked = list[int | None]()
        slices = lake.lake.stores.metadata.log.slices

        async def counted(ranges: Any, *, count_max: int | None = None) -> Any:
            asked.append(count_max)
            return await slices(ranges, count_max=count_max)

        lake.lake.stores.metadata.log.slices = counted  # type: ignore[method-assign]
        with pytest.raises(Overloaded, match="tail_slice_count_max = 2"):
            await lake.live.load(view.stream.number)

        assert asked == [3]
        assert len(await slices([OffsetRange(view.stream.partition(0), 0, 5)], count_max=3)) == 3


async def test_a_damaged_batch_fails_the_loads_of_its_table_and_says_where_it_is_until_it_is_trimmed(
    tmp_path: Path,
) -> None:
    async with live_lake(tmp_path) as lake:
        stores, view = lake.lake.stores, await lake.lake.create(**RAW)
        for value in (b"0", b"1", b"2"):
            await lake.lake.produce(view, value)
        located = (await stores.metadata.log.slices([OffsetRange(view.stream.partition(0), 1, 2)]))[0]
        (octets,) = await stores.store.read(located.object_key, [ByteRange(0, located.object_size)])
        damaged = bytearray(octets)
        damaged[located.slice.position + located.slice.length - 1] ^= 1
        await stores.store.delete([located.object_key])
        await stores.store.put(located.object_key, [bytes(damaged)])

        with pytest.raises(
            Refused, match=r"tail of orders is damaged: partition 0 from offset 1 on, object wal/"
        ) as found:
            await lake.live.load(view.stream.number)
        assert found.value.status == 500
        await lake.lake.streams.trim(ANONYMOUS, "orders", 0, 2)
        assert await lake.offsets(view) == [2]


def keys_of(clock: Clock) -> KeySource:
    """Keys of a server that sweeps."""
    return KeySource(clock, random.SystemRandom().getrandbits, TAIL_PREFIX)


def other_parts(lake: LiveLake) -> tuple[object, ...]:
    """What another server's live views are made from."""
    stores = lake.lake.stores
    return stores.metadata, stores.store, lake.lake.tables, ColumnSettings(), LiveSettings(), stores.clock
