# ruff: noqa: SLF001 - leases become unverified at the step that the test says
"""After a bug in one cursor or a failed look-up of one lease, the server still saves and dispatches its other subscriptions."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from bearlake.errors import BearlakeError, Fenced, TooLarge, Unavailable
from bearlake.metadata.subscriptions import CursorSave
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import Closed, EntryAck
from bearlake.streams.subscriptions.service import SubscriptionService
from bearlake.telemetry import metrics
from fixtures.deployment import append, batch_of, create
from fixtures.subscriptions import Consumer, Lake, attach, attachment, lake
from simulator.loop import virtual_time

NAMES = ("first", "victim", "last")


def fault_count(step: str) -> float:
    """How many bugs the metric counts for a step."""
    return metrics.CONTAINED_FAULTS.labels(step).value


async def consumers(made: Lake) -> tuple[SubscriptionService, dict[str, Consumer]]:
    """A server with one consumer per name; each consumer has received an entry."""
    streams, service = await made.serve()
    await append(streams, made.view, batch_of(b"a"))
    found = {name: await attach(service, made.partition, subscription=name) for name in NAMES}
    for consumer in found.values():
        await consumer.got(1)
    return service, found


async def acknowledged(consumer: Consumer) -> str:
    """Acknowledge the consumer's entry; return `stored`, or the name of the error that the client gets."""
    attachment(consumer).acknowledge([EntryAck(0)])
    try:
        async with asyncio.timeout(10):
            await attachment(consumer).flushed()
    except BearlakeError as error:
        return type(error).__name__
    return "stored"


async def marks(made: Lake) -> dict[str, int]:
    """The stored mark-delete offsets, by name."""
    return {cursor.name: cursor.mark_delete for cursor in await made.cursors.load(made.partition)}


@virtual_time
async def test_a_cursor_that_cannot_be_packed_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lake() as made:
        service, found = await consumers(made)
        victim = service._holdings.all()[0].subscriptions["victim"].cursor
        pack = AckCursor.pack
        before = fault_count("pack a cursor")
        with monkeypatch.context() as patched:
            patched.setattr(AckCursor, "pack", lambda self: pack(self) if self is not victim else 1 / 0)
            heard = await asyncio.gather(*map(acknowledged, found.values()))
        again = await attach(service, made.partition, subscription="victim")
        await again.got(1)

        assert heard == ["stored", "Unavailable", "stored"]
        assert [consumer.closings for consumer in found.values()] == [[], [Closed.FAILED], []]
        assert fault_count("pack a cursor") == before + 1
        assert await acknowledged(again) == "stored"
        assert await marks(made) == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize(
    "error", [TooLarge("its ranges", size_bytes=2, bytes_max=1), RuntimeError("a bug")], ids=["TooLarge", "bug"]
)
def test_a_cursor_that_the_store_refuses_ends_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    @virtual_time
    async def body() -> None:
        async with lake() as made:
            _, found = await consumers(made)
            refuse(made, monkeypatch, lambda names: error if "victim" in names else None)
            heard = await asyncio.gather(*map(acknowledged, found.values()))

            assert heard == ["stored", "Unavailable", "stored"]
            assert [consumer.closings for consumer in found.values()] == [[], [Closed.FAILED], []]
            assert await marks(made) == {"first": 1, "victim": 0, "last": 1}

    body()


@virtual_time
async def test_cursors_wait_for_a_store_that_fails_while_they_are_saved_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lake() as made:
        _, found = await consumers(made)
        answers: list[Exception | None] = [RuntimeError("a bug"), Unavailable("no answer")]
        refuse(made, monkeypatch, lambda names: answers.pop(0) if answers else None)
        heard = await asyncio.gather(*map(acknowledged, found.values()))
        await asyncio.sleep(10)

        assert heard == ["Unavailable", "stored", "stored"]
        assert await marks(made) == dict.fromkeys(NAMES, 1)
        assert not any(consumer.closings for consumer in found.values())


def refuse(made: Lake, monkeypatch: pytest.MonkeyPatch, error_of: Callable[[list[str]], Exception | None]) -> None:
    """Let the store refuse saves of these cursors."""
    save = made.cursors.save

    async def refusing(saves: Collection[CursorSave]) -> Any:
        error = error_of([update.name for save in saves for update in save.updates])
        if error is not None:
            raise error
        return await save(saves)

    monkeypatch.setattr(made.cursors, "save", refusing)


@pytest.mark.parametrize("error", [Unavailable("no answer"), RuntimeError("a bug")], ids=["Unavailable", "bug"])
def test_a_failed_look_up_of_one_lease_does_not_hide_another(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    @virtual_time
    async def body() -> None:
        async with lake() as made:
            streams, service = await made.serve()
            first_consumer = await attach(service, made.partition)
            second_consumer = await attach(service, (await create(streams, "bills")).partition(0))
            first, second = service._holdings.all()
            for held, raised in ((first, error), (second, Fenced("another server has it"))):
                held.is_unverified = True
                monkeypatch.setattr(held.held, "confirm", raising(raised))
            await asyncio.sleep(service.settings.idle_ms / 4000 + 60)

            assert first_consumer.closings == []
            assert second_consumer.closings == [Closed.FENCED]

    body()


def raising(error: Exception) -> Callable[[], Any]:
    async def step() -> None:
        raise error

    return step
