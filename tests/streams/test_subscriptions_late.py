# ruff: noqa: SLF001 - leases are lost and released at the step that the test says, not by time
"""Abandoned cursor writes that reach the store late: they undo nothing that a client has learned since."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bearlake.errors import AlreadyExists, BearlakeError, NotFound, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor
from bearlake.streams.subscriptions.creating import create_cursor
from bearlake.streams.subscriptions.model import EARLIEST, Closed, EntryAck, SubscriptionType
from bearlake.streams.subscriptions.service import SubscriptionService
from fixtures.deployment import append, batch_of
from fixtures.liveness import lapse
from fixtures.subscriptions import Lake, attach, attachment, lake
from simulator.loop import virtual_time

ENTRY_COUNT = 4
ALL = list(range(ENTRY_COUNT))


async def filled(made: Lake) -> SubscriptionService:
    """A server whose stream has `ENTRY_COUNT` entries of one record."""
    streams, service = await made.serve()
    await append(streams, made.view, *(batch_of(b"%d" % number) for number in ALL))
    return service


async def delivered_after_restart(made: Lake, service: SubscriptionService, **spec: int) -> list[int]:
    """The entries that a consumer gets after the server has died and the next one has taken over."""
    await made.kill(service)
    await lapse(made.stores.metadata, service._server)
    _, successor = await made.serve()
    consumer = await attach(successor, made.partition, SubscriptionType.SHARED, **spec)
    await asyncio.sleep(5)
    return consumer.bases


async def give_up_deletion(made: Lake, service: SubscriptionService) -> None:
    """Delete the subscription; the request is given up, and reaches the store when it arrives."""
    made.cursors.is_late = True
    with pytest.raises(Unavailable):
        await service.delete(made.partition, "readers", is_forced=True)
    made.cursors.is_late = False


async def _attach(made: Lake, service: SubscriptionService) -> None:
    await attach(service, made.partition, permits=0)


async def _show(made: Lake, service: SubscriptionService) -> None:
    assert [shown.name for shown in await service.stats(made.partition)] == ["readers"]


async def _seek(made: Lake, service: SubscriptionService) -> None:
    await service.seek(made.partition, "readers", 0)


@virtual_time
@pytest.mark.parametrize("look", [_attach, _show, _seek])
async def test_a_late_deletion_removes_no_subscription_that_was_seen_since(
    look: Callable[[Lake, SubscriptionService], Awaitable[None]],
) -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        await give_up_deletion(made, service)

        await look(made, service)
        assert await made.cursors.arrive() == 1
        again = await attach(service, made.partition)
        await again.got(ENTRY_COUNT)
        attachment(again).acknowledge([EntryAck(1)])
        await attachment(again).flushed()

        assert await delivered_after_restart(made, service, position=ENTRY_COUNT) == [0, 2, 3]


@virtual_time
async def test_a_late_deletion_removes_no_subscription_that_another_server_has_found() -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        await give_up_deletion(made, service)

        cursors = made.stores.metadata.cursors  # as a producer with an initial subscription does, on any server
        after = await cursors.deletion_count(made.partition)
        await cursors.create(made.partition, "readers", mark_delete=0, properties={}, after=after)
        await made.cursors.arrive()

        assert await service.names(made.partition) == ["readers"]


@virtual_time
async def test_a_late_deletion_removes_no_subscription_that_a_creation_has_found() -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        await give_up_deletion(made, service)

        with pytest.raises(AlreadyExists):
            await service.create(made.partition, "readers", EARLIEST)
        await made.cursors.arrive()

        assert await service.names(made.partition) == ["readers"]


@virtual_time
async def test_after_a_deletion_whose_answer_was_lost_a_seek_finds_no_subscription() -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        await give_up_deletion(made, service)
        await made.cursors.arrive()

        with pytest.raises(NotFound):
            await service.seek(made.partition, "readers", 0)


@virtual_time
async def test_an_acknowledgement_that_the_store_did_not_keep_gets_no_receipt() -> None:
    async with lake() as made:
        service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)
        (held,) = service._holdings.all()
        await made.stores.metadata.cursors.delete(made.partition, {"readers": 0}, held.lease, after=0)

        attachment(consumer).acknowledge([EntryAck(1)])
        with pytest.raises(BearlakeError):
            await attachment(consumer).flushed()
        assert consumer.closings == [Closed.FAILED]
        again = await attach(service, made.partition)
        await again.got(ENTRY_COUNT)
        attachment(again).acknowledge([EntryAck(2)])
        await attachment(again).flushed()

        assert await delivered_after_restart(made, service) == [0, 1, 3]


@virtual_time
async def test_a_late_save_moves_no_recreated_subscription() -> None:
    async with lake() as made:
        service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)
        made.cursors.is_late = True
        attachment(consumer).acknowledge([EntryAck(base) for base in ALL])
        with pytest.raises(Unavailable):
            await attachment(consumer).flushed()
        made.cursors.is_late = False
        await service.delete(made.partition, "readers", is_forced=True)
        await attach(service, made.partition, permits=0)
        assert await made.cursors.arrive() >= 1

        assert await delivered_after_restart(made, service) == ALL


class Unreleased:
    """`Leases.release` without an answer, and without an effect, while `is_down`."""

    def __init__(self, service: SubscriptionService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_down = True
        self._release = service._leases.release
        monkeypatch.setattr(service._leases, "release", self.release)

    async def release(self, lease: Lease) -> None:
        """`Leases.release`."""
        if self.is_down:
            raise Unavailable("no answer")
        await self._release(lease)


@virtual_time
async def test_a_late_save_undoes_no_seek_after_its_partition_was_given_up_and_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lake() as made:
        service = await filled(made)
        consumer = await attach(service, made.partition)
        await consumer.got(ENTRY_COUNT)
        leases = Unreleased(service, monkeypatch)
        made.cursors.is_late = True
        for base in ALL:
            attachment(consumer).acknowledge([EntryAck(base)])
            with pytest.raises(Unavailable):
                await attachment(consumer).flushed()
        (held,) = service._holdings.all()
        await service._holdings.leave(held, Closed.MOVED)
        made.cursors.is_late = leases.is_down = False

        again = await attach(service, made.partition, permits=0)
        await attachment(again).seek(EARLIEST)
        assert await made.cursors.arrive() >= ENTRY_COUNT

        assert await delivered_after_restart(made, service) == ALL


@virtual_time
async def test_a_lease_that_could_not_be_released_is_released_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        leases = Unreleased(service, monkeypatch)
        (held,) = service._holdings.all()
        await service._holdings.leave(held, Closed.MOVED)
        assert await service.holder(made.partition) == service._server

        leases.is_down = False
        await asyncio.sleep(60)
        assert await service.holder(made.partition) is None


class Slow:
    """`CursorStore.load`, whose answers stay in flight until `go` is set."""

    def __init__(self, made: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self._load = made.cursors.load
        monkeypatch.setattr(made.cursors, "load", self.load)

    async def load(self, partition: PartitionKey) -> Sequence[Cursor]:
        """`CursorStore.load`."""
        stored = await self._load(partition)
        self.asked.set()
        await self.go.wait()
        return stored


@virtual_time
async def test_a_look_that_ends_after_the_partition_was_taken_again_saves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read returns the old cursor, below a start that a trim has moved: saving that cursor would undo the newer acknowledgement."""
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        (held,) = service._holdings.all()
        held.subscriptions.clear()
        slow = Slow(made, monkeypatch)
        await made.stores.metadata.log.trim(made.partition, 1)
        look = asyncio.create_task(service.stats(made.partition))
        await slow.asked.wait()
        service._holdings.overtaken(made.partition, held.lease)
        monkeypatch.undo()

        again = await attach(service, made.partition)
        await again.got(ENTRY_COUNT - 1)
        slow.go.set()
        await look
        attachment(again).acknowledge([EntryAck(3)])
        await attachment(again).flushed()

        assert await delivered_after_restart(made, service) == [1, 2]


