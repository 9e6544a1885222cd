"""Consumers of compacted records get the same records as before (I4, I6), during every step of compaction."""

import asyncio
import random
from array import array
from collections.abc import Sequence

import pytest

from bearlake import kernel
from bearlake.cache.objects import CacheSettings
from bearlake.errors import Corrupt, OutOfRange, Unavailable
from bearlake.metadata.model import ObjectKind, ObjectRef, Slice, partition_key
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, decode, encode
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.history import HistorySettings
from bearlake.streams.history_pieces import BlockPiece
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams, StreamsSettings
from bearlake.table.blocks import Block
from bearlake.table.reader import DataFileSettings
from bearlake.telemetry import metrics
from fixtures.deployment import NOW_MS, append, batch_of, create, deployment, fetch, values_of
from fixtures.history import COLD, PlanningWorker
from simulator.loop import virtual_time


async def read_all(
    streams: Streams, view: StreamView, offset: int = 0, index: int = 0, bytes_max: int = 3_000
) -> list[tuple[int, bytes | None]]:
    """Fetch from `offset` to the end as a consumer does; (offset, value) of each record."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        fetched = await fetch(streams, view, offset, index=index, bytes_max=bytes_max)
        assert fetched.error is None, fetched.error
        if offset == fetched.end:
            return found
        last = -1
        for part in fetched.views:
            for position, base, header in kernel.batches(part, 0, len(part)):
                batch = bytes(part[position : position + header.length])
                last = base + header.last_offset_delta
                records = decode(batch, 1 << 30) if header.record_count else []
                found += [
                    (base + (record.offset_delta or 0), record.value)
                    for record in records
                    if base + (record.offset_delta or 0) >= offset
                ]
        assert last >= offset, "a fetch that does not get on"
        offset = last + 1


async def fill(
    streams: Streams, view: StreamView, count: int, *, size: int = 100, start: int = 0, index: int = 0
) -> None:
    """`count` batches of two records, each in an object of its own."""
    for number in range(start, start + count):
        await append(streams, view, batch_of(b"%d" % (2 * number), b"x" * size), index=index)


def expected(count: int, size: int = 100) -> list[tuple[int, bytes]]:
    return [(offset, b"x" * size if offset % 2 else b"%d" % offset) for offset in range(2 * count)]


@virtual_time
async def test_a_consumer_from_the_beginning_gets_everything_from_segments_and_then_the_tail() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 40)
        await PlanningWorker(stores).compact(view, end=60)
        await asyncio.sleep(1)

        assert await read_all(streams, view) == expected(40)


@virtual_time
async def test_a_server_that_starts_later_reads_segments() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 20)
        compactor = PlanningWorker(stores)
        await compactor.compact(view)
        await compactor.sweep()

        late = await stores.serve(COLD)

        assert await read_all(late, view) == expected(20)
        for offset in range(40):
            assert (await fetch(late, view, offset, bytes_max=1)).views


@virtual_time
async def test_batches_are_read_as_they_were_written() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        records = [
            Record(key=None, value=b"", timestamp=NOW_MS + 5),
            Record(key=b"", value=None, timestamp=-1, headers=(("a", None), ("a", b""), ("ä", b"x"))),
        ]
        batches = [
            encode(records),
            batch_of(b"v", producer=7, epoch=3, sequence=0),
            batch_of(b"w", producer=7, epoch=3, sequence=1),
        ]
        await append(streams, view, *batches)
        before = b"".join(bytes(part) for part in (await fetch(streams, view)).views)
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)

        after = b"".join(bytes(part) for part in (await fetch(streams, view)).views)

        assert after == before


@virtual_time
async def test_a_fetch_inside_a_batch_of_a_segment_returns_the_whole_batch() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await append(streams, view, batch_of(b"a"), batch_of(b"b", b"c", b"d"), batch_of(b"e"))
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)

        assert values_of(await fetch(streams, view, 2)) == [(1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]
        assert values_of(await fetch(streams, view, 2, bytes_max=1)) == [(1, b"b"), (2, b"c"), (3, b"d")]


@virtual_time
async def test_out_of_range_is_reported_for_segments_too_and_a_trim_is_seen() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 20)
        await PlanningWorker(stores).compact(view)
        assert len(await read_all(streams, view)) == 40
        await streams.trim(ANONYMOUS, "orders", 0, 7)
        await asyncio.sleep(1)

        assert isinstance((await fetch(streams, view, 6)).error, OutOfRange)
        assert isinstance((await fetch(streams, view, 41)).error, OutOfRange)
        assert (await read_all(streams, view, 7)) == expected(20)[7:]


@virtual_time
async def test_a_reader_asks_the_metadata_store_once_for_many_segments() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        compactor = PlanningWorker(stores)
        for start in range(0, 40, 4):
            await fill(streams, view, 4, start=start)
            await compactor.compact(view)
        reader = await stores.serve(COLD)
        asked = []
        locate = stores.metadata.log.locate

        async def counted(*arguments, **named):  # type: ignore[no-untyped-def]
            asked.append(arguments)
            return await locate(*arguments, **named)

        stores.metadata.log.locate = counted  # type: ignore[method-assign]
        found = await read_all(reader, view, bytes_max=500)

        assert found == expected(40)
        assert len(asked) == 1


@virtual_time
async def test_partitions_that_share_row_groups_are_read_each_for_itself() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams, partition_count=30)
        for index in range(30):
            await fill(streams, view, 1 + index % 5, index=index)
        await PlanningWorker(stores, row_group_bytes=1_000).compact(view)
        await asyncio.sleep(1)

        for index in range(30):
            assert await read_all(streams, view, index=index) == expected(1 + index % 5)
        ranges = [FetchRange(view.partition(index), 0, 1 << 20) for index in range(30)]
        together = await streams.fetch(ranges, bytes_min=0, bytes_max=1 << 24, wait_ms=0)
        assert [len(values_of(fetched)) for fetched in together] == [2 * (1 + index % 5) for index in range(30)]


@virtual_time
async def test_kept_batches_between_segments_are_read_in_their_place() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        odd = encode([Record(value=b"odd", headers=(("caf\udce9", b"1"),), timestamp=NOW_MS)])
        await append(streams, view, batch_of(b"a"), odd, batch_of(b"b", b"c"), odd)
        before = [bytes(part) for part in (await fetch(streams, view)).views]
        compactor = PlanningWorker(stores)
        result = await compactor.compact(view)
        await compactor.sweep()
        await asyncio.sleep(1)
        after = (await fetch(streams, view)).views

        assert sum(result.kept_counts.values()) == 2
        assert b"".join(bytes(part) for part in after) == b"".join(before)
        for offset in range(5):
            assert (await fetch(streams, view, offset, bytes_max=1)).views


@virtual_time
async def test_a_large_batch_that_came_compressed_is_sent_compressed() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams, max_message_bytes="9000000")
        for codec in Compression:
            await append(streams, view, encode([Record(value=b"x" * 2_000_000, timestamp=NOW_MS)], codec=codec))
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)
        sizes = []
        for offset, codec in enumerate(Compression):
            (part,) = (await fetch(streams, view, offset, bytes_max=1)).views
            ((_, base, header),) = kernel.batches(part, 0, len(part))
            assert kernel.inspect(b"\0" * 8 + bytes(part)[8:], 0, len(part)) == header
            assert (base, header.attributes) == (offset, codec)
            assert decode(bytes(part), 1 << 30)[0].value == b"x" * 2_000_000
            sizes.append(len(part))

        assert sizes[0] > 2_000_000
        assert max(sizes[1:]) < 200_000


@virtual_time
async def test_a_file_that_a_merge_has_replaced_is_resolved_again() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        compactor = PlanningWorker(stores)
        for start in range(0, 20, 5):
            await fill(streams, view, 5, start=start)
            await compactor.compact(view)
        await asyncio.sleep(1)
        first = await fetch(streams, view, 0, bytes_max=500)
        await compactor.merge(view)
        assert await compactor.sweep() > 0

        rest = await read_all(streams, view, len(values_of(first)))

        assert values_of(first) + rest == expected(20)


@virtual_time
async def test_a_file_that_is_gone_although_the_index_names_it_is_unavailable_not_out_of_range() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 5)
        result = await PlanningWorker(stores).compact(view)
        await stores.store.delete([written.file.key for written in result.files])
        await asyncio.sleep(1)

        assert isinstance((await fetch(streams, view, 0)).error, Unavailable)


@pytest.mark.parametrize("seed", range(12))
def test_a_reader_sees_every_offset_once_while_swaps_merges_sweeps_and_trims_happen(seed: int) -> None:
    @virtual_time
    async def body() -> None:
        draw = random.Random(seed)
        async with deployment() as stores:
            streams, other = await stores.serve(COLD), await stores.serve(COLD)
            view = await create(streams, partition_count=2)
            compactor = PlanningWorker(stores, row_group_bytes=draw.choice([300, 1_000, 5_000]))
            total = 60

            async def produce() -> None:
                for number in range(total):
                    await append(streams, view, batch_of(b"%d" % (2 * number), b"x" * 100), index=draw.randint(0, 1))
                    await asyncio.sleep(draw.random() * 0.05)

            async def work() -> None:
                while True:
                    await asyncio.sleep(draw.random() * 0.2)
                    what = draw.random()
                    if what < 0.6 and await compactor.ranges(view):
                        await compactor.compact(view)
                    elif what < 0.8 and len(await stores.metadata.objects.data_files(view.stream.number)) > 1:
                        await compactor.merge(view)
                    elif what < 0.9:
                        await compactor.sweep()

            async def consume(server: Streams, index: int) -> list[int]:
                offset, seen = 0, []
                while len(seen) < total * 4:
                    fetched = await fetch(
                        server,
                        view,
                        offset,
                        index=index,
                        bytes_min=1,
                        bytes_max=draw.choice([1, 300, 2_000]),
                        wait_ms=500,
                    )
                    assert fetched.error is None, fetched.error
                    for found, _ in values_of(fetched):
                        if found >= offset:
                            assert found == offset
                            seen.append(found)
                            offset += 1
                    if done.is_set() and offset == fetched.end and not fetched.views:
                        break
                    await asyncio.sleep(draw.random() * draw.choice([0, 0.3]))
                return seen

            done = asyncio.Event()
            worker = asyncio.create_task(work())
            consumers = [asyncio.create_task(consume(server, index)) for server in (streams, other) for index in (0, 1)]
            await produce()
            done.set()
            seen = await asyncio.gather(*consumers)
            assert not worker.done(), worker.exception()
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

            assert seen[:2] == seen[2:]
            assert len(seen[0]) + len(seen[1]) == 2 * total
            assert len(compactor.results) > 3

    body()


class CountingStore(MemoryObjectStore):
    """Records the key of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        self.reads.append(key)
        return await super().read(key, ranges)


