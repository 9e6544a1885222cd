"""Reads of history that need no stores are answered in one step, with what the long way answers (decision 284)."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.history import PASS_S
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from fixtures.deployment import Deployment, append, batch_of, create, deployment, fetch, values_of
from fixtures.history import COLD, PlanningWorker
from fixtures.late_follower import delay
from simulator.loop import virtual_time

COUNT = 30
"""Batches of two records in a partition."""


async def compacted(
    stores: Deployment, *, end: int | None = None, partition_count: int = 1
) -> tuple[Streams, StreamView]:
    """Serve a stream whose records up to `end` are in small row groups."""
    streams = await stores.serve(COLD)
    view = await create(streams, partition_count=partition_count)
    for index in range(partition_count):
        for number in range(COUNT):
            await append(streams, view, batch_of(b"%d" % number, b"x" * 100), index=index)
    await PlanningWorker(stores).compact(view, end=end)
    await asyncio.sleep(1)
    return streams, view


async def warm(streams: Streams, view: StreamView) -> None:
    """Read everything once, so that the row groups are in memory."""
    offset = 0
    while offset < 2 * COUNT:
        found = values_of(await fetch(streams, view, offset, bytes_max=3_000))
        offset = found[-1][0] + 1


def at_once(
    streams: Streams,
    key: PartitionKey,
    offset: int,
    bytes_max: int,
    *,
    bytes_min: int = 0,
    is_committed: bool = False,
) -> bytes | None:
    """The bytes of a read that does not wait."""
    ranges = [FetchRange(key, offset, bytes_max)]
    found = streams.at_tail.read(ranges, bytes_max, bytes_min=bytes_min, is_committed=is_committed)
    return None if found is None else b"".join(map(bytes, found[0].views))


@virtual_time
async def test_every_offset_of_a_segment_in_memory_is_read_at_once_as_by_the_long_way() -> None:
    async with deployment() as stores:
        streams, view = await compacted(stores)
        await warm(streams, view)

        for offset in range(2 * COUNT):
            for bytes_max in (1, 400, 5_000):
                slow = await fetch(streams, view, offset, bytes_max=bytes_max)
                (fast,) = streams.at_tail.read([slow.range], bytes_max) or []

                assert (fast.start, fast.end) == (0, 2 * COUNT)
                assert b"".join(map(bytes, fast.views)) == b"".join(map(bytes, slow.views)) != b""


@virtual_time
async def test_what_is_not_in_memory_is_left_to_the_long_way_which_reads_ahead() -> None:
    async with deployment() as stores:
        _, view = await compacted(stores)
        (key,) = view.partitions()
        late = await stores.serve(COLD)
        cold = at_once(late, key, 0, 400)

        first = await fetch(late, view, 0, bytes_max=400)
        await asyncio.sleep(1)
        offset = values_of(first)[-1][0] + 1
        warm_ = [at_once(late, key, offset, 400)]
        await asyncio.sleep(1)
        block_bytes = late._history.block_bytes  # noqa: SLF001 - memory that nothing else shows

        assert cold is None
        assert warm_ != [None]
        assert block_bytes > 2_000, "the next row group was not read ahead"


@virtual_time
async def test_a_read_waits_for_the_stores_if_memory_has_less_than_the_reader_wants() -> None:
    async with deployment() as stores:
        streams, view = await compacted(stores, end=COUNT)
        (key,) = view.partitions()
        await fetch(streams, view, 0, bytes_max=1)

        part = at_once(streams, key, 0, 100_000)

        assert part is not None
        assert at_once(streams, key, 0, 100_000, bytes_min=len(part)) == part
        assert at_once(streams, key, 0, 100_000, bytes_min=len(part) + 1) is None
        assert at_once(streams, key, 0, len(part) // 2, bytes_min=len(part) // 3) is not None


class DistantStore(MemoryObjectStore):
    """Answers each read after a tenth of a second."""

    is_failing = False

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        await asyncio.sleep(0.1)
        if self.is_failing:
            raise Unavailable("the store does not answer")
        return await super().read(key, ranges)


@virtual_time
async def test_a_row_group_that_is_being_loaded_keeps_no_other_range_waiting() -> None:
    async with deployment(DistantStore()) as stores:
        _, view = await compacted(stores, partition_count=2)
        late = await stores.serve(COLD)
        there, coming = (FetchRange(key, 0, 300) for key in view.partitions())
        await fetch(late, view, 0, bytes_max=1)
        await fetch(late, view, 40, index=1, bytes_max=1)

        def read(*ranges: FetchRange, bytes_min: int = 1) -> list[bool] | None:
            found = late.at_tail.read(ranges, 1_000, bytes_min=bytes_min)
            return None if found is None else [bool(result.views) for result in found]

        idle = read(there, coming)
        loading = asyncio.create_task(fetch(late, view, 0, index=1, bytes_max=1))
        await asyncio.sleep(0.05)
        first, second, alone, more = (
            read(there, coming), read(coming, there), read(coming), read(there, coming, bytes_min=500)
        )  # fmt: skip
        await loading

        assert (idle, first, second) == (None, [True, False], [False, True])
        assert (alone, more) == (None, None)
        assert read(there, coming) == [True, True]


@virtual_time
async def test_a_row_group_that_others_load_in_vain_again_and_again_is_waited_for_after_a_while() -> None:
    store = DistantStore()
    async with deployment(store) as stores:
        _, view = await compacted(stores, partition_count=2)
        late = await stores.serve(COLD)
        there, coming = (FetchRange(key, 0, 300) for key in view.partitions())
        await fetch(late, view, 0, bytes_max=1)
        await fetch(late, view, 40, index=1, bytes_max=1)
        store.is_failing = True

        async def retry() -> None:
            for _ in range(1_000):
                await fetch(late, view, 0, index=1, bytes_max=1)

        retrying = asyncio.create_task(retry())
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.sleep(0.05)
        for _ in range(100):
            if late.at_tail.read((there, coming), 1_000, bytes_min=1) is None:
                break
            await asyncio.sleep(0.1)
        ended = loop.time()
        retrying.cancel()

        assert PASS_S <= ended - started < PASS_S + 1


@virtual_time
async def test_all_consumers_of_a_row_group_that_is_loaded_in_vain_wait_for_it_after_a_while() -> None:
    store = DistantStore()
    async with deployment(store) as stores:
        _, view = await compacted(stores, partition_count=2)
        late = await stores.serve(COLD)
        there, coming = (FetchRange(key, 0, 300) for key in view.partitions())
        await fetch(late, view, 0, bytes_max=1)
        await fetch(late, view, 40, index=1, bytes_max=1)
        store.is_failing = True

        async def retry() -> None:
            for _ in range(1_000):
                await fetch(late, view, 0, index=1, bytes_max=1)

        async def poll() -> float:
            for _ in range(1_000):
                if late.at_tail.read((there, coming), 1_000, bytes_min=1) is None:
                    break
                await asyncio.sleep(0.37)
            return loop.time() - started

        retrying = asyncio.create_task(retry())
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.05)
        started = loop.time()
        waits = await asyncio.gather(*(poll() for _ in range(20)))
        retrying.cancel()

        assert max(waits) < PASS_S + 1


@virtual_time
async def test_two_ranges_share_the_room_of_an_answer_in_their_order() -> None:
    async with deployment() as stores:
        streams, view = await compacted(stores)
        (key,) = view.partitions()
        await warm(streams, view)
        size = len(at_once(streams, key, 0, 1) or b"")

        first, second = streams.at_tail.read([FetchRange(key, 0, 10_000), FetchRange(key, 4, 10_000)], 3 * size) or []
        only, none = streams.at_tail.read([FetchRange(key, 0, 10_000), FetchRange(key, 4, 10_000)], 1) or []

        assert first.size_bytes == 3 * size
        assert not second.views
        assert only.size_bytes == size
        assert not none.views


@virtual_time
async def test_readers_of_committed_records_read_history_at_once_where_all_is_committed() -> None:
    async with deployment() as stores:
        streams, view = await compacted(stores)
        (key,) = view.partitions()
        await warm(streams, view)
        tail = streams._tail.get(key)  # noqa: SLF001 - what the transactions of a partition set
        assert tail is not None

        committed = at_once(streams, key, 0, 400, is_committed=True)
        tail.committed_from = 10
        undecided = at_once(streams, key, 9, 400, is_committed=True)

        assert committed == at_once(streams, key, 0, 400)
        assert undecided is None
        assert at_once(streams, key, 10, 400, is_committed=True) is not None


@virtual_time
async def test_a_server_that_follows_late_answers_nothing_beyond_the_end_that_it_answers() -> None:
    async with deployment() as stores:
        first, view = await compacted(stores)
        (key,) = view.partitions()
        second = await stores.serve(COLD)
        await fetch(second, view, 2 * COUNT)  # it learns where the partition ends, and no segment
        log = delay(second)
        for number in range(COUNT):
            await append(first, view, batch_of(b"%d" % number, b"y" * 100))
        worker = PlanningWorker(stores)
        await worker.compact(view)
        await worker.merge(view)
        await asyncio.sleep(1)
        slow = await fetch(second, view, 2 * COUNT - 1, bytes_max=100_000)
        assert slow.end > values_of(slow)[-1][0] >= 2 * COUNT  # the store knows more than this server has followed

        found = second.at_tail.read([FetchRange(key, 2 * COUNT - 1, 100_000)], 100_000)
        assert found is None or found[0].end > values_of(found[0])[-1][0]

        log.opened.set()
        await second.catalog.catch_up()
        await fetch(second, view, 2 * COUNT - 1)

        (caught_up,) = second.at_tail.read([FetchRange(key, 2 * COUNT - 1, 100_000)], 100_000) or []
        assert (values_of(caught_up)[-1][0], caught_up.end) == (4 * COUNT - 1, 4 * COUNT)


@virtual_time
async def test_trimmed_offsets_are_left_to_the_long_way() -> None:
    async with deployment() as stores:
        streams, view = await compacted(stores)
        (key,) = view.partitions()
        await warm(streams, view)

        await streams.trim(ANONYMOUS, "orders", 0, 7)
        await asyncio.sleep(1)

        assert at_once(streams, key, 6, 400) is None
        assert at_once(streams, key, 7, 400)


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_that_reads_at_once_where_it_can_sees_every_record_once(seed: int) -> None:
    @virtual_time
    async def run() -> None:
        draw = random.Random(seed)
        async with deployment() as stores:
            streams = await stores.serve(COLD)
            view = await create(streams)
            (key,) = view.partitions()
            worker = PlanningWorker(stores)
            written, quick = 0, 0
            seen: list[tuple[int, bytes | None]] = []
            while len(seen) < 200:
                step = draw.randrange(9)
                if step < 2 and written < 200:
                    await append(streams, view, batch_of(b"%d" % written, b"%d" % (written + 1)))
                    written += 2
                elif step == 2 and written > len(seen):
                    if await worker.ranges(view):
                        await worker.compact(view)
                elif step == 3:
                    await asyncio.sleep(draw.choice((0, 1)))
                elif step == 4 and await stores.metadata.objects.data_files(view.stream.number):
                    await worker.merge(view)
                    await worker.sweep()
                elif len(seen) < written:
                    bytes_max = draw.choice((1, 200, 2_000))
                    found = streams.at_tail.read([FetchRange(key, len(seen), bytes_max)], bytes_max)
                    quick += found is not None
                    (part,) = found or [await fetch(streams, view, len(seen), bytes_max=bytes_max)]
                    assert part.error is None
                    seen += [pair for pair in values_of(part) if pair[0] >= len(seen)]

            assert seen == [(offset, b"%d" % offset) for offset in range(200)]
            assert quick > 20

    run()