@virtual_time
async def test_a_save_of_a_lost_lease_does_not_end_the_next_one() -> None:
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        (former,) = service._holdings.all()
        service._holdings.overtaken(made.partition, former.lease)
        consumer = await attach(service, made.partition)

        service._holdings.overtaken(made.partition, former.lease)  # the answer of a save under the former lease
        await consumer.got(ENTRY_COUNT)

        assert consumer.closings == []


class LateAnswer:
    """The next creation of a cursor is `stored`, and its answer waits until it may `go`."""

    def __init__(self, made: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stored, self.go = asyncio.Event(), asyncio.Event()
        self._create = made.cursors.create
        monkeypatch.setattr(made.cursors, "create", self.create)

    async def create(self, *given: Any, **named: Any) -> Cursor:
        """`CursorStore.create`."""
        cursor = await self._create(*given, **named)
        if not self.stored.is_set():
            self.stored.set()
            await self.go.wait()
        return cursor


@virtual_time
async def test_a_creation_does_not_make_its_subscription_again_after_a_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client gave up while the store's answer was on its way, and another client got the answer that the subscription is deleted."""
    async with lake() as made:
        service = await filled(made)
        answer = LateAnswer(made, monkeypatch)
        attaching = asyncio.ensure_future(attach(service, made.partition))
        await answer.stored.wait()
        await service.delete(made.partition, "readers", is_forced=True)
        answer.go.set()
        with pytest.raises(Unavailable):
            await attaching

        assert await service.names(made.partition) == []


@virtual_time
async def test_an_attachment_does_not_make_its_subscription_again_after_its_partition_was_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lake() as made:
        service = await filled(made)
        answer = LateAnswer(made, monkeypatch)
        attaching = asyncio.ensure_future(attach(service, made.partition))
        await answer.stored.wait()
        (held,) = service._holdings.all()
        await service._holdings.leave(held, Closed.MOVED)
        await service.delete(made.partition, "readers", is_forced=True)
        answer.go.set()
        with pytest.raises(Unavailable):
            await attaching

        assert await service.names(made.partition) == []


@virtual_time
async def test_a_deletion_does_not_repeat_itself_after_another_client_was_told_that_the_subscription_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client gave up while the deletion was on its way."""
    async with lake() as made:
        service = await filled(made)
        await attach(service, made.partition, permits=0)
        arrived, go = asyncio.Event(), asyncio.Event()
        delete = made.cursors.delete

        async def slow(*given: Any, **named: Any) -> None:
            arrived.set()
            await go.wait()
            await delete(*given, **named)

        monkeypatch.setattr(made.cursors, "delete", slow)
        deleting = asyncio.ensure_future(service.delete(made.partition, "readers", is_forced=True))
        await arrived.wait()
        await create_cursor(made.stores.metadata.cursors, made.partition, "readers", 0, {})
        go.set()
        with pytest.raises(Unavailable, match="at the same time"):
            await deleting

        assert await service.names(made.partition) == ["readers"]


@virtual_time
async def test_many_subscriptions_of_a_partition_are_deleted_at_the_same_time() -> None:
    async with lake() as made:
        service = await filled(made)
        names = [f"readers {number}" for number in range(40)]
        await asyncio.gather(*(service.create(made.partition, name, EARLIEST) for name in names))
        await asyncio.gather(*(service.delete(made.partition, name) for name in names))

        assert await service.names(made.partition) == []
