"""Damaged entries: their readers get an error, all others continue, and reading continues after a repair."""

import asyncio
import logging

import pytest

from bearlake.errors import Corrupt
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.model import EARLIEST, Closed, ConsumerSpec, Damaged, SubscriptionType
from bearlake.streams.subscriptions.service import SubscriptionService
from bearlake.telemetry import metrics
from fixtures.damaged_objects import Damage
from fixtures.deployment import append, batch_of, create, deployment, values_of
from fixtures.subscriptions import Consumer, KeyReader, Lake, attach, lake
from simulator.loop import virtual_time

SHARED = ConsumerSpec(type=SubscriptionType.SHARED, name="one", position=EARLIEST)


async def damaged(made: Lake) -> tuple[Streams, SubscriptionService, Damage]:
    """The writer, a server that has cached nothing, a stream with two batches in two objects, and damage in the second one."""
    streams, _ = await made.serve()
    batches = [batch_of(b"a"), batch_of(b"b")]
    for batch in batches:
        await append(streams, made.view, batch)
    damage = await Damage.of(made.stores.store, batches[1])
    _, service = await made.serve()
    return streams, service, damage


async def attach_damaged(service: SubscriptionService, made: Lake, subscription: str = "readers") -> Consumer:
    """Attach a consumer and wait until it is closed."""
    consumer = await attach(service, made.partition, subscription=subscription)
    await consumer.until(lambda: bool(consumer.closings))
    return consumer


@virtual_time
async def test_consumers_of_damaged_entries_are_closed_and_learn_the_reason_when_they_attach_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bearlake.streams.subscriptions")
    async with lake() as made:
        _, service, damage = await damaged(made)
        before = metrics.SUBSCRIPTION_DAMAGED_READS.value
        consumer = await attach_damaged(service, made)
        for _ in range(3):
            with pytest.raises(Damaged, match="damaged in the store"):
                await service.attach(made.partition, "readers", SHARED, Consumer(), KeyReader())
        logged = [record.levelname for record in caplog.records if "of a subscription are damaged" in record.message]
        await damage.repair()
        again = await attach(service, made.partition)

        assert consumer.closings == [Closed.DAMAGED]
        assert metrics.SUBSCRIPTION_DAMAGED_READS.value == before + 4
        assert logged == ["ERROR"]
        assert set(await again.got(2)) == {0, 1}
        assert again.closings == []


@virtual_time
async def test_non_durable_readers_are_refused_until_the_repair() -> None:
    async with lake() as made:
        _, service, damage = await damaged(made)
        spec = ConsumerSpec(type=SubscriptionType.EXCLUSIVE, name="one", position=EARLIEST, is_durable=False)
        consumer = Consumer()
        attached = await service.attach(made.partition, "reader", spec, consumer, KeyReader())
        attached.flow(10)
        await consumer.until(lambda: bool(consumer.closings))
        with pytest.raises(Damaged):
            await service.attach(made.partition, "reader", spec, Consumer(), KeyReader())
        await damage.repair()
        again = Consumer()
        (await service.attach(made.partition, "reader", spec, again, KeyReader())).flow(10)

        assert (await again.got(1))[-1] == 1


@virtual_time
async def test_a_subscription_behind_the_damage_delivers() -> None:
    async with lake() as made:
        streams, service, _ = await damaged(made)
        await attach_damaged(service, made)
        other = await attach(service, made.partition, subscription="other", position=2)
        await append(streams, made.view, batch_of(b"c"))

        assert await other.got(1) == [2]
        assert other.closings == []


@pytest.mark.parametrize("is_skipped", [True, False], ids=["skip", "seek"])
def test_an_operator_can_move_a_subscription_past_the_damage(is_skipped: bool) -> None:
    @virtual_time
    async def body() -> None:
        async with lake() as made:
            streams, service, _ = await damaged(made)
            await attach_damaged(service, made)
            await append(streams, made.view, batch_of(b"c"))
            if is_skipped:
                await service.skip(made.partition, "readers", 2)
            else:
                await service.seek(made.partition, "readers", 2)
            again = await attach(service, made.partition)

            assert await again.got(1) == [2]

    body()


