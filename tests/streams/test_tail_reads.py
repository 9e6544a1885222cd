# ruff: noqa: SLF001 - a test drops a cached object, and looks at the tails' waiters
"""Reads at the end of the log: what they return at once, and how a commit wakes the reads that wait."""

import asyncio
from itertools import pairwise

from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.service import Streams
from bearlake.streams.tail_reads import Poll
from fixtures.deployment import append, batch_of, create, deployment, values_of
from simulator.loop import virtual_time


class Waiting:
    """A poll, and what it was answered."""

    def __init__(self, streams: Streams, *partitions: PartitionKey, bytes_min: int = 1, wait_ms: int = 1000) -> None:
        self.answers: list[list[Fetched] | None] = []
        self.errors: list[BaseException] = []
        self.poll = Poll(
            streams.at_tail,
            [FetchRange(partition, 0, 10_000) for partition in partitions],
            bytes_min=bytes_min,
            bytes_max=10_000,
            wait_ms=wait_ms,
            done=self.answers.append,
            failed=self.errors.append,
        )

    def values(self) -> list[list[tuple[int, bytes | None]]]:
        (results,) = self.answers
        assert results is not None
        return [values_of(result) for result in results]


def waiter_count(streams: Streams) -> int:
    return sum(len(tail.waiters) for tail in streams._tail._tails.values())


async def known(streams: Streams, *partitions: PartitionKey) -> None:
    """Let the tail index learn where the partitions start."""
    await streams.fetch([FetchRange(key, 0, 1) for key in partitions], bytes_min=0, bytes_max=1, wait_ms=0)


@virtual_time
async def test_a_read_takes_runs_of_several_objects_and_stops_at_the_batch_that_does_not_fit() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        small, large = batch_of(b"a"), batch_of(b"b" * 1000)
        for batches in ([small, small], [small, large], [small]):
            await append(streams, view, *batches)
        (key,) = view.partitions()
        await known(streams, key)

        (found,) = streams.at_tail.read([FetchRange(key, 1, 3 * len(small))], 10_000) or []

        assert values_of(found) == [(1, b"a"), (2, b"a")]  # not the small batch after the large one
        assert (found.start, found.end, found.size_bytes) == (0, 5, 2 * len(small))


@virtual_time
async def test_a_read_without_known_bounds_or_cached_bytes_needs_the_store() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, batch_of(b"a"))
        (key,) = view.partitions()
        ranges = [FetchRange(key, 0, 1000)]

        unknown = streams.at_tail.read(ranges, 1000)
        await known(streams, key)
        cached = streams.at_tail.read(ranges, 1000)
        streams._cache._extents.clear()
        cold = streams.at_tail.read(ranges, 1000)
        after_the_end = streams.at_tail.read([FetchRange(key, 2, 1000)], 1000)

        assert (unknown, cold, after_the_end) == (None, None, None)
        assert cached is not None


@virtual_time
async def test_one_commit_in_several_partitions_wakes_a_poll_once_with_all_of_it() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, partition_count=3)
        await known(streams, *view.partitions())
        waiting = Waiting(streams, *view.partitions())
        reads = 0
        read = streams.at_tail.read

        def counted(*arguments: object, **named: object) -> object:
            nonlocal reads
            reads += 1
            return read(*arguments, **named)  # type: ignore[arg-type]

        streams.at_tail.read = counted  # type: ignore[method-assign, assignment]
        async with asyncio.TaskGroup() as tasks:
            for index in range(3):
                tasks.create_task(append(streams, view, batch_of(b"%d" % index), index=index))

        assert waiting.values() == [[(0, b"0")], [(0, b"1")], [(0, b"2")]]
        assert reads == 1
        assert waiter_count(streams) == 0


@virtual_time
async def test_a_poll_waits_for_its_minimum_of_bytes_and_at_most_for_its_time() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        batch = batch_of(b"a")
        patient = Waiting(streams, key, bytes_min=2 * len(batch), wait_ms=60_000)
        hasty = Waiting(streams, key, bytes_min=2 * len(batch), wait_ms=5)

        await append(streams, view, batch)
        await asyncio.sleep(1)
        assert patient.answers == []
        assert hasty.values() == [[(0, b"a")]]

        await append(streams, view, batch)
        assert patient.values() == [[(0, b"a"), (1, b"a")]]
        assert waiter_count(streams) == 0


