"""The quotas that a server applies: read at start, followed by every server, and changed despite concurrent changes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bearlake.errors import Conflict, Invalid, Overloaded
from bearlake.metadata import Metadata
from bearlake.metadata.open import open_metadata
from bearlake.metadata.quotas import Entity, Quota, QuotaChange, QuotaKey, QuotaSet
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl

ALICE = Principal("User", "alice")
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@pytest.fixture
async def metadata() -> AsyncIterator[Metadata]:
    store = await open_metadata("memory:///")
    yield store
    await store.close()


def limit(value: float | None, user: str = "alice") -> QuotaChange:
    return QuotaChange(Entity(user=user), PRODUCE, value)


async def test_without_quotas_there_is_nothing_to_ask(metadata: Metadata) -> None:
    quotas = QuotaControl(metadata.quotas)
    await quotas.refresh()
    assert quotas.usage is None

    await quotas.change([limit(100.0)])
    assert quotas.usage is not None
    assert await quotas.list() == [Quota(Entity(user="alice"), PRODUCE, 100.0)]
    await quotas.change([limit(None)])
    assert quotas.usage is None


async def test_a_debt_outlives_a_change_of_quotas(metadata: Metadata) -> None:
    quotas = QuotaControl(metadata.quotas, clock=lambda: 0.0)
    await quotas.change([limit(100.0)])
    assert quotas.usage is not None
    assert quotas.usage.charge(ALICE, PRODUCE, 200) == 1.0

    await quotas.change([limit(50.0)])
    assert quotas.usage.due_s(ALICE, PRODUCE) == 2.0


async def test_a_change_that_is_made_already_writes_nothing(metadata: Metadata) -> None:
    quotas = QuotaControl(metadata.quotas)
    await quotas.change([limit(100.0)])
    await quotas.change([limit(100.0), limit(None, "bob")])

    assert await metadata.quotas.revision() == 1


async def test_changes_of_two_processes_at_once_are_both_made(metadata: Metadata) -> None:
    first, second = QuotaControl(metadata.quotas), QuotaControl(metadata.quotas)
    await asyncio.gather(first.change([limit(1.0)]), second.change([limit(2.0, "bob")]))

    assert {quota.entity.user for quota in await first.list()} == {"alice", "bob"}


async def test_a_change_gives_up_in_an_endless_race(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conflict(*arguments: object, **options: object) -> int:
        raise Conflict("always")

    quotas = QuotaControl(metadata.quotas)
    monkeypatch.setattr(metadata.quotas, "change", conflict)
    with pytest.raises(Overloaded):
        await quotas.change([limit(1.0)])


async def test_a_bad_change_is_refused_before_the_store_is_asked(metadata: Metadata) -> None:
    with pytest.raises(Invalid):
        await QuotaControl(metadata.quotas).change([limit(-1.0)])


async def test_an_older_answer_does_not_replace_newer_quotas(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas = QuotaControl(metadata.quotas)
    before = await metadata.quotas.read()
    await quotas.change([limit(1.0)])

    async def read() -> QuotaSet:
        return before

    monkeypatch.setattr(metadata.quotas, "read", read)
    await quotas.refresh()

    assert quotas.usage is not None
