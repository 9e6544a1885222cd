"""Subscriptions on several servers: saved, taken over, given up; and their limits."""

import asyncio

import pytest

from bearlake.errors import Fenced, Overloaded, Unavailable
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import Closed, EntryAck, NotHolder, SubscriptionType
from fixtures.deployment import NOW_MS, append, batch_of
from fixtures.subscriptions import attach, attachment, lake
from simulator.loop import virtual_time


@virtual_time
async def test_another_server_learns_the_dispatcher_and_takes_over_when_it_drains() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        consumer = await attach(first, made.partition)
        await consumer.got(2)
        with pytest.raises(NotHolder) as refused:
            await attach(second, made.partition)
        assert refused.value.holder == streams.server == await second.holder(made.partition)

        attachment(consumer).acknowledge([EntryAck(0)])
        await first.drain()

        assert consumer.closings == [Closed.MOVED]
        assert await second.holder(made.partition) is None
        with pytest.raises(NotHolder):
            await attach(first, made.partition)
        moved = await attach(second, made.partition)
        assert await moved.got(1) == [1]


@virtual_time
async def test_a_killed_server_s_partition_is_taken_over_when_its_registration_is_dead() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        consumer = await attach(first, made.partition)
        await consumer.got(3)
        attachment(consumer).acknowledge([EntryAck(1)])
        await attachment(consumer).flushed()
        attachment(consumer).acknowledge([EntryAck(0)])  # not saved: the kill happens first
        await made.kill(first)
        await made.stores.metadata.servers.leave(streams.server)

        heir = await attach(second, made.partition)

        assert await heir.got(2) == [0, 2]


@virtual_time
async def test_an_overtaken_server_stops_at_its_next_save() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        reader, second = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        consumer = await attach(first, made.partition)
        await consumer.got(2)
        await made.stores.metadata.servers.leave(streams.server)
        heir = await attach(second, made.partition)
        await heir.got(2)

        attachment(consumer).acknowledge([EntryAck(0)])
        with pytest.raises(Fenced):
            await attachment(consumer).flushed()

        assert consumer.closings == [Closed.FENCED]
        await append(reader, made.view, batch_of(b"c"))
        await heir.got(3)
        assert consumer.bases == [0, 1]
        (stored,) = await made.cursors.load(made.partition)
        assert stored.mark_delete == 0


@virtual_time
async def test_an_idle_partition_is_given_up() -> None:
    async with lake(idle_ms=2_000) as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        consumer = await attach(first, made.partition)
        await asyncio.sleep(10)
        assert await second.holder(made.partition) == streams.server

        attachment(consumer).detach()
        await consumer.until(lambda: not first._holdings.all())  # noqa: SLF001 - memory that nothing else shows

        assert await second.holder(made.partition) is None
        await attach(second, made.partition)


@virtual_time
async def test_acknowledgements_wait_for_a_store_that_does_not_answer() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        consumer = await attach(service, made.partition)
        await consumer.got(1)
        made.cursors.fail_with = Unavailable("no answer")
        attachment(consumer).acknowledge([EntryAck(0)])
        with pytest.raises(Unavailable):
            await attachment(consumer).flushed()

        made.cursors.fail_with = None
        await attachment(consumer).flushed()

        (stored,) = await made.cursors.load(made.partition)
        assert stored.mark_delete == 1


@virtual_time
async def test_non_durable_subscriptions_need_no_lease_and_leave_nothing() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        await attach(first, made.partition)
        reader = await attach(second, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=1)

        assert await reader.got(1) == [1]
        attachment(reader).acknowledge([EntryAck(1)])
        await attachment(reader).flushed()
        attachment(reader).detach()

        assert await first.names(made.partition) == ["readers"]
        assert not second._local.all()  # noqa: SLF001 - memory that nothing else shows


