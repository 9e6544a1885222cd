"""Behaviour of every metadata store: access rules."""

import asyncio

import pytest

from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata import access_rules as model
from bearlake.metadata.access_rules import (
    RULE_NAME_BYTES_MAX,
    AccessRule,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleSet,
)
from bearlake.metadata.model import EntryKind, StreamSpec
from fixtures.later_versions import FIELDS, later, later_row, store_rules


def rule(
    name: str = "orders",
    *,
    resource: Resource = Resource.STREAM,
    pattern: PatternKind = PatternKind.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> AccessRule:
    return AccessRule(resource, name, pattern, principal, host, operation, permission)


EACH = [
    *(rule(operation=operation) for operation in Operation),
    *(rule("kafka-cluster" if kind is Resource.CLUSTER else "x", resource=kind) for kind in Resource),
    *(rule("x", pattern=pattern, permission=permission) for pattern in PatternKind for permission in Permission),
    rule("*", principal="User:*"),
    rule("Zoë", principal="Group:中,=: x", host="10.0.0.1"),
]


async def test_every_kind_of_rule_is_read_back_on_every_server(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.access.read() == RuleSet(0, [])

    assert await metadata.access.change(created=EACH, deleted=[], revision=0) == 1

    revision, rules, _ = await peer.access.read()
    assert (revision, set(rules)) == (1, set(EACH))
    assert len(rules) == len(set(EACH))
    assert await peer.access.revision() == 1


@pytest.mark.parametrize("field", FIELDS)
async def test_rules_of_a_later_version_are_read_apart_and_kept(metadata: Metadata, peer: Metadata, field: str) -> None:
    unknown = later_row(rule(), field)
    await store_rules(metadata, [rule(), later(rule(), field)])

    assert await peer.access.read() == RuleSet(1, [rule()], (unknown,))
    await peer.access.change(created=[rule("other")], deleted=[rule()], revision=1)
    assert await metadata.access.read() == RuleSet(2, [rule("other")], (unknown,))


async def test_rules_are_deleted_and_created_in_one_step(metadata: Metadata, peer: Metadata) -> None:
    read, write, other = rule(), rule(operation=Operation.WRITE), rule(host="10.0.0.1")
    await metadata.access.change(created=[read, other], deleted=[], revision=0)

    await peer.access.change(created=[write, other, write], deleted=[read, rule("absent")], revision=1)

    assert set((await metadata.access.read()).rules) == {write, other}


async def test_a_rule_that_is_deleted_and_created_at_once_exists(metadata: Metadata) -> None:
    await metadata.access.change(created=[rule()], deleted=[], revision=0)
    await metadata.access.change(created=[rule()], deleted=[rule()], revision=1)

    assert (await metadata.access.read()).rules == [rule()]


@pytest.mark.parametrize("revision", [0, 1, 3])
async def test_a_change_decided_on_another_revision_is_refused(metadata: Metadata, revision: int) -> None:
    await metadata.access.change(created=[rule()], deleted=[], revision=0)
    await metadata.access.change(created=[], deleted=[rule()], revision=1)
    head = await metadata.log.head()

    with pytest.raises(Conflict):
        await metadata.access.change(created=[rule("x"), rule()], deleted=[], revision=revision)
    assert await metadata.access.read() == RuleSet(2, [])
    assert await metadata.log.head() == head


async def test_a_late_change_cannot_bring_back_a_deleted_rule(metadata: Metadata, peer: Metadata) -> None:
    """A process decided to allow mallory when there was no rule; meanwhile others allowed and removed mallory."""
    revision = await metadata.access.revision()
    mallory = rule(principal="User:mallory")
    await peer.access.change(created=[mallory], deleted=[], revision=revision)
    await peer.access.change(created=[], deleted=[mallory], revision=revision + 1)

    with pytest.raises(Conflict):
        await metadata.access.change(created=[mallory], deleted=[], revision=revision)
    assert (await peer.access.read()).rules == []


async def test_a_change_without_effect_refuses_earlier_ones_too(metadata: Metadata, peer: Metadata) -> None:
    """A caller that does not know whether its earlier creation will still arrive deletes the rules, whether they exist or not."""
    assert await metadata.access.change(created=[], deleted=[rule()], revision=0) == 1

    with pytest.raises(Conflict):
        await peer.access.change(created=[rule()], deleted=[], revision=0)

    assert await peer.access.read() == RuleSet(1, [])


async def test_one_of_many_concurrent_changes_wins(metadata: Metadata, peer: Metadata) -> None:
    handles = [metadata, peer] * 5
    changes = (
        handle.access.change(created=[rule(f"s{n}")], deleted=[], revision=0) for n, handle in enumerate(handles)
    )
    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 9
    assert len((await metadata.access.read()).rules) == 1


async def test_a_change_is_an_entry_of_the_log_between_those_of_streams(metadata: Metadata, peer: Metadata) -> None:
    first = await metadata.streams.create(StreamSpec(name="first", partition_count=1))
    await metadata.access.change(created=[rule()], deleted=[], revision=0)
    second = await peer.streams.create(StreamSpec(name="second", partition_count=1))

    entries = (await peer.log.follow(0, limit=10)).entries
    assert [(entry.position, entry.kind, entry.stream_number) for entry in entries] == [
        (1, EntryKind.STREAM, first.number),
        (2, EntryKind.POLICY, 0),
        (3, EntryKind.STREAM, second.number),
    ]
    await metadata.log.maintain(entry_count_min=0)
    assert await peer.log.head() == 3


async def test_a_follower_that_waits_for_the_log_is_woken(metadata: Metadata, peer: Metadata) -> None:
    head = await peer.log.head()
    woken = asyncio.ensure_future(peer.log.wait(head, wait_ms=60_000))
    await asyncio.sleep(0)
    await metadata.access.change(created=[rule()], deleted=[], revision=0)

    await asyncio.wait_for(woken, 30)
    assert (await peer.log.follow(head, limit=10)).entries[-1].kind is EntryKind.POLICY


@pytest.mark.parametrize(
    "bad",
    [
        rule(""),
        rule("a\0b"),
        rule("\ud800"),
        rule("x" * (RULE_NAME_BYTES_MAX + 1)),
        rule(principal="alice"),
        rule(principal="User:"),
        rule(principal="Server:bearlake"),
        rule(host=""),
        rule("other", resource=Resource.CLUSTER),
    ],
    ids=lambda bad: f"{bad.name[:8]!a} {bad.principal} {bad.host}",
)
async def test_rules_that_no_store_can_keep_are_invalid(metadata: Metadata, bad: AccessRule) -> None:
    with pytest.raises(Invalid):
        await metadata.access.change(created=[rule(), bad], deleted=[], revision=0)
    assert await metadata.access.read() == RuleSet(0, [])


async def test_the_number_of_rules_is_limited(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "RULE_COUNT_MAX", 3)
    monkeypatch.setattr("bearlake.metadata.postgresql.access_rules.RULE_COUNT_MAX", 3)
    await metadata.access.change(created=[rule(f"s{n}") for n in range(3)], deleted=[], revision=0)

    with pytest.raises(Invalid, match="limit is 3"):
        await metadata.access.change(created=[rule("s3")], deleted=[], revision=1)
    await metadata.access.change(created=[rule("s3")], deleted=[rule("s0")], revision=1)
    assert {found.name for found in (await metadata.access.read()).rules} == {"s1", "s2", "s3"}


async def test_the_number_of_changes_at_once_is_limited(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CHANGED_COUNT_MAX", 2)
    with pytest.raises(Invalid, match="limit is 2"):
        await metadata.access.change(created=[rule()], deleted=[rule("a"), rule("b")], revision=0)
