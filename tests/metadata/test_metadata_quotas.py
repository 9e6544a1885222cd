"""Behaviour of every metadata store: quotas."""

import asyncio
import math
from enum import Enum
from typing import Any

import pytest

from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata import quotas as model
from bearlake.metadata.model import EntryKind, StreamSpec
from bearlake.metadata.quotas import (
    DEFAULT,
    QUOTA_NAME_BYTES_MAX,
    Entity,
    Quota,
    QuotaChange,
    QuotaKey,
    entities_of,
    keys_of,
)

ALICE = Entity(user="alice")
ENTITIES = [
    ALICE,
    Entity(user=DEFAULT),
    Entity(client_id="console"),
    Entity(client_id=DEFAULT),
    Entity(user="alice", client_id="console"),
    Entity(user="alice", client_id=DEFAULT),
    Entity(user=DEFAULT, client_id="console"),
    Entity(user=DEFAULT, client_id=DEFAULT),
    Entity(user="<default>"),
    Entity(user="*", client_id="=*"),
    Entity(user="Zoë中,= x"),
    Entity(address="10.0.0.1"),
    Entity(address="2001:db8::1"),
    Entity(address=DEFAULT),
]
EACH = [QuotaChange(entity, key, float(at + 1)) for at, entity in enumerate(ENTITIES) for key in keys_of(entity)]


def change(value: float | None = 1000.0, entity: Entity = ALICE) -> QuotaChange:
    return QuotaChange(entity, QuotaKey.PRODUCER_BYTE_RATE, value)


def quota(value: float, entity: Entity = ALICE) -> Quota:
    return Quota(entity, QuotaKey.PRODUCER_BYTE_RATE, value)


