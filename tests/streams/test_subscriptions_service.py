"""Subscriptions on a server: attached, delivered, acknowledged, moved, shown."""

import asyncio
from functools import partial

import pytest

from bearlake.errors import AlreadyExists, NotFound
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.subscriptions.model import EARLIEST, LATEST, Busy, Closed, EntryAck, NotHolder, SubscriptionType
from fixtures.deployment import NOW_MS, append, batch_of
from fixtures.subscriptions import attach, attachment, lake, values_of
from simulator.loop import virtual_time


@virtual_time
async def test_appended_records_are_delivered_in_order_and_acknowledged_durably() -> None:
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
async def test_permits_limit_deliveries() -> None:
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
async def test_a_partly_acknowledged_entry_is_redelivered_with_its_remaining_messages() -> None:
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
async def test_unacknowledged_entries_of_a_leaving_consumer_go_to_another() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"))
        first = await attach(service, made.partition)
        await first.got(2)
        second = await attach(service, made.partition, name="other")
        attachment(first).acknowledge([EntryAck(1)])

        attachment(first).detach()

        assert await second.got(1) == [0]
        assert second.deliveries[0].redelivery_count == 1
        assert values_of(second) == [b"a"]


@virtual_time
async def test_a_second_exclusive_consumer_is_busy_and_so_is_another_type() -> None:
    async with lake() as made:
        _, service = await made.serve()
        await attach(service, made.partition, SubscriptionType.EXCLUSIVE)

        for type_ in SubscriptionType:
            with pytest.raises(Busy):
                await attach(service, made.partition, type_, name="other")


@virtual_time
async def test_a_subscription_without_consumers_continues_at_its_position() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        first = await attach(service, made.partition)
        await first.got(3)
        attachment(first).acknowledge([EntryAck(0), EntryAck(2)])
        attachment(first).detach()

        second = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, position=LATEST)
        await append(streams, made.view, batch_of(b"d"))

        assert await second.got(2) == [1, 3]


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
async def test_cumulative_acknowledgements_end_inside_and_after_entries() -> None:
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
async def test_seek_closes_the_consumers_and_delivery_continues_at_the_new_position() -> None:
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
        tail = streams._tail.get(made.partition)  # noqa: SLF001 - the trim has reached the follower
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
async def test_a_skip_does_not_count_trimmed_messages() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(6)))
        await service.create(made.partition, "made", EARLIEST)
        await streams.trim(ANONYMOUS, "orders", 0, 4)

        await service.skip(made.partition, "made", 1)

        (stats,) = await service.stats(made.partition)
        assert (stats.mark_delete, stats.backlog_count) == (5, 1)


@virtual_time
async def test_an_entry_that_a_trim_has_cut_into_is_redelivered_with_its_remaining_messages() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a", b"b", b"c"))
        consumer = await attach(service, made.partition)
        await consumer.got(1)
        await streams.trim(ANONYMOUS, "orders", 0, 2)
        tail = streams._tail.get(made.partition)  # noqa: SLF001
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

        await streams.delete(ANONYMOUS, (await streams.catalog.resolve("orders")).stream)

        for consumer in (reading, idle, local):
            await consumer.until(partial(bool, consumer.closings))
            assert consumer.closings == [Closed.DELETED]
        with pytest.raises(NotFound):
            await attach(service, made.partition)


@virtual_time
async def test_a_reader_that_seeks_continues_where_it_sought() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
        reader = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=LATEST)

        await attachment(reader).seek(1)
        again = await attach(service, made.partition, SubscriptionType.EXCLUSIVE, is_durable=False, position=LATEST)

        assert await again.got(2) == [1, 2]
        await attachment(again).seek(0)
        await again.until(lambda: not service._local.all(), wait_s=100)  # noqa: SLF001 - memory that nothing else shows


@virtual_time
async def test_unsubscribing_forgets_the_cursor() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        await append(streams, made.view, batch_of(b"a"))
        first = await attach(service, made.partition)
        second = await attach(service, made.partition, name="other")
        with pytest.raises(Busy):
            await attachment(first).unsubscribe()
        attachment(second).detach()

        await attachment(first).unsubscribe()

        assert first.closings == []
        assert await service.names(made.partition) == []
        with pytest.raises(NotFound):
            await service.seek(made.partition, "readers", EARLIEST)


@virtual_time
async def test_subscriptions_are_made_shown_skipped_and_deleted_without_consumers() -> None:
    async with lake() as made:
        streams, first = await made.serve()
        _, second = await made.serve()
        await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(4)))
        await first.create(made.partition, "made", EARLIEST, {"color": "red"})
        with pytest.raises(AlreadyExists):
            await first.create(made.partition, "made", LATEST)

        await first.skip(made.partition, "made", 3)
        (stats,) = await first.stats(made.partition)
        assert (stats.name, stats.type, stats.mark_delete, stats.backlog_count) == ("made", None, 3, 1)
        assert stats.properties == {"color": "red"}
        with pytest.raises(NotHolder):
            await second.delete(made.partition, "made")
        consumer = await attach(first, made.partition, subscription="made")
        with pytest.raises(Busy):
            await first.delete(made.partition, "made")
        await first.delete(made.partition, "made", is_forced=True)

        assert consumer.closings == [Closed.UNSUBSCRIBED]
        assert await second.names(made.partition) == []


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
