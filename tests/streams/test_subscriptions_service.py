"""Subscriptions on servers: attached, delivered, saved, taken over, given up."""

import asyncio
from functools import partial

import pytest

from bearlake.errors import AlreadyExists, Fenced, NotFound, Overloaded, Unavailable
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.subscriptions.attachment import Attached
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import EARLIEST, LATEST, Busy, Closed, EntryAck, NotHolder, SubscriptionType
from bearlake.testing.loop import virtual_time
from fixtures.deployment import NOW_MS, append, batch_of
from fixtures.subscriptions import Consumer, attach, lake, values_of


def attachment(consumer: Consumer) -> Attached:
    assert consumer.attachment is not None
    return consumer.attachment


@virtual_time
async def test_what_is_appended_is_delivered_in_order_and_acknowledged_durably() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition, SubscriptionType.EXCLUSIVE)
        await append(streams, made.view, batch_of(b"a", b"b"), batch_of(b"c"))

        assert await consumer.got(2) == [0, 2]
        attachment(consumer).acknowledge([EntryAck(0)])
        await attachment(consumer).flushed()

        assert attachment(consumer).mark_delete == 2
        (stored,) = await made.cursors.load(made.partition)
        assert (stored.mark_delete, stored.acknowledged) == (2, b"")


@virtual_time
async def test_a_consumer_that_waits_at_the_end_gets_the_next_records() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition)
        await asyncio.sleep(5)

        await append(streams, made.view, batch_of(b"late"))

        assert await consumer.got(1) == [0]


@virtual_time
async def test_permits_bound_what_is_delivered() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(10)))
        consumer = await attach(service, made.partition, permits=3)
        await consumer.got(3)
        await asyncio.sleep(1)
        assert consumer.bases == [0, 1, 2]

        attachment(consumer).flow(2)

        assert await consumer.got(5) == [0, 1, 2, 3, 4]


@virtual_time
async def test_an_entry_acknowledged_in_parts_comes_again_with_the_rest() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b", b"c", b"d"))
        consumer = await attach(service, made.partition)
        await consumer.got(1)

        attachment(consumer).acknowledge([EntryAck(0, open_bits=0b0101)])
        attachment(consumer).redeliver([0])
        await consumer.got(2)

        again = consumer.deliveries[1]
        assert (again.redelivery_count, again.acknowledged, again.open_count) == (1, [(1, 2), (3, 4)], 2)


@virtual_time
async def test_what_a_consumer_leaves_behind_goes_to_another_one() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        one = await attach(service, made.partition)
        await one.got(2)
        other = await attach(service, made.partition, name="other")
        attachment(one).acknowledge([EntryAck(1)])

        attachment(one).detach()

        assert await other.got(1) == [0]
        assert other.deliveries[0].redelivery_count == 1
        assert values_of(other) == [b"a"]


@virtual_time
async def test_a_second_exclusive_consumer_is_busy_and_so_is_another_type() -> None:
    async with lake() as made:
        _, service = await made.serve()
        await attach(service, made.partition, SubscriptionType.EXCLUSIVE)

        for type_ in SubscriptionType:
            with pytest.raises(Busy):
                await attach(service, made.partition, type_, name="other")


@virtual_time
async def test_the_subscription_goes_on_where_it_was_when_its_consumers_have_gone() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        one = await attach(service, made.partition)
        await one.got(3)
        attachment(one).acknowledge([EntryAck(0), EntryAck(2)])
        attachment(one).detach()

        other = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, position=LATEST)
        await append(streams, made.view, batch_of(b"d"))

        assert await other.got(2) == [1, 3]


@virtual_time
async def test_another_server_is_told_who_dispatches_and_takes_over_when_that_one_drains() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        _, other = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        consumer = await attach(one, made.partition)
        await consumer.got(2)
        with pytest.raises(NotHolder) as refused:
            await attach(other, made.partition)
        assert refused.value.holder == streams.server == await other.holder(made.partition)

        attachment(consumer).acknowledge([EntryAck(0)])
        await one.drain()

        assert consumer.closings == [Closed.MOVED]
        assert await other.holder(made.partition) is None
        with pytest.raises(NotHolder):
            await attach(one, made.partition)
        moved = await attach(other, made.partition)
        assert await moved.got(1) == [1]


@virtual_time
async def test_a_killed_server_s_partition_is_taken_over_when_its_registration_is_dead() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        _, other = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        consumer = await attach(one, made.partition)
        await consumer.got(3)
        attachment(consumer).acknowledge([EntryAck(1)])
        await attachment(consumer).flushed()
        attachment(consumer).acknowledge([EntryAck(0)])  # not saved: the kill comes first
        await made.kill(one)
        await made.stores.metadata.servers.leave(streams.server)

        heir = await attach(other, made.partition)

        assert await heir.got(2) == [0, 2]