@virtual_time
async def test_row_groups_are_read_ahead_and_once_for_all_readers() -> None:
    store = CountingStore()
    async with deployment(store) as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 30)
        compactor = PlanningWorker(stores)
        result = await compactor.compact(view)
        await asyncio.sleep(1)
        reader = await stores.serve(COLD)
        (written,) = result.files
        group_count = -(-written.file.row_count // 2 * len(batch_of(b"0", b"x" * 100)) // compactor.row_group_bytes)
        store.reads.clear()

        await fetch(reader, view, 0, bytes_max=1)
        await asyncio.sleep(1)
        reads_of_the_first = len(store.reads)
        await fetch(reader, view, 1, bytes_max=1)
        await asyncio.sleep(1)
        reads_of_two = len(store.reads)
        many = await asyncio.gather(*(read_all(reader, view) for _ in range(5)))

        assert reads_of_the_first == 2  # the footer and the row group: the reader may be anywhere next
        assert reads_of_two == 3  # the next row group ahead: the reader goes forward
        assert many == [expected(30)] * 5
        assert group_count <= len(store.reads) - 1 <= group_count + 2


class DistantStore(CountingStore):
    """Answers each read after a tenth of a second."""

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        await asyncio.sleep(0.1)
        return await super().read(key, ranges)


@virtual_time
async def test_a_consumer_of_a_distant_store_waits_for_few_row_groups() -> None:
    store = DistantStore()
    async with deployment(store) as stores:
        streams = await stores.serve(COLD)
        view = await create(streams)
        await fill(streams, view, 200)
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)
        reader = await stores.serve(COLD)
        store.reads.clear()
        loop = asyncio.get_running_loop()
        started = loop.time()

        found = await read_all(reader, view, bytes_max=700)

        assert found == expected(200)
        assert loop.time() - started < 0.1 * len(store.reads) / 2
        assert len(store.reads) > 10


