"""The write path: when it flushes, and in which order it commits."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from bearlake.streams.append import AppendCall
from bearlake.streams.turns import AT_ONCE
from bearlake.telemetry import metrics
from fixtures.deployment import (
    Deployment,
    append,
    append_of,
    batch_of,
    create,
    deployment,
    fetch,
    submit,
    values_of,
    verdicts_of,
)
from fixtures.failing_stores import SlowStore, settings
from fixtures.idle_producers import forget_all
from simulator.loop import virtual_time

# -- when it flushes -------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_idle_server_flushes_at_once_and_gathers_while_it_is_busy() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(linger_ms=1_000, puts_in_flight_max=4))
        view = await create(streams)

        waiting = [submit(streams, view, batch_of(b"a"))]
        await asyncio.sleep(0.01)
        waiting += [submit(streams, view, batch_of(b"b")) for _ in range(10)]
        await asyncio.gather(*waiting)

        assert len(store.sizes) == 2
        assert asyncio.get_running_loop().time() < 0.3


async def append_two_in_one_object(stores: Deployment) -> None:
    """Append a batch, and 0.2 s later another one, with a linger of 0.25 s."""
    streams = await stores.serve(settings(linger_ms=250, flush_when_idle=False))
    view = await create(streams)
    waiting = [submit(streams, view, batch_of(b"a"))]
    await asyncio.sleep(0.2)
    waiting += [submit(streams, view, batch_of(b"b"))]
    await asyncio.gather(*waiting)


@virtual_time
async def test_without_flushing_when_idle_the_linger_passes_first() -> None:
    store = SlowStore(0.0)
    async with deployment(store) as stores:
        await append_two_in_one_object(stores)

        assert len(store.sizes) == 1
        assert 0.25 <= asyncio.get_running_loop().time() < 0.26


@virtual_time
async def test_the_time_of_an_append_is_that_of_the_first_batch_of_its_object() -> None:
    before, sum_s = metrics.APPEND_SECONDS.count, metrics.APPEND_SECONDS.sum
    async with deployment(SlowStore(0.0)) as stores:
        await append_two_in_one_object(stores)

        assert metrics.APPEND_SECONDS.count == before + 1
        assert 0.25 <= metrics.APPEND_SECONDS.sum - sum_s < 0.26


@virtual_time
async def test_enough_bytes_are_flushed_before_the_linger_has_passed() -> None:
    store = SlowStore(0.0)
    async with deployment(store) as stores:
        streams = await stores.serve(settings(linger_ms=10_000, flush_when_idle=False, flush_bytes=2_000))
        view = await create(streams)

        await asyncio.gather(*(submit(streams, view, batch_of(b"a" * 1_000)) for _ in range(2)))

        assert asyncio.get_running_loop().time() < 1


@virtual_time
async def test_objects_keep_to_their_size_and_a_larger_batch_goes_alone() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=5_000, linger_ms=1_000))
        view = await create(streams)
        sizes = [1_000, 2_000, 3_000, 9_000, 1_000]

        results = await append(streams, view, *(batch_of(b"a" * size) for size in sizes))

        assert [result[1] for result in results] == [0, 1, 2, 3, 4]
        assert [size // 1_000 for size in store.sizes] == [3, 3, 9, 1]


@virtual_time
async def test_objects_keep_to_their_number_of_batches() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_batch_count_max=3, linger_ms=1_000))
        view = await create(streams)

        results = await append(streams, view, *(batch_of(b"a" * 1_000) for _ in range(8)))

        assert [result[1] for result in results] == list(range(8))
        assert [size // 1_000 for size in store.sizes] == [3, 3, 2]


@virtual_time
async def test_one_turn_of_the_event_loop_answers_a_bounded_number_of_calls() -> None:
    async with deployment() as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        turns = _Turns()
        answered: list[tuple[int, int]] = []
        calls = [
            AppendCall([append_of(view, batch_of(b"a"))], partial(_note, answered, turns), streams.seen.position)
            for _ in range(1_000)
        ]

        for call in calls:
            streams.submit(call)
        await turns.run_until(lambda: len(answered) == len(calls))

        assert [offset for offset, _ in answered] == list(range(1_000))
        assert max(Counter(turn for _, turn in answered).values()) <= AT_ONCE


@virtual_time
async def test_a_drain_ends_after_the_last_answer() -> None:
    async with deployment() as stores:
        streams = await stores.serve(settings(linger_ms=1_000, flush_when_idle=False))
        view = await create(streams)
        futures = [submit(streams, view, batch_of(b"a")) for _ in range(1_000)]

        await streams.drain()

        assert all(future.done() for future in futures)


class _Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.count += 1
            assert self.count < 10_000
            await asyncio.sleep(0)


def _note(answered: list[tuple[int, int]], turns: _Turns, call: AppendCall) -> None:
    answered.append((call.results[0].base_offset, turns.count))


@virtual_time
async def test_no_more_puts_are_in_flight_than_allowed() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500, puts_in_flight_max=2))
        view = await create(streams)

        await append(streams, view, *(batch_of(b"a" * 400) for _ in range(6)))

        assert len(store.sizes) == 6
        assert 0.3 <= asyncio.get_running_loop().time() < 0.31


@virtual_time
async def test_after_a_flush_clients_that_were_answered_are_gathered() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(linger_ms=1_000, gather_ms=2.0, gather_batches_min=1))
        view = await create(streams)
        await asyncio.gather(*(submit(streams, view, batch_of(b"a")) for _ in range(2)))
        before = asyncio.get_running_loop().time()

        waiting = [submit(streams, view, batch_of(b"b"))]
        await asyncio.sleep(0.001)
        waiting += [submit(streams, view, batch_of(b"c"))]
        await asyncio.gather(*waiting)

        assert len(store.sizes) == 2
        assert asyncio.get_running_loop().time() - before < 0.102  # only until both had sent again


@virtual_time
async def test_the_writer_waits_for_silent_clients_no_longer_than_its_limit() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(linger_ms=1_000, gather_ms=2.0, gather_batches_min=1))
        view = await create(streams)
        await asyncio.gather(*(submit(streams, view, batch_of(b"a")) for _ in range(2)))
        before = asyncio.get_running_loop().time()

        await append(streams, view, batch_of(b"b"))

        assert 0.102 <= asyncio.get_running_loop().time() - before < 0.103


@virtual_time
async def test_the_writer_sets_no_timer_that_uvloop_would_call_at_once() -> None:
    async with deployment(SlowStore()) as stores:
        streams = await stores.serve(settings(linger_ms=1_000, gather_ms=0.4, gather_batches_min=1))
        view = await create(streams)
        await asyncio.gather(*(submit(streams, view, batch_of(b"a")) for _ in range(2)))
        before = asyncio.get_running_loop().time()

        await append(streams, view, batch_of(b"b"))

        assert 0.101 <= asyncio.get_running_loop().time() - before < 0.102


@virtual_time
async def test_after_a_flush_of_few_batches_the_writer_does_not_gather() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(linger_ms=1_000, gather_ms=2.0, gather_batches_min=2))
        view = await create(streams)
        await append(streams, view, batch_of(b"a"))
        before = asyncio.get_running_loop().time()

        await append(streams, view, batch_of(b"b"))

        assert asyncio.get_running_loop().time() - before < 0.101


# -- in which order --------------------------------------------------------------------------------------------------


@virtual_time
async def test_objects_are_committed_in_the_order_in_which_they_were_sealed() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500))
        view = await create(streams)
        store.each_put_s = [0.9, 0.1, 0.5]

        results = await append(streams, view, *(batch_of(b"%d" % number + b"." * 400) for number in range(3)))

        assert [result[1] for result in results] == [0, 1, 2]
        assert [value[:1] for _, value in values_of(await fetch(streams, view)) if value] == [b"0", b"1", b"2"]


@virtual_time
async def test_an_object_that_is_not_stored_fails_its_batches_alone() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500))
        view = await create(streams)
        store.fails = {1}

        results = await append(streams, view, *(batch_of(b"%d" % number + b"." * 400) for number in range(3)))

        assert verdicts_of(results) == ["ACCEPTED", "NOT_STORED", "ACCEPTED"]
        assert [value[:1] for _, value in values_of(await fetch(streams, view)) if value] == [b"0", b"2"]


@virtual_time
async def test_a_later_batch_of_a_producer_does_not_pass_one_that_is_missing() -> None:  # KIP-98
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500))
        view = await create(streams)
        await append(streams, view, batch_of(b"first", producer=1))
        store.fails = {1}
        batches = [batch_of(b"." * 400, producer=1, sequence=sequence) for sequence in (1, 2)]

        results = await append(streams, view, *batches)
        again = await append(streams, view, *batches)

        assert verdicts_of(results) == ["NOT_STORED", "NOT_STORED"]
        assert verdicts_of(again) == ["ACCEPTED", "ACCEPTED"]


@virtual_time
async def test_a_new_producer_whose_first_batch_is_not_stored_begins_again() -> None:  # I9
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500))
        view = await create(streams)
        await append(streams, view, batch_of(b"old"))
        store.fails = {1}
        batches = [batch_of(b"." * 400, producer=1, sequence=sequence) for sequence in range(4)]

        results = await append(streams, view, *batches)
        again = await append(streams, view, *batches)

        assert verdicts_of(results) == ["NOT_STORED"] * 4
        assert verdicts_of(again) == ["ACCEPTED"] * 4
        assert len(values_of(await fetch(streams, view))) == 5


@virtual_time
async def test_a_batch_that_is_stored_already_is_a_duplicate_although_its_object_is_not_stored() -> None:
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        await append(streams, view, batch_of(b"a", producer=1))
        store.fails = {1}

        results = await append(streams, view, batch_of(b"a", producer=1), batch_of(b"b", producer=1, sequence=1))

        assert verdicts_of(results) == ["DUPLICATE", "NOT_STORED"]


@virtual_time
async def test_an_expired_producer_is_informed_although_its_object_is_not_stored() -> None:
    """librdkafka continues if this is the first answer about the batch; after a retry the error would be fatal."""
    store = SlowStore()
    async with deployment(store) as stores:
        streams = await stores.serve(settings(object_bytes_max=500))
        view = await create(streams)
        (producer,) = await stores.metadata.producers.allocate(1)
        await append(streams, view, batch_of(b"a", producer=producer))
        await forget_all(stores.metadata)
        store.fails = {1}
        batches = [batch_of(b"." * 400, producer=producer, sequence=sequence) for sequence in (1, 2)]

        results = await append(streams, view, *batches)

        assert verdicts_of(results) == ["UNKNOWN_PRODUCER"] * 2
