"""Appending and fetching through one and several servers on shared stores."""

import asyncio

from bearlake.errors import NotFound, OutOfRange
from bearlake.streams.append import Verdict
from bearlake.streams.fetched import FetchRange
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.turns import AT_ONCE
from fixtures.deployment import append, append_of, batch_of, create, deployment, fetch, values_of, verdicts_of
from simulator.loop import virtual_time


@virtual_time
async def test_appended_records_are_fetched_from_the_same_server() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)

        (result,) = await append(streams, view, batch_of(b"a", b"b"))
        fetched = await fetch(streams, view)

        assert result == (Verdict.ACCEPTED, 0, 0)
        assert values_of(fetched) == [(0, b"a"), (1, b"b")]
        assert (fetched.start, fetched.end, fetched.last_stable) == (0, 2, 2)


@virtual_time
async def test_appended_records_are_fetched_from_another_server() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await append(first, view, batch_of(b"a"), batch_of(b"b"))
        await append(second, view, batch_of(b"c"))
        await second.own_writes.shown(wait_ms=0)

        fetched = await fetch(second, view)

        assert values_of(fetched) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert values_of(await fetch(first, view, 2, bytes_min=1, wait_ms=1_000)) == [(2, b"c")]


@virtual_time
async def test_a_server_that_starts_later_reads_earlier_records() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        for value in (b"a", b"b", b"c"):
            await append(streams, view, batch_of(value))

        late = await stores.serve()

        assert late.catalog.peek("orders") is not None
        assert values_of(await fetch(late, view)) == [(0, b"a"), (1, b"b"), (2, b"c")]


@virtual_time
async def test_batches_of_many_partitions_share_one_object() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=10)

        results = await streams.append([append_of(view, batch_of(b"%d" % index), index) for index in range(10)], 0)

        assert [result.base_offset for result in results] == [0] * 10
        assert len([found async for found in stores.store.list("")]) == 1
        for index in range(10):
            assert values_of(await fetch(streams, view, index=index)) == [(0, b"%d" % index)]


@virtual_time
async def test_batches_of_one_partition_keep_their_order_among_batches_of_others() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=3)
        values = [b"%d" % number for number in range(12)]

        await streams.append([append_of(view, batch_of(value), number % 3) for number, value in enumerate(values)], 0)

        for index in range(3):
            assert [value for _, value in values_of(await fetch(streams, view, index=index))] == values[index::3]


@virtual_time
async def test_a_call_without_batches_gets_an_answer() -> None:
    async with deployment() as stores:
        streams = await stores.serve()

        assert await streams.append([], 0) == []


@virtual_time
async def test_a_waiting_fetch_is_woken_by_a_commit_on_the_same_server() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(fetch(streams, view, bytes_min=1, wait_ms=10_000))
        await asyncio.sleep(3)

        await append(streams, view, batch_of(b"a"))
        fetched = await waiting

        assert values_of(fetched) == [(0, b"a")]
        assert 3 <= loop.time() < 3.1


@virtual_time
async def test_a_waiting_fetch_is_woken_by_a_commit_on_another_server() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(fetch(second, view, bytes_min=1, wait_ms=10_000))
        await asyncio.sleep(3)

        await append(first, view, batch_of(b"a"))
        fetched = await waiting

        assert values_of(fetched) == [(0, b"a")]
        assert 3 <= loop.time() < 3.1


@virtual_time
async def test_a_fetch_at_the_end_waits_then_returns_empty() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, batch_of(b"a"))
        loop = asyncio.get_running_loop()
        started = loop.time()

        fetched = await fetch(streams, view, 1, bytes_min=1, wait_ms=500)

        assert (fetched.views, fetched.error, fetched.end) == ([], None, 1)
        assert 0.5 <= loop.time() - started < 0.6