@virtual_time
async def test_a_row_group_of_two_partitions_is_read_only_for_offsets_that_it_has() -> None:
    store = CountingStore()
    async with deployment(store) as stores:
        streams = await stores.serve(COLD)
        view = await create(streams, partition_count=2)
        for index in range(2):
            await fill(streams, view, 30, index=index)
        result = await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)
        reader = await stores.serve(COLD)
        (written,) = result.files
        store.reads.clear()

        found = values_of(await fetch(reader, view, 50, index=1, bytes_max=1))

        assert found[0][0] == 50
        assert store.reads == [written.file.key] * 2  # the footer and one row group


@virtual_time
async def test_decoded_row_groups_stay_within_their_bound() -> None:
    bound = 6_000
    settings = StreamsSettings(
        history=HistorySettings(
            files=DataFileSettings(thread_count=0), block_bytes_max=bound, decoding_bytes_max=1, footer_bytes_max=1
        ),
        cache=CacheSettings(bytes_max=1),
    )
    async with deployment() as stores:
        streams = await stores.serve(settings)
        view = await create(streams, partition_count=4)
        for index in range(4):
            await fill(streams, view, 30, index=index)
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)
        held = []

        async def watched(index: int) -> list[tuple[int, bytes | None]]:
            found: list[tuple[int, bytes | None]] = []
            while len(found) < 60:
                found += values_of(await fetch(streams, view, len(found), index=index, bytes_max=200))
                held.append(streams._history.block_bytes)  # noqa: SLF001 - memory that nothing else shows
            return found

        found = await asyncio.gather(*(watched(index) for index in range(4)))

        assert found == [expected(30)] * 4
        assert 2_000 < max(held) <= bound


