"""Client: the same without asyncio, against a server in an event loop of its own thread."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from bearlake.client import CallFailed, Client, ConsumerOptions, NotFound
from bearlake.telemetry import metrics
from fixtures.grpc_server import GrpcCluster
from fixtures.kafka_server import open_stores


@pytest.fixture
def address() -> Iterator[str]:
    """A server in a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> GrpcCluster:
        closing = AsyncExitStack()
        metadata, store = await open_stores(None, closing)
        cluster = GrpcCluster(metadata, store, closing)
        await cluster.add()
        return cluster

    cluster = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    yield cluster[0].address
    asyncio.run_coroutine_threadsafe(cluster.close(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


def test_a_program_without_asyncio_writes_and_reads(address: str) -> None:
    with Client(address) as client:
        client.create_stream("greetings", partition_count=2)
        with client.producer() as producer:
            futures = [producer.send("greetings", b"hello %d" % at, key=b"%d" % at) for at in range(100)]
        found = list(client.read("greetings", follow=False))
        reader = client.read("greetings", start="earliest")
        first = next(reader)
        reader.close()  # type: ignore[attr-defined]

    assert sorted(future.result(0) for future in futures) == sorted(item.offset for item in found)
    assert {item.value for item in found} == {b"hello %d" % at for at in range(100)}
    assert first in found


def test_a_program_without_asyncio_is_a_member_of_a_group(address: str) -> None:
    manual = ConsumerOptions(auto_commit=False)
    with Client(address) as client:
        client.create_stream("tasks", partition_count=2)
        with client.producer() as producer:
            for at in range(20):
                producer.send("tasks", b"%d" % at, partition=at % 2)
        with client.consumer("workers", "tasks", options=manual) as consumer:
            first = [int(record.value or b"") for _, record in zip(range(7), consumer, strict=False)]
            consumer.commit()
            assert consumer.assignment == [("tasks", 0), ("tasks", 1)]
            places = [consumer.position("tasks", at) for at in (0, 1)]
        with client.consumer("workers", "tasks") as consumer:
            second: list[int] = []
            while len(second) < 13:
                found = consumer.poll(20.0, records_max=5)
                assert found
                second += [int(record.value or b"") for record in found]
            consumer.seek("tasks", 0, 9)
            last = next(consumer)

    assert sum(place or 0 for place in places) == 7
    assert sorted(first + second) == list(range(20))
    assert (last.offset, last.value) == (9, b"18")


def interrupt_when_a_reader_waits() -> None:
    for _ in range(4_000):
        if metrics.FETCH_WAITING.value:
            break
        threading.Event().wait(0.005)
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_ends_the_wait_for_records_and_the_consumer_leaves_its_group(address: str) -> None:
    def listen(client: Client) -> None:
        with client.consumer("listeners", "quiet") as consumer:
            for _ in consumer:
                threading.Thread(target=interrupt_when_a_reader_waits).start()

    with Client(address) as client:
        client.create_stream("quiet")
        client.append("quiet", [b"a"])
        with pytest.raises(KeyboardInterrupt):
            listen(client)
        with client.consumer("listeners", "quiet") as consumer:
            again = consumer.poll(20.0)

    assert [record.value for record in again] == [b"a"]  # a loop that was interrupted commits nothing


def test_errors_are_raised_by_the_call_that_failed(address: str) -> None:
    with Client(address) as client:
        with pytest.raises(NotFound, match="NOT_FOUND"):
            client.describe_stream("none")
        with pytest.raises(CallFailed, match="NOT_FOUND"):
            list(client.read("none"))
        with client.producer() as producer, pytest.raises(CallFailed, match="NOT_FOUND"):
            producer.send("none", b"v")


def test_closing_twice_raises_no_error(address: str) -> None:
    client = Client(address)
    client.close()
    client.close()