@virtual_time
async def test_a_fetch_waits_for_its_minimum_number_of_bytes() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        size = len(batch_of(b"a"))
        waiting = asyncio.create_task(fetch(streams, view, bytes_min=2 * size, wait_ms=10_000))

        await append(streams, view, batch_of(b"a"))
        await asyncio.sleep(1)
        is_done_after_one = waiting.done()
        await append(streams, view, batch_of(b"b"))

        assert not is_done_after_one
        assert values_of(await waiting) == [(0, b"a"), (1, b"b")]


@virtual_time
async def test_a_fetch_inside_a_batch_returns_the_whole_batch() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, batch_of(b"a"), batch_of(b"b", b"c", b"d"), batch_of(b"e"))

        fetched = await fetch(streams, view, 2)

        assert values_of(fetched) == [(1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]


@virtual_time
async def test_the_first_batch_is_returned_even_if_it_is_larger_than_the_limit() -> None:  # KIP-74
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, batch_of(b"a" * 1000), batch_of(b"b"))

        fetched = await fetch(streams, view, bytes_max=10)

        assert values_of(fetched) == [(0, b"a" * 1000)]


@virtual_time
async def test_after_the_first_batch_only_batches_within_the_limit_are_returned() -> None:  # KIP-74
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=3)
        batch = batch_of(b"a" * 100)
        for index in range(3):
            await append(streams, view, batch, batch, index=index)
            await append(streams, view, batch, index=index)
        ranges = [FetchRange(view.partition(index), 0, 2 * len(batch) + 10) for index in range(3)]

        fetched = await streams.fetch(ranges, bytes_min=1, bytes_max=3 * len(batch) + 10, wait_ms=0)

        assert [found.size_bytes // len(batch) for found in fetched] == [2, 1, 0]
        assert [found.end for found in fetched] == [3, 3, 3]


@virtual_time
async def test_a_partition_after_the_first_gets_no_batch_beyond_the_limit() -> None:  # KIP-74
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=2)
        await append(streams, view, batch_of(b"a"), index=0)
        await append(streams, view, batch_of(b"b" * 1000), index=1)
        ranges = [FetchRange(view.partition(index), 0, 500) for index in range(2)]

        fetched = await streams.fetch(ranges, bytes_min=1, bytes_max=10_000, wait_ms=0)

        assert [len(found.views) for found in fetched] == [1, 0]


@virtual_time
async def test_enough_bytes_after_an_offset_late_in_a_slice_are_returned_at_once() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        batch = batch_of(b"a" * 1000)
        await append(streams, view, *[batch] * 10)
        await append(streams, view, *[batch] * 10)

        fetched = await fetch(streams, view, 9, bytes_min=3000, bytes_max=4 * len(batch), wait_ms=10_000)

        assert fetched.size_bytes == 4 * len(batch)
        assert asyncio.get_running_loop().time() < 1


@virtual_time
async def test_out_of_range_answers_have_the_bounds_of_the_store() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await append(first, view, batch_of(b"a"), batch_of(b"b"))

        behind = await fetch(second, view, 3, bytes_min=1, wait_ms=1_000)
        at_end = await fetch(second, view, 2)
        negative = await fetch(first, view, -1)

        assert isinstance(behind.error, OutOfRange)
        assert (behind.error.start, behind.error.end) == (0, 2)
        assert at_end.error is None
        assert isinstance(negative.error, OutOfRange)


@virtual_time
async def test_trimmed_offsets_are_out_of_range_and_later_offsets_stay_readable() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await append(first, view, batch_of(b"a"), batch_of(b"b", b"c"))
        await fetch(second, view)

        bounds = await first.trim(ANONYMOUS, "orders", 0, 2)
        await asyncio.sleep(1)

        assert bounds == (2, 3, 3)
        for streams in (first, second):
            assert isinstance((await fetch(streams, view, 1)).error, OutOfRange)
            fetched = await fetch(streams, view, 2)
            assert (values_of(fetched), fetched.start) == ([(1, b"b"), (2, b"c")], 2)


