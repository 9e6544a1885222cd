"""Offsets by question: earliest, latest, by time; trimmed streams; answers are the store's."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bearlake.errors import NotFound
from bearlake.metadata.model import PartitionKey
from bearlake.records.codec import Record, encode
from bearlake.streams.catalog import StreamView
from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion, OffsetSpec
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from fixtures.deployment import NOW_MS, append, batch_of, create, deployment
from simulator.loop import virtual_time


def at_times(*timestamps: int) -> bytes:
    return encode([Record(value=b"x", timestamp=timestamp) for timestamp in timestamps])


async def ask(streams: Streams, view: StreamView, *timestamps: int) -> list[OffsetAnswer]:
    return await streams.offsets([OffsetQuestion(view.partition(0), timestamp) for timestamp in timestamps])


@virtual_time
async def test_the_ends_of_a_partition_are_the_stores() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        view = await create(first)
        await append(first, view, batch_of(b"a"), batch_of(b"b", b"c"))
        await first.trim(ANONYMOUS, "orders", 0, 1)

        answers = await ask(
            second, view, OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED
        )

        assert [answer.offset for answer in answers] == [1, 3, 1, -1]


@virtual_time
async def test_a_partition_that_does_not_exist_is_not_found_and_hurts_no_other_question() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        missing = PartitionKey(view.first_key + 7)

        answers = await streams.offsets(
            [OffsetQuestion(key, time) for key in (missing, view.partition(0)) for time in (-1, -2, -3, 5)]
        )

        assert [type(answer.error) for answer in answers[:4]] == [NotFound] * 4
        assert answers[4:] == [(0, -1, None), (0, -1, None), (-1, -1, None), (-1, -1, None)]


@virtual_time
async def test_the_first_record_at_or_after_a_time_is_found() -> None:  # KIP-79
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, at_times(100, 300), at_times(200, 400))
        await append(streams, view, at_times(350, 500, 450))

        answers = await ask(streams, view, 0, 100, 101, 301, 401, 451, 500, 501)

        assert [tuple(answer)[:2] for answer in answers] == [
            (0, 100),
            (0, 100),
            (1, 300),
            (3, 400),
            (5, 500),
            (5, 500),
            (5, 500),
            (-1, -1),
        ]


@virtual_time
async def test_a_batch_with_log_append_time_answers_its_base_offset_and_that_time() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, message_timestamp_type="LogAppendTime")
        await append(streams, view, at_times(NOW_MS - 5, NOW_MS - 9))

        answers = await ask(streams, view, NOW_MS - 3, NOW_MS, NOW_MS + 1, OffsetSpec.MAX_TIMESTAMP)

        assert [tuple(answer)[:2] for answer in answers] == [(0, NOW_MS), (0, NOW_MS), (-1, -1), (0, NOW_MS)]


@virtual_time
async def test_the_largest_timestamp_is_that_of_its_first_record() -> None:  # KIP-734
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        await append(streams, view, at_times(100, 700, 300))
        await append(streams, view, at_times(700), at_times(200))

        assert await ask(streams, view, OffsetSpec.MAX_TIMESTAMP) == [(1, 700, None)]


@virtual_time
async def test_compressed_batches_are_looked_into() -> None:
    from bearlake.records.batch import Compression

    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams)
        records = [Record(value=b"x" * 100, timestamp=100 * number) for number in range(5)]
        for codec in Compression:
            await append(streams, view, encode(records, codec=codec))

        assert await ask(streams, view, 250) == [(3, 300, None)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=6),
    per_object=st.integers(1, 3),
    start=st.integers(0, 24),
    timestamp=st.integers(0, 21),
)
def test_look_ups_by_time_agree_with_a_search_through_all_records(
    batches: list[list[int]], per_object: int, start: int, timestamp: int
) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            streams = await stores.serve()
            view = await create(streams)
            for first in range(0, len(batches), per_object):
                await append(streams, view, *(at_times(*times) for times in batches[first : first + per_object]))
            times = [time for batch in batches for time in batch]
            first_left = min(start, len(times))
            await streams.trim(ANONYMOUS, "orders", 0, first_left)
            left = [(offset, time) for offset, time in enumerate(times) if offset >= first_left]
            await asyncio.sleep(0)

            found, largest = await ask(streams, view, timestamp, OffsetSpec.MAX_TIMESTAMP)

            due = next((item for item in left if item[1] >= timestamp), (-1, -1))
            newest = max(left, key=lambda item: item[1], default=(-1, -1))
            assert (found.offset, found.timestamp) == due
            assert (largest.offset, largest.timestamp) == newest

    body()
