"""AsyncConsumer: members of groups, commits, seeks, servers that stop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from bearlake.client import (
    AsyncClient,
    AsyncConsumer,
    ClientSettings,
    ConsumerOptions,
    NotFound,
    Record,
    Unavailable,
)
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.waiting import WAIT_S

QUICK = ClientSettings(linger_ms=1, retry_pause_ms=5, retry_pause_max_ms=50, delivery_timeout_s=WAIT_S)
MANUAL = ConsumerOptions(auto_commit=False)


@pytest.fixture
async def client(grpc_node: GrpcNode) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(grpc_node.address, settings=QUICK) as made:
        yield made


async def fill(client: AsyncClient, count: int, *, first: int = 0, name: str = "one") -> None:
    """Values are numbers; they go to the partitions in turn."""
    partitions = (await client.describe_stream(name)).partition_count
    async with client.producer() as producer:
        for at in range(first, first + count):
            await producer.send(name, b"%d" % at, partition=at % partitions)


async def take(consumer: AsyncConsumer, count: int) -> list[Record]:
    """Take exactly this many records, one by one."""
    async with asyncio.timeout(WAIT_S):
        return [await anext(consumer) for _ in range(count)]


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


async def test_a_group_continues_where_a_consumer_ended(client: AsyncClient) -> None:
    await client.create_stream("one")
    await fill(client, 10)

    async with client.consumer("g", "one") as first:
        before = await take(first, 4)
    async with client.consumer("g", "one") as second:
        after = await take(second, 6)

    assert numbers(before) == [0, 1, 2, 3]
    assert numbers(after) == [4, 5, 6, 7, 8, 9]


async def test_a_commit_covers_the_current_record(client: AsyncClient) -> None:
    await client.create_stream("one")
    await fill(client, 5)

    async with client.consumer("g", "one", options=MANUAL) as first:
        async for record in first:
            if record.value == b"1":
                await first.commit()
            if record.value == b"3":
                break
    async with client.consumer("g", "one", options=MANUAL) as second:
        found = await take(second, 3)
        await second.commit({("one", 0): 1})
    async with client.consumer("g", "one") as third:
        again = await take(third, 1)

    assert numbers(found) == [2, 3, 4]
    assert numbers(again) == [1]


async def test_a_failure_in_the_loop_commits_nothing(client: AsyncClient) -> None:
    await client.create_stream("one")
    await fill(client, 3)

    async def fail() -> None:
        async with client.consumer("g", "one") as first:
            await take(first, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with client.consumer("g", "one") as second:
        found = await take(second, 3)

    assert numbers(found) == [0, 1, 2]


async def test_polls_return_no_more_records_than_requested_and_end_in_time(client: AsyncClient) -> None:
    await client.create_stream("one")
    await fill(client, 5)

    async with client.consumer("g", "one") as consumer:
        assert consumer.assignment == []
        found = await consumer.poll(WAIT_S, records_max=3)
        assert consumer.assignment == [("one", 0)]
        assert consumer.position("one", 0) == 3
        found += await consumer.poll(WAIT_S)
        nothing = await consumer.poll(0.02)

    assert numbers(found) == [0, 1, 2, 3, 4]
    assert nothing == []


async def test_offsets_are_committed_while_the_consumer_runs(grpc_node: GrpcNode) -> None:
    settings = ClientSettings(linger_ms=1, auto_commit_ms=0)
    async with AsyncClient(grpc_node.address, settings=settings) as client:
        await client.create_stream("one")
        await fill(client, 3)
        async with client.consumer("g", "one") as consumer:
            await take(consumer, 3)
            (key,) = (await grpc_node.streams.catalog.find("one")).partitions()
            committed = -1
            async with asyncio.timeout(WAIT_S):
                while committed < 3:  # the next poll marks returned records as processed
                    assert await consumer.poll(0.01) == []
                    found = (await grpc_node.streams.groups.offsets("g", [key])).get(key)
                    committed = -1 if found is None else found.offset

    assert committed == 3


async def test_a_seek_moves_back_ahead_and_to_the_bounds(client: AsyncClient) -> None:
    await client.create_stream("one", partition_count=2)
    await fill(client, 10)

    async with client.consumer("g", "one") as consumer:
        await take(consumer, 10)
        await consumer.seek("one", 1, 3)
        ahead = await take(consumer, 2)
        await consumer.seek("one", 0, "earliest")
        back = await take(consumer, 5)
        await consumer.seek("one", 0, "latest")
        await consumer.seek("one", 1, "latest")
        assert await consumer.poll(0.02) == []
        await fill(client, 1, first=10)
        new = await take(consumer, 1)
        with pytest.raises(ValueError, match="not assigned"):
            await consumer.seek("one", 2, 0)

    assert numbers(ahead) == [7, 9]
    assert numbers(back) == [0, 2, 4, 6, 8]
    assert numbers(new) == [10]


async def test_members_divide_the_partitions_and_each_record_is_returned_once(client: AsyncClient) -> None:
    await client.create_stream("one", partition_count=4)
    await fill(client, 40)
    found: list[int] = []

    async def run(consumer: AsyncConsumer, until: int) -> None:
        while len(found) < until:
            found.extend(numbers(await consumer.poll(0.05)))

    async with asyncio.timeout(WAIT_S), client.consumer("g", "one") as first:
        await run(first, 40)
        async with client.consumer("g", "one") as second:
            while not (len(first.assignment) == len(second.assignment) == 2):
                found.extend(numbers(await first.poll(0.01) + await second.poll(0.01)))
            await fill(client, 40, first=40)
            await asyncio.gather(run(first, 80), run(second, 80))
        while len(first.assignment) < 4:
            await first.poll(0.01)
        await fill(client, 4, first=80)
        await run(first, 84)

    assert Counter(found) == Counter(range(84))


async def stop(node: GrpcNode, how: str) -> None:
    """End the server, and the group's coordination there."""
    await (node.server.drain(2_000) if how == "drain" else node.server.close())
    await node.streams.drain()