@virtual_time
async def test_an_overtaken_server_stops_at_its_next_save() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        reader, other = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        consumer = await attach(one, made.partition)
        await consumer.got(2)
        await made.stores.metadata.servers.leave(streams.server)
        heir = await attach(other, made.partition)
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
        streams, one = await made.serve()
        _, other = await made.serve()
        consumer = await attach(one, made.partition)
        await asyncio.sleep(10)
        assert await other.holder(made.partition) == streams.server

        attachment(consumer).detach()
        await consumer.until(lambda: not one._holdings.all())

        assert await other.holder(made.partition) is None
        await attach(other, made.partition)


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
async def test_entries_that_this_server_did_not_read_are_acknowledged_too() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b"), batch_of(b"c", b"d", b"e"), batch_of(b"f"))
        consumer = await attach(service, made.partition, permits=0)

        attachment(consumer).acknowledge([EntryAck(2), EntryAck(99), EntryAck(3)])
        await attachment(consumer).flushed()

        (stats,) = await service.stats(made.partition)
        assert (stats.mark_delete, stats.range_count, stats.backlog_count) == (0, 1, 3)
        attachment(consumer).flow(100)
        assert await consumer.got(2) == [0, 5]


@virtual_time
async def test_cumulative_acknowledgements_end_inside_and_behind_entries() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b"), batch_of(b"c", b"d", b"e"), batch_of(b"f"))
        consumer = await attach(service, made.partition, SubscriptionType.EXCLUSIVE)
        await consumer.got(3)

        attachment(consumer).acknowledge_through(EntryAck(2, open_bits=0b110))
        assert attachment(consumer).mark_delete == 3
        attachment(consumer).acknowledge_through(EntryAck(4))
        assert attachment(consumer).mark_delete == 5
        attachment(consumer).redeliver_all()
        await consumer.got(4)

        assert consumer.bases == [0, 2, 5, 5]
        assert consumer.deliveries[3].redelivery_count == 0


@virtual_time
async def test_seek_closes_the_consumers_and_goes_on_from_there() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b", b"c"), batch_of(b"d", timestamp=NOW_MS + 10))
        consumer = await attach(service, made.partition)
        await consumer.got(3)
        attachment(consumer).acknowledge([EntryAck(0), EntryAck(1), EntryAck(3)])

        await attachment(consumer).seek(2)

        assert consumer.closings == [Closed.RESET]
        again = await attach(service, made.partition)
        await again.got(2)
        assert [(item.base_offset, list(item.acknowledged)) for item in again.deliveries] == [(1, [(1, 2)]), (3, [])]
        await attachment(again).seek_time(NOW_MS + 5)
        last = await attach(service, made.partition)
        assert await last.got(1) == [3]
        await service.seek(made.partition, "readers", EARLIEST)
        assert last.closings == [Closed.RESET]
        assert (await made.cursors.load(made.partition))[0].mark_delete == 0


@virtual_time
async def test_a_trim_moves_the_cursor() -> None:
    async with lake(read_bytes_max=1) as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(6)))
        consumer = await attach(service, made.partition, permits=2)
        await consumer.got(2)

        await streams.trim(ANONYMOUS, "orders", 0, 4)
        tail = streams._tail.get(made.partition)
        assert tail is not None
        await consumer.until(lambda: tail.start == 4)
        attachment(consumer).flow(10)

        assert await consumer.got(4) == [0, 1, 4, 5]
        assert attachment(consumer).mark_delete == 4


@virtual_time
async def test_a_subscription_without_consumers_is_shown_at_the_start_of_a_trimmed_partition() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(6)))
        await service.create(made.partition, "idle", EARLIEST)

        await streams.trim(ANONYMOUS, "orders", 0, 4)

        (stats,) = await service.stats(made.partition)
        assert (stats.mark_delete, stats.backlog_count) == (4, 2)


@virtual_time
async def test_an_entry_that_a_trim_has_cut_into_is_delivered_again_with_what_is_left() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b", b"c"))
        consumer = await attach(service, made.partition)
        await consumer.got(1)
        await streams.trim(ANONYMOUS, "orders", 0, 2)
        tail = streams._tail.get(made.partition)
        assert tail is not None
        await consumer.until(lambda: tail.start == 2)

        attachment(consumer).redeliver([0])
        await consumer.got(2)

        assert consumer.deliveries[1].acknowledged == [(0, 2)]


@virtual_time
async def test_a_deleted_stream_closes_its_consumers() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        reading = await attach(service, made.partition)
        idle = await attach(service, made.partition, subscription="idle", permits=0)
        local = await attach(service, made.partition, subscription="local", permits=0, is_durable=False)

        await streams.delete(ANONYMOUS, "orders")

        for consumer in (reading, idle, local):
            await consumer.until(partial(bool, consumer.closings))
            assert consumer.closings == [Closed.DELETED]
        with pytest.raises(NotFound):
            await attach(service, made.partition)