@virtual_time
async def test_delayed_entries_are_delivered_in_time_from_another_server_too() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        await append(streams, made.view, batch_of(b"deliver at %d" % (NOW_MS + 5_000)), batch_of(b"now"))
        consumer = await attach(first, made.partition)
        await consumer.got(1)
        attachment(consumer).acknowledge([EntryAck(1)])
        await first.drain()
        heir = await attach(second, made.partition)
        await asyncio.sleep(1)
        assert heir.bases == []

        made.stores.clock.advance(5_000)

        assert await heir.got(1) == [0]
        assert heir.deliveries[0].redelivery_count == 0


@virtual_time
async def test_a_server_that_is_not_sure_of_its_registration_delivers_nothing_until_it_has_seen_its_lease() -> None:
    async with lake() as made:
        streams, service = await made.serve(is_live=lambda: is_live)
        _, other = await made.serve()
        is_live = True
        consumer = await attach(service, made.partition)
        gone = await attach(service, made.partition, subscription="other")
        await append(streams, made.view, batch_of(b"a"))
        await consumer.got(1)
        await gone.got(1)

        is_live = False
        await append(streams, made.view, batch_of(b"b"))
        attachment(consumer).redeliver([0])
        await asyncio.sleep(5)
        assert consumer.bases == [0]
        is_live = True
        await consumer.got(3)
        is_live = False
        await append(streams, made.view, batch_of(b"c"))
        await asyncio.sleep(5)
        await made.stores.metadata.servers.leave(streams.server)
        heir = await attach(other, made.partition)
        is_live = True

        await consumer.until(lambda: consumer.closings == [Closed.FENCED] == gone.closings)
        assert sorted(consumer.bases) == [0, 0, 1]
        assert await heir.got(3) == [0, 1, 2]


@virtual_time
async def test_consumers_subscriptions_and_partitions_are_bounded() -> None:
    limits = {"consumer_per_subscription_max": 2, "subscription_per_partition_max": 2, "consumer_count_max": 3}
    async with lake(**limits) as made:
        _, service = await made.serve()
        await attach(service, made.partition, name="a")
        last = await attach(service, made.partition, name="b")
        with pytest.raises(Overloaded, match="2 consumers"):
            await attach(service, made.partition, name="c")
        await attach(service, made.partition, subscription="second")
        with pytest.raises(Overloaded, match="3 consumers"):
            await attach(service, made.partition, subscription="second", name="d")

        attachment(last).detach()
        await asyncio.sleep(2)

        with pytest.raises(Overloaded, match="2 subscriptions"):
            await attach(service, made.partition, subscription="third")
        await attach(service, made.partition, name="b")


@virtual_time
async def test_cursors_that_move_together_are_saved_together() -> None:
    async with lake(save_ms=500) as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(20)))
        consumers = [await attach(service, made.partition, subscription=f"s{number}") for number in range(5)]
        for consumer in consumers:
            await consumer.got(20)
        before = len(made.cursors.saves)

        for base in range(20):
            for consumer in consumers:
                attachment(consumer).acknowledge([EntryAck(base)])
            await asyncio.sleep(0.01)
        await consumers[0].until(lambda: len(made.cursors.saves) > before)

        assert len(made.cursors.saves) == before + 1
        assert [len(save.updates) for save in made.cursors.saves[-1]] == [5]


@virtual_time
async def test_a_cursor_with_too_many_gaps_reports_that_it_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = AckCursor.pack
    monkeypatch.setattr(AckCursor, "pack", lambda self, bytes_max=20: pack(self, bytes_max))
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(60)))
        consumer = await attach(service, made.partition)
        await consumer.got(60)

        attachment(consumer).acknowledge([EntryAck(base) for base in range(1, 60, 2)])
        with pytest.raises(Overloaded, match="too many acknowledged ranges"):
            await attachment(consumer).flushed()
        attachment(consumer).acknowledge([EntryAck(base) for base in range(0, 60, 2)])
        await attachment(consumer).flushed()

        assert attachment(consumer).mark_delete == 60