@virtual_time
async def test_a_deleted_stream_refuses_batches_and_reads() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await append(first, view, batch_of(b"a"))
        await fetch(second, view)
        waiting = asyncio.create_task(fetch(second, view, 1, bytes_min=1, wait_ms=10_000))
        await asyncio.sleep(1)

        await first.delete(ANONYMOUS, (await first.catalog.resolve("orders")).stream)
        (result,) = await append(second, view, batch_of(b"b"))
        woken = await waiting

        assert result == (Verdict.NOT_FOUND, -1, -1)
        assert isinstance(woken.error, NotFound)
        assert isinstance((await fetch(first, view)).error, NotFound)
        assert asyncio.get_running_loop().time() < 2


@virtual_time
async def test_a_recreated_stream_starts_empty() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        old = await create(first)
        await append(first, old, batch_of(b"old"))
        await first.delete(ANONYMOUS, (await first.catalog.resolve("orders")).stream)

        new = await create(second)
        await append(second, new, batch_of(b"new"))
        await asyncio.sleep(1)

        assert first.catalog.peek("orders").stream == new.stream  # type: ignore[union-attr]
        assert values_of(await fetch(first, new)) == [(0, b"new")]


@virtual_time
async def test_a_refused_batch_does_not_affect_the_other_batches_of_its_object() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        kept = await create(first, "kept")
        gone = await create(first, "gone")
        await first.delete(ANONYMOUS, (await first.catalog.resolve("gone")).stream)
        appends = [
            append_of(kept, batch_of(b"a")),
            append_of(gone, batch_of(b"lost")),
            append_of(kept, batch_of(b"b", producer=7)),
            append_of(kept, batch_of(b"c", producer=8)),
            append_of(kept, batch_of(b"too far", producer=8, sequence=9)),
            append_of(kept, batch_of(b"d")),
        ]

        results = await first.append(appends, first.seen.position)

        assert verdicts_of(results) == [
            "ACCEPTED",
            "NOT_FOUND",
            "ACCEPTED",
            "ACCEPTED",
            "OUT_OF_ORDER",
            "ACCEPTED",
        ]
        expected = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
        for streams in (first, second):
            assert values_of(await fetch(streams, kept)) == expected


@virtual_time
async def test_a_duplicate_gets_its_original_offset_on_any_server() -> None:  # KIP-98
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        batches = [batch_of(b"%d" % number, producer=7, sequence=number) for number in range(6)]
        for batch in batches:
            await append(first, view, batch)

        again = await append(second, view, *batches)

        assert verdicts_of(again) == ["OUT_OF_ORDER"] + ["DUPLICATE"] * 5
        assert [result.base_offset for result in again] == [-1, 1, 2, 3, 4, 5]
        assert len(values_of(await fetch(second, view))) == 6


@virtual_time
async def test_a_fetch_over_many_partitions_is_as_one_over_a_few() -> None:
    """The reader takes some partitions at a time: sizes, the first batch (KIP-74) and a wake-up concern all of them."""
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=3 * AT_ONCE)
        ranges = [FetchRange(key, 0, 1_000_000) for key in view.partitions()]
        batch = batch_of(bytes(1000))
        waiting = asyncio.create_task(streams.fetch(ranges, bytes_min=1, bytes_max=10_000, wait_ms=60_000))
        await asyncio.sleep(1)
        await append(streams, view, batch, index=2 * AT_ONCE)
        woken = await waiting
        for index in (0, AT_ONCE):
            await append(streams, view, batch, index=index)

        all_of_them = await streams.fetch(ranges, bytes_min=1, bytes_max=10_000, wait_ms=0)
        only_the_first = await streams.fetch(ranges, bytes_min=1, bytes_max=10, wait_ms=0)

        size = len(batch)
        assert [index for index, item in enumerate(woken) if item.size_bytes == size] == [2 * AT_ONCE]
        sizes = [
            {index: item.size_bytes for index, item in enumerate(found) if item.views}
            for found in (all_of_them, only_the_first)
        ]
        assert sizes == [{0: size, AT_ONCE: size, 2 * AT_ONCE: size}, {0: size}]
        assert [item.end for item in only_the_first] == [int(index % AT_ONCE == 0) for index in range(3 * AT_ONCE)]