@virtual_time
async def test_non_durable_subscriptions_need_no_lease_and_leave_nothing() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        _, other = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        await attach(one, made.partition)
        reader = await attach(other, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=1)

        assert await reader.got(1) == [1]
        attachment(reader).acknowledge([EntryAck(1)])
        await attachment(reader).flushed()
        attachment(reader).detach()

        assert await one.names(made.partition) == ["readers"]
        assert not other._local


@virtual_time
async def test_a_reader_that_seeks_comes_back_to_where_it_sought() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        reader = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=LATEST)

        await attachment(reader).seek(1)
        again = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=LATEST)

        assert await again.got(2) == [1, 2]
        await attachment(again).seek(0)
        await again.until(lambda: not service._local, wait_s=100)


@virtual_time
async def test_unsubscribing_forgets_the_cursor() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        one = await attach(service, made.partition)
        other = await attach(service, made.partition, name="other")
        with pytest.raises(Busy):
            await attachment(one).unsubscribe()
        attachment(other).detach()

        await attachment(one).unsubscribe()

        assert one.closings == []
        assert await service.names(made.partition) == []
        with pytest.raises(NotFound):
            await service.seek(made.partition, "readers", EARLIEST)


@virtual_time
async def test_subscriptions_are_made_shown_skipped_and_deleted_without_consumers() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        _, other = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(4)))
        await one.create(made.partition, "made", EARLIEST, {"color": "red"})
        with pytest.raises(AlreadyExists):
            await one.create(made.partition, "made", LATEST)

        await one.skip(made.partition, "made", 3)
        (stats,) = await one.stats(made.partition)
        assert (stats.name, stats.type, stats.mark_delete, stats.backlog_count) == ("made", None, 3, 1)
        assert stats.properties == {"color": "red"}
        with pytest.raises(NotHolder):
            await other.delete(made.partition, "made")
        consumer = await attach(one, made.partition, subscription="made")
        with pytest.raises(Busy):
            await one.delete(made.partition, "made")
        await one.delete(made.partition, "made", is_forced=True)

        assert consumer.closings == [Closed.UNSUBSCRIBED]
        assert await other.names(made.partition) == []


@virtual_time
async def test_delayed_entries_come_in_time_also_from_another_server() -> None:
    async with lake() as made:
        streams, one = await made.serve()
        _, other = await made.serve()
        await append(streams, made.view, batch_of(b"deliver at %d" % (NOW_MS + 5_000)), batch_of(b"now"))
        consumer = await attach(one, made.partition)
        await consumer.got(1)
        attachment(consumer).acknowledge([EntryAck(1)])
        await one.drain()
        heir = await attach(other, made.partition)
        await asyncio.sleep(1)
        assert heir.bases == []

        made.stores.clock.advance(5_000)

        assert await heir.got(1) == [0]
        assert heir.deliveries[0].redelivery_count == 0


@virtual_time
async def test_failover_hands_over_when_the_former_one_has_acknowledged_or_had_its_time() -> None:
    async with lake(handover_ms=1_000) as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        late = await attach(service, made.partition, SubscriptionType.FAILOVER, name="late")
        await late.got(2)
        loop = asyncio.get_running_loop()
        started = loop.time()

        early = await attach(service, made.partition, SubscriptionType.FAILOVER, name="early")
        attachment(late).acknowledge([EntryAck(0)])
        await append(streams, made.view, batch_of(b"c"))

        assert await early.got(2) == [1, 2]
        assert 0.9 < loop.time() - started < 1.2
        assert (late.activities, early.activities) == ([True, False], [True])
        attachment(early).detach()
        assert await late.got(4) == [0, 1, 1, 2]
        assert late.activities == [True, False, True]


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


# -- limits ------------------------------------------------------------------------------------------------------


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
async def test_more_acknowledgements_of_unknown_entries_than_allowed_are_dropped_and_come_again() -> None:
    async with lake(unresolved_ack_count_max=2) as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(4)))
        consumer = await attach(service, made.partition, permits=0)

        attachment(consumer).acknowledge([EntryAck(base) for base in range(4)])
        await attachment(consumer).flushed()
        attachment(consumer).flow(10)

        assert await consumer.got(2) == [2, 3]


@virtual_time
async def test_a_cursor_with_too_many_holes_says_that_it_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = AckCursor.pack
    monkeypatch.setattr(AckCursor, "pack", lambda self, bytes_max=20: pack(self, bytes_max))
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(60)))
        consumer = await attach(service, made.partition)
        await consumer.got(60)

        attachment(consumer).acknowledge([EntryAck(base) for base in range(1, 60, 2)])
        with pytest.raises(Overloaded, match="holes"):
            await attachment(consumer).flushed()
        attachment(consumer).acknowledge([EntryAck(base) for base in range(0, 60, 2)])
        await attachment(consumer).flushed()

        assert attachment(consumer).mark_delete == 60