@virtual_time
async def test_a_damaged_data_file_is_reported_as_corrupt_and_other_partitions_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view, other = await create(streams), await create(streams, "other")
        await fill(streams, view, 5)
        await fill(streams, other, 5)
        result = await PlanningWorker(stores).compact(view)
        (written,) = result.files
        (whole,) = await stores.store.read(written.file.key, [ByteRange(0, written.file.size)])
        await stores.store.delete([written.file.key])
        await stores.store.put(
            written.file.key, [bytes(whole[:200]), b"\xff" * (len(whole) - 400), bytes(whole[-200:])]
        )
        await asyncio.sleep(1)
        ranges = [FetchRange(view_.partition(0), 0, 1 << 20) for view_ in (view, other)]

        before = metrics.FETCH_DAMAGED.value
        for _ in range(3):  # readers try again
            damaged, healthy = await streams.fetch(ranges, bytes_min=0, bytes_max=1 << 20, wait_ms=0)

        assert isinstance(damaged.error, Corrupt)
        assert metrics.FETCH_DAMAGED.value == before + 3
        assert written.file.key in str(damaged.error)
        (logged,) = [vars(found) for found in caplog.records if "damaged" in found.message]
        assert logged["partition"] == view.partition(0)
        assert written.file.key in logged["error"]
        assert values_of(healthy) == expected(5)


def test_a_gap_too_large_for_one_batch_takes_several_batches() -> None:
    about = Slice(partition_key(1, 0), 0, 1, 0, 1, 0)
    piece = BlockPiece(about, ObjectRef("k", 1, ObjectKind.PARQUET), None, 0, 2**33, ())  # type: ignore[arg-type]
    offset = 5

    for run, batch in piece.runs(
        Block(buffer=memoryview(b""), runs={}, bases=array("q"), positions=array("q")), offset
    ):
        ((_, base, header),) = kernel.batches(batch, 0, len(batch))
        assert (base, header.record_count, run.slice.base_offset) == (offset, 0, offset)
        offset += header.last_offset_delta + 1

    assert offset == 2**33