async def test_every_kind_of_quota_is_read_back_on_every_server(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.quotas.read() == (0, [])

    assert await metadata.quotas.change(EACH, revision=0) == 1

    revision, quotas = await peer.quotas.read()
    assert (revision, set(quotas)) == (1, {Quota(*row) for row in EACH})  # type: ignore[arg-type]  # no value is None
    assert len(quotas) == len(EACH)
    assert await peer.quotas.revision() == 1


async def test_quotas_are_replaced_and_deleted_in_one_step(metadata: Metadata, peer: Metadata) -> None:
    bob, carol = Entity(user="bob"), Entity(user="carol")
    await metadata.quotas.change([change(), change(2000, bob)], revision=0)

    await peer.quotas.change(
        [change(3000), change(None, bob), change(0.5e9, carol), change(None, bob._replace(client_id="x"))], revision=1
    )

    assert set((await metadata.quotas.read()).quotas) == {quota(3000), quota(0.5e9, carol)}


@pytest.mark.parametrize("revision", [0, 1, 3])
async def test_a_change_decided_on_another_revision_of_quotas_is_refused(metadata: Metadata, revision: int) -> None:
    await metadata.quotas.change([change()], revision=0)
    await metadata.quotas.change([change(None)], revision=1)
    head = await metadata.log.head()

    with pytest.raises(Conflict):
        await metadata.quotas.change([change(5)], revision=revision)
    assert await metadata.quotas.read() == (2, [])
    assert await metadata.log.head() == head


async def test_a_late_change_cannot_bring_back_a_deleted_quota(metadata: Metadata, peer: Metadata) -> None:
    """A process decided to limit alice when she had no quota; meanwhile others limited her and lifted the limit."""
    revision = await metadata.quotas.revision()
    await peer.quotas.change([change()], revision=revision)
    await peer.quotas.change([change(None)], revision=revision + 1)

    with pytest.raises(Conflict):
        await metadata.quotas.change([change()], revision=revision)
    assert (await peer.quotas.read()).quotas == []


async def test_one_of_many_concurrent_changes_of_quotas_wins(metadata: Metadata, peer: Metadata) -> None:
    handles = [metadata, peer] * 5
    changes = (handle.quotas.change([change(1 + at)], revision=0) for at, handle in enumerate(handles))
    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 9
    assert len((await metadata.quotas.read()).quotas) == 1


async def test_a_change_of_quotas_is_an_entry_of_the_log(metadata: Metadata, peer: Metadata) -> None:
    first = await metadata.streams.create(StreamSpec(name="first", partition_count=1))
    await metadata.quotas.change([change()], revision=0)
    second = await peer.streams.create(StreamSpec(name="second", partition_count=1))

    entries = (await peer.log.follow(0, limit=10)).entries
    assert [(entry.kind, entry.stream_number) for entry in entries] == [
        (EntryKind.STREAM, first.number),
        (EntryKind.POLICY, 0),
        (EntryKind.STREAM, second.number),
    ]


async def test_a_follower_is_woken_by_a_change_of_quotas(metadata: Metadata, peer: Metadata) -> None:
    head = await peer.log.head()
    woken = asyncio.ensure_future(peer.log.wait(head, wait_ms=60_000))
    await asyncio.sleep(0)
    await metadata.quotas.change([change()], revision=0)

    await asyncio.wait_for(woken, 30)
    assert (await peer.log.follow(head, limit=10)).entries[-1].kind is EntryKind.POLICY


@pytest.mark.parametrize(
    "bad",
    [
        change(entity=Entity()),
        change(entity=Entity(user="alice", address="10.0.0.1")),
        change(entity=Entity(address="10.0.0.1")),
        QuotaChange(ALICE, QuotaKey.CONNECTION_CREATION_RATE, 1.0),
        QuotaChange(Entity(address="example.com"), QuotaKey.CONNECTION_CREATION_RATE, 1.0),
        QuotaChange(Entity(address="2001:DB8::1"), QuotaKey.CONNECTION_CREATION_RATE, 1.0),
        change(entity=Entity(user="")),
        change(entity=Entity(client_id="a\0b")),
        change(entity=Entity(client_id="\ud800")),
        change(entity=Entity(user="x" * (QUOTA_NAME_BYTES_MAX + 1))),
        change(0.0),
        change(-1.0),
        change(0.5),
        QuotaChange(ALICE, QuotaKey.REQUEST_PERCENTAGE, 0.0),
        QuotaChange(ALICE, QuotaKey.CONTROLLER_MUTATION_RATE, 5e-324),
        change(math.nan),
        change(math.inf),
        change(1e300),
    ],
    ids=lambda bad: f"{str(bad.entity)[:24]!a} {bad.key.value} {bad.value}",
)
async def test_quotas_that_no_store_can_keep_are_invalid(metadata: Metadata, bad: QuotaChange) -> None:
    with pytest.raises(Invalid):
        await metadata.quotas.change([change(entity=Entity(user="bob")), bad], revision=0)
    assert await metadata.quotas.read() == (0, [])


async def test_one_quota_cannot_be_changed_twice_at_once(metadata: Metadata) -> None:
    with pytest.raises(Invalid, match="two changes"):
        await metadata.quotas.change([change(1), change(2)], revision=0)


async def test_the_number_of_quotas_is_limited(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "QUOTA_COUNT_MAX", 2)
    monkeypatch.setattr("bearlake.metadata.postgresql.quotas.QUOTA_COUNT_MAX", 2)
    names = [Entity(user=name) for name in ("a", "b", "c")]
    await metadata.quotas.change([change(1, names[0]), change(1, names[1])], revision=0)

    with pytest.raises(Invalid, match="limit is 2"):
        await metadata.quotas.change([change(1, names[2])], revision=1)
    await metadata.quotas.change([change(2, names[2]), change(None, names[0])], revision=1)
    assert {quota.entity for quota in (await metadata.quotas.read()).quotas} == {names[1], names[2]}


async def test_the_number_of_changed_quotas_is_limited(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CHANGED_QUOTAS_MAX", 1)
    with pytest.raises(Invalid, match="limit is 1"):
        await metadata.quotas.change([change(), change(1, Entity(user="bob"))], revision=0)


def test_quotas_apply_in_the_order_of_kip_55() -> None:
    assert list(entities_of("alice", "console")) == [
        Entity(user="alice", client_id="console"),
        Entity(user="alice", client_id=DEFAULT),
        Entity(user="alice"),
        Entity(user=DEFAULT, client_id="console"),
        Entity(user=DEFAULT, client_id=DEFAULT),
        Entity(user=DEFAULT),
        Entity(client_id="console"),
        Entity(client_id=DEFAULT),
    ]


class LaterKey(Enum):
    """A kind of quota that a later version may have."""

    DISK_BYTE_RATE = "disk_byte_rate"


async def test_quotas_of_a_later_version_are_ignored_and_the_others_hold(
    metadata: Metadata, peer: Metadata, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise one of them would stop every server of this version: each of them reads all quotas when it starts."""
    later: Any = LaterKey.DISK_BYTE_RATE
    with monkeypatch.context() as patched:
        patched.setattr(model, "CLIENT_KEYS", model.CLIENT_KEYS | {later})
        patched.setattr(model, "VALUE_MIN", 0.0)
        changes = [change(5), QuotaChange(ALICE, later, 1.0), change(0.0, Entity(user="bob"))]
        await metadata.quotas.change(changes, revision=0)

    assert await peer.quotas.read() == (1, [quota(5)])
    assert "quotas of an unknown kind are ignored" in caplog.text
    assert await peer.quotas.change([change(6)], revision=1) == 2


def test_a_name_cannot_look_like_the_default_or_another_part() -> None:
    assert str(Entity(user=DEFAULT, client_id="<default>")) == 'user=<default>, client-id="<default>"'
    assert str(Entity(user="alice, client-id=x")) == 'user="alice, client-id=x"'
    assert str(Entity(user="Zoë", client_id="console")) == "user=Zoë, client-id=console"
