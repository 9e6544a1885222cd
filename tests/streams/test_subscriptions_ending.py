"""The end of a terminated stream, as subscriptions report it to their consumers."""

import asyncio
from collections.abc import Collection

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.subscriptions.model import EntryAck, SubscriptionType
from fixtures.deployment import append, batch_of, verdicts_of
from fixtures.subscriptions import Consumer, attach, attachment, lake
from simulator.loop import virtual_time


async def told(consumer: Consumer, count: int = 1) -> None:
    await consumer.until(lambda: consumer.end_count >= count)


@virtual_time
@pytest.mark.parametrize("type_", list(SubscriptionType))
async def test_consumers_are_notified_once_when_all_is_acknowledged(type_: SubscriptionType) -> None:
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition, type_)
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b", b"c"))
        await consumer.got(2)
        await streams.terminate(ANONYMOUS, made.view.stream)
        attachment(consumer).acknowledge([EntryAck(1)])
        await asyncio.sleep(1)
        assert consumer.end_count == 0

        attachment(consumer).acknowledge([EntryAck(0)])

        await told(consumer)
        attachment(consumer).acknowledge([EntryAck(0)])
        await asyncio.sleep(1)
        assert consumer.end_count == 1


@virtual_time
@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_consumer_that_has_read_everything_is_notified_of_a_termination_on_another_server(
    is_durable: bool,
) -> None:
    async with lake() as made:
        streams, service = await made.serve()
        other, _ = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        consumer = await attach(service, made.partition, is_durable=is_durable)
        await consumer.got(1)
        attachment(consumer).acknowledge([EntryAck(0)])
        await asyncio.sleep(1)

        await other.terminate(ANONYMOUS, made.view.stream)

        await told(consumer)


@virtual_time
async def test_a_later_consumer_is_notified_and_after_a_seek_again() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        await streams.terminate(ANONYMOUS, made.view.stream)
        first = await attach(service, made.partition)
        await first.got(1)
        attachment(first).acknowledge([EntryAck(0)])
        await told(first)

        second = await attach(service, made.partition, name="two")
        await told(second)
        await attachment(second).seek(0)
        third = await attach(service, made.partition, name="three")
        await third.got(1)
        assert third.end_count == 0
        attachment(third).acknowledge([EntryAck(0)])

        await told(third)


@virtual_time
async def test_an_empty_stream_has_its_end_at_once() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition, permits=0)
        await streams.terminate(ANONYMOUS, made.view.stream)

        await told(consumer)


@virtual_time
async def test_a_failed_look_at_the_end_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition)
        failures = [Unavailable("the store does not answer")] * 3
        bounds = streams.bounds

        async def failing(partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
            if failures:
                raise failures.pop()
            return await bounds(partitions)

        monkeypatch.setattr(streams, "bounds", failing)

        await streams.terminate(ANONYMOUS, made.view.stream)

        await told(consumer)
        assert not failures


@virtual_time
async def test_appends_to_a_terminated_stream_are_refused_and_its_records_are_read() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        other, _ = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        await other.terminate(ANONYMOUS, made.view.stream)

        assert verdicts_of(await append(streams, made.view, batch_of(b"b"))) == ["TERMINATED"]
        assert await (await attach(service, made.partition)).got(1) == [0]