@virtual_time
async def test_each_read_of_damaged_bytes_affects_its_own_partition_and_ends_with_the_repair() -> None:
    async with deployment() as stores:
        writer, reader = await stores.serve(), await stores.serve()
        view = await create(writer, partition_count=2)
        batch = batch_of(b"a")
        await append(writer, view, batch, index=0)
        damage = await Damage.of(stores.store, batch)
        await append(writer, view, batch_of(b"b"), index=1)
        ranges = [FetchRange(view.partition(index), 0, 1 << 20) for index in range(2)]

        for _ in range(3):
            broken, whole = await reader.fetch(ranges, bytes_min=1, bytes_max=1 << 20, wait_ms=0)
            assert isinstance(broken.error, Corrupt)
            assert [value for _, value in values_of(whole)] == [b"b"]
        await damage.repair()
        (repaired,) = await reader.fetch(ranges[:1], bytes_min=1, bytes_max=1 << 20, wait_ms=0)
        assert [value for _, value in values_of(repaired)] == [b"a"]


@virtual_time
async def test_a_fetch_ends_before_the_damage_and_one_at_its_offset_fails() -> None:
    async with deployment() as stores:
        writer, reader = await stores.serve(), await stores.serve()
        view = await create(writer)
        batches = [batch_of(b"a"), batch_of(b"b"), batch_of(b"c")]
        for batch in batches:
            await append(writer, view, batch)
        await Damage.of(stores.store, batches[1])
        ranges = [FetchRange(view.partition(0), offset, 1 << 20) for offset in range(3)]

        before, at, behind = await reader.fetch(ranges, bytes_min=1, bytes_max=1 << 20, wait_ms=0)

        assert before.error is None
        assert [value for _, value in values_of(before)] == [b"a"]
        assert isinstance(at.error, Corrupt)
        assert [value for _, value in values_of(behind)] == [b"c"]


@pytest.mark.parametrize("is_skipped", [True, False], ids=["skip", "seek"])
def test_a_late_read_of_the_damage_does_not_undo_a_move_past_it(is_skipped: bool) -> None:
    """Clients attach again and again, so one of their reads is often under way when the operator moves the subscription."""

    @virtual_time
    async def body() -> None:
        async with lake() as made:
            _, service, _ = await damaged(made)
            await attach_damaged(service, made)
            reading = asyncio.create_task(service.attach(made.partition, "readers", SHARED, Consumer(), KeyReader()))
            await asyncio.sleep(0)
            if is_skipped:
                await service.skip(made.partition, "readers", 2)
            else:
                await service.seek(made.partition, "readers", 2)
            other = await attach(service, made.partition)
            await asyncio.gather(reading, return_exceptions=True)

            assert other.closings == []
            await attach(service, made.partition)

    body()


@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_entries_before_the_damage_are_delivered(type_: SubscriptionType, caplog: pytest.LogCaptureFixture) -> None:
    """And the log has the offset of the damage, so that an operator need not give up more."""

    @virtual_time
    async def body() -> None:
        async with lake() as made:
            streams, service, _ = await damaged(made)
            first = await attach(service, made.partition, type_)
            await first.until(lambda: bool(first.closings))
            assert first.bases == [0]
            assert {vars(record)["offset"] for record in caplog.records if "are damaged" in record.message} == {1}

            with pytest.raises(Damaged, match="from offset 1 on"):
                await attach(service, made.partition, type_)
            await service.seek(made.partition, "readers", 2)
            await append(streams, made.view, batch_of(b"c"))
            assert await (await attach(service, made.partition, type_)).got(1) == [2]

    body()


@virtual_time
async def test_a_skip_past_the_damage_during_its_read_closes_no_consumer() -> None:
    async with lake() as made:
        streams, service, _ = await damaged(made)
        consumer = await attach(service, made.partition)
        await service.skip(made.partition, "readers", 2)
        assert consumer.deliveries == []
        await append(streams, made.view, batch_of(b"c"))

        assert await consumer.got(1) == [2]
        assert consumer.closings == []