@pytest.mark.parametrize("how", ["drain", "kill"])
async def test_a_stopping_server_makes_no_consumer_return_a_record_twice(grpc_cluster: MakeGrpc, how: str) -> None:
    pair = await grpc_cluster(2)
    async with AsyncClient(pair[1].address, settings=QUICK) as filler:
        await filler.create_stream("one", partition_count=2)
        await fill(filler, 50)
        async with AsyncClient(pair[0].address, pair[1].address, settings=QUICK) as client:
            options = ConsumerOptions(auto_commit=False, session_timeout_ms=60_000)
            async with client.consumer("g", "one", options=options) as consumer:
                found = await take(consumer, 30)
                stopping = asyncio.create_task(stop(pair[0], how))
                found += await take(consumer, 20)
                await fill(filler, 50, first=50)
                found += await take(consumer, 50)
                await consumer.commit()
                await stopping

        assert sorted(numbers(found)) == list(range(100))


async def test_missing_streams_are_reported(client: AsyncClient) -> None:
    consumer = client.consumer("g", "none")

    with pytest.raises(NotFound, match="none"):
        await consumer.poll(WAIT_S)
    await consumer.close()
    with pytest.raises(ValueError, match="at least one stream"):
        client.consumer("g")


async def test_a_commit_without_a_server_is_refused_and_closing_is_still_possible() -> None:
    async with AsyncClient("127.0.0.1:1", settings=QUICK) as client, client.consumer("g", "one") as consumer:
        await consumer.commit()  # of nothing
        with pytest.raises(Unavailable):
            await consumer.commit({("one", 0): 1})
        assert await consumer.poll(0.02) == []


async def test_a_cancelled_poll_loses_nothing(client: AsyncClient) -> None:
    await client.create_stream("one")
    await fill(client, 300)
    found: list[int] = []

    async with asyncio.timeout(WAIT_S), client.consumer("g", "one") as consumer:
        for turn in range(1000):
            polling = asyncio.create_task(consumer.poll(0.02, records_max=1))
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            polling.cancel()
            await asyncio.wait({polling})
            if not polling.cancelled():
                found += numbers(polling.result())
        while len(found) < 300:
            found += numbers(await consumer.poll(1.0))

    assert found == list(range(300))