@virtual_time
async def test_a_poll_is_told_when_its_partition_needs_the_store() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        waiting = Waiting(streams, key)

        streams._tail.forget(key)
        await asyncio.sleep(0)

        assert waiting.answers == [None]


@virtual_time
async def test_a_cancelled_poll_is_neither_answered_nor_known_any_more() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        waiting = Waiting(streams, key)

        streams._tail.get(key).wake()  # type: ignore[union-attr]
        waiting.poll.cancel()
        waiting.poll.cancel()
        await append(streams, view, batch_of(b"a"))
        await asyncio.sleep(2)

        assert waiting.answers == []
        assert waiter_count(streams) == 0


@virtual_time
async def test_an_error_while_a_poll_is_answered_is_reported_and_hurts_no_other_poll() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        bad, good = Waiting(streams, key), Waiting(streams, key)

        def fail(results: list[Fetched] | None) -> None:
            raise ZeroDivisionError

        bad.poll._done = fail
        await append(streams, view, batch_of(b"a"))
        await asyncio.sleep(0)

        assert [type(error) for error in bad.errors] == [ZeroDivisionError]
        assert good.values() == [[(0, b"a")]]


@virtual_time
async def test_a_poll_does_not_read_again_before_the_bytes_that_it_lacks_have_arrived() -> None:
    """Otherwise clients that wait for very many bytes make each commit as expensive as all their reads together."""
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        batch = batch_of(b"a")
        waiting = Waiting(streams, key, bytes_min=10 * len(batch), wait_ms=60_000)
        reads = 0
        read = streams.at_tail.read

        def counted(*arguments: object, **named: object) -> object:
            nonlocal reads
            reads += 1
            return read(*arguments, **named)  # type: ignore[arg-type]

        streams.at_tail.read = counted  # type: ignore[method-assign, assignment]
        for _ in range(9):
            await append(streams, view, batch)
        assert reads == 0

        await append(streams, view, batch)
        assert len(waiting.values()[0]) == 10
        assert reads == 1


@virtual_time
async def test_a_fetch_that_needed_the_store_does_not_read_again_before_what_it_lacks_has_arrived() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        batch = batch_of(b"a")
        reads = 0
        collect = streams._reader._collect

        async def counted(*arguments: object) -> None:
            nonlocal reads
            reads += 1
            await collect(*arguments)  # type: ignore[arg-type]

        streams._reader._collect = counted  # type: ignore[method-assign]
        ranges = [FetchRange(key, 0, 1 << 20)]
        fetching = asyncio.create_task(
            streams.fetch(ranges, bytes_min=10 * len(batch), bytes_max=1 << 20, wait_ms=60_000)
        )
        await asyncio.sleep(1)
        for _ in range(9):
            await append(streams, view, batch)
            await asyncio.sleep(0.1)
        assert reads == 1

        await append(streams, view, batch)
        assert len(values_of((await fetching)[0])) == 10
        assert reads == 2


@virtual_time
async def test_a_read_waits_for_no_more_bytes_than_its_answer_may_have() -> None:
    """As in Kafka: nothing that arrives later could change the answer."""
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        batch = batch_of(b"a")
        await append(streams, view, batch)
        ranges = [FetchRange(key, 0, 1 << 20)]

        async with asyncio.timeout(1):
            (found,) = await streams.fetch(ranges, bytes_min=1 << 30, bytes_max=len(batch), wait_ms=60_000)

        assert values_of(found) == [(0, b"a")]
        assert streams.at_tail.bytes_min(1 << 30, 5) == 5
        assert streams.at_tail.bytes_min(1, 0) == 1, "a reader without room still waits"


@virtual_time
async def test_very_many_polls_that_one_commit_wakes_read_in_turns_of_the_loop() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        (key,) = view.partitions()
        await known(streams, key)
        waiting = [Waiting(streams, key) for _ in range(100)]
        await append(streams, view, batch_of(b"a"))
        turns = [sum(bool(poll.answers) for poll in waiting)]
        while turns[-1] < len(waiting):
            await asyncio.sleep(0)
            turns.append(sum(bool(poll.answers) for poll in waiting))

        most = max(after - before for before, after in pairwise(turns))
        assert len(turns) > 3
        assert most <= 25
        assert waiter_count(streams) == 0
