"""The meaning of an acknowledgement's receipt: an entry whose acknowledgement was confirmed is never delivered again."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bearlake.errors import Overloaded, Unavailable
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.model import Closed, EntryAck, SubscriptionType
from bearlake.streams.subscriptions.service import SubscriptionService
from fixtures.deployment import append, batch_of
from fixtures.liveness import lapse
from fixtures.subscriptions import Lake, attach, attachment, lake
from simulator.loop import virtual_time

ENTRY_COUNT = 4


class Behind:
    """Reads of a server that has followed the log only up to `end`, if `end` is given."""

    def __init__(self, streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
        self.end: int | None = None
        self._fetch = streams.fetch
        monkeypatch.setattr(streams, "fetch", self.fetch)

    async def fetch(self, ranges: Sequence[FetchRange], **options: Any) -> list[Fetched]:
        """`Streams.fetch`."""
        if self.end is None or all(item.offset < self.end for item in ranges):
            return await self._fetch(ranges, **options)
        await asyncio.sleep(options["wait_ms"] / 1000)
        return [Fetched(range=item, start=0, end=self.end, last_stable=self.end) for item in ranges]


async def filled(made: Lake) -> tuple[Streams, SubscriptionService]:
    """A server whose stream has `ENTRY_COUNT` entries of one record."""
    streams, service = await made.serve()
    await append(streams, made.view, *(batch_of(b"%d" % number) for number in range(ENTRY_COUNT)))
    return streams, service


async def delivered_after_restart(made: Lake, service: SubscriptionService, type_: SubscriptionType) -> list[int]:
    """The entries that a consumer gets after the server has died and the next one has taken over."""
    await made.kill(service)
    await lapse(made.stores.metadata, service._server)  # noqa: SLF001
    _, successor = await made.serve()
    consumer = await attach(successor, made.partition, type_)
    await asyncio.sleep(5)
    return consumer.bases


TYPES = [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE]


@virtual_time
@pytest.mark.parametrize("type_", TYPES)
async def test_a_confirmed_acknowledgement_of_an_entry_that_was_not_followed_yet_is_kept(
    type_: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lake() as made:
        streams, service = await filled(made)
        behind = Behind(streams, monkeypatch)
        behind.end = 2
        consumer = await attach(service, made.partition, type_, permits=0)

        attachment(consumer).acknowledge([EntryAck(2)])
        receipt = asyncio.create_task(attachment(consumer).flushed())
        await asyncio.sleep(1)
        behind.end = None
        await receipt

        assert await delivered_after_restart(made, service, type_) == [0, 1, 3]


@virtual_time
async def test_a_receipt_does_not_wait_forever_for_unreadable_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lake(resolve_wait_ms=3_000) as made:
        streams, service = await filled(made)
        behind = Behind(streams, monkeypatch)
        behind.end = 2
        consumer = await attach(service, made.partition, permits=0)
        attachment(consumer).acknowledge([EntryAck(2)])

        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                await attachment(consumer).flushed()
        behind.end = None
        await attachment(consumer).flushed()

        assert await delivered_after_restart(made, service, SubscriptionType.SHARED) == [0, 1, 3]


@virtual_time
async def test_acknowledgements_of_entries_that_do_not_exist_delay_nothing() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition, permits=0)

        attachment(consumer).acknowledge([EntryAck(ENTRY_COUNT), EntryAck(99), EntryAck(3)])
        async with asyncio.timeout(1):
            await attachment(consumer).flushed()

        assert await delivered_after_restart(made, service, SubscriptionType.SHARED) == [0, 1, 2]


@virtual_time
async def test_acknowledgements_of_unknown_entries_above_the_limit_are_refused_and_the_entries_redelivered() -> None:
    async with lake(unresolved_ack_count_max=2) as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition, permits=0)

        with pytest.raises(Overloaded):
            attachment(consumer).acknowledge([EntryAck(base) for base in range(ENTRY_COUNT)])
        await attachment(consumer).flushed()
        attachment(consumer).flow(10)

        assert await consumer.got(2) == [2, 3]


@virtual_time
async def test_a_receipt_after_the_end_of_its_consumer_reports_dropped_acknowledgements() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition, permits=0)

        attachment(consumer).acknowledge([EntryAck(1)])
        attachment(consumer).detach()

        with pytest.raises(Unavailable):
            await attachment(consumer).flushed()
        with pytest.raises(Unavailable):
            attachment(consumer).acknowledge([EntryAck(2)])
        assert await delivered_after_restart(made, service, SubscriptionType.SHARED) == [0, 1, 2, 3]


@virtual_time
async def test_acknowledgements_before_the_end_of_a_consumer_are_confirmed_after_it() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)

        attachment(consumer).acknowledge([EntryAck(1)])
        attachment(consumer).detach()
        await attachment(consumer).flushed()

        assert await delivered_after_restart(made, service, SubscriptionType.SHARED) == [0, 2, 3]


@virtual_time
async def test_while_reads_fail_unknown_entries_are_not_acknowledged_silently() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition, permits=0)
        (held,) = service._holdings.all()  # noqa: SLF001 - as in a drain, before consumers are notified
        held.subscriptions["readers"].stop()  # as a drain does, before the consumers are notified

        with pytest.raises(Unavailable):
            attachment(consumer).acknowledge([EntryAck(1)])


@virtual_time
async def test_nothing_is_confirmed_while_it_is_unknown_whether_the_subscription_was_deleted() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)
        made.cursors.lose_with = Unavailable("the reply was lost")

        with pytest.raises(Unavailable):
            await service.delete(made.partition, "readers", is_forced=True)
        with pytest.raises(Unavailable):
            attachment(consumer).acknowledge([EntryAck(1)])
        again = await attach(service, made.partition)
        await again.got(ENTRY_COUNT)
        attachment(again).acknowledge([EntryAck(1)])
        await attachment(again).flushed()

        assert consumer.closings == [Closed.FAILED]
        assert await delivered_after_restart(made, service, SubscriptionType.SHARED) == [0, 2, 3]


@virtual_time
async def test_a_deletion_whose_caller_gives_up_leaves_no_subscription_that_saves_cannot_reach() -> None:
    async with lake() as made:
        _, service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)

        made.cursors.is_hanging = True
        deletion = asyncio.create_task(service.delete(made.partition, "readers", is_forced=True))
        await made.cursors.deleted.wait()
        deletion.cancel()
        await asyncio.gather(deletion, return_exceptions=True)

        with pytest.raises(Unavailable):
            attachment(consumer).acknowledge([EntryAck(1)])
