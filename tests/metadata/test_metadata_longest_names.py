"""Behaviour of every metadata store: hostile names and texts of clients (SQL, paths, controls, long ones) are kept as they are, or refused.

Every name that a protocol accepts must be stored by PostgreSQL too, which has no NUL, and keys of at most 2,704 bytes in an index.
"""

import random
from typing import Any

import pytest

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.access_rules import RULE_NAME_BYTES_MAX, AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.defaults import GROUP_NAME_BYTES_MAX
from bearlake.metadata.model import PRODUCER_NAME_BYTES_MAX, CommittedOffset, GroupListing, GroupSnapshot, StreamSpec
from bearlake.metadata.quotas import QUOTA_NAME_BYTES_MAX, Entity, Quota, QuotaChange, QuotaKey
from bearlake.metadata.subscriptions import CURSOR_NAME_BYTES_MAX
from bearlake.metadata.users import USER_NAME_BYTES_MAX, CredentialChange, ScramCredential
from fixtures import by_name

NAMES = [
    "'; drop schema bearlake cascade; --",
    '"quoted"',
    "`back`",
    "$$; select pg_sleep(1); $$",
    "$1 %s %(name)s {0} :name ?",
    "%_\\%\\",
    "E'\\x00'",
    "null",
    "select",
    "public.bearlake",
    "../../etc/passwd",
    "//a//%2F..%2f",
    "line\r\nline\n",
    "\x01\x1b[31m\x7f\x85",
    "\u202eright to left\u2066\u200b\ufeff",
    "e\u0301 \u00e9 \U0001f9ca",
    " ",
    "{1,2}",
    "[1]",
    "\\N",
]
"""All different, also for a store that would trim, fold or unescape."""

CREDENTIAL = ScramCredential("SCRAM-SHA-256", 4096, b"salt", b"stored", b"server")


def longest(bytes_max: int) -> str:
    """A name of `bytes_max` bytes that does not compress: PostgreSQL compresses long keys before it measures them."""
    source = random.Random(7)
    return "".join(chr(source.randrange(0x10000, 0x20000)) for _ in range(bytes_max // 4)) + "x" * (bytes_max % 4)


async def test_groups_keep_their_names_protocols_and_metadata(scene: Any, peer: Metadata) -> None:
    key = await scene.partition()
    names = [*NAMES, longest(GROUP_NAME_BYTES_MAX)]
    for name in names:
        lease = await scene.metadata.leases.acquire(f"group/{name}", scene.server)
        await scene.metadata.groups.save(GroupSnapshot(group=name, protocol_type=name, state=name.encode()), lease)
        await scene.metadata.groups.commit_offsets(name, {key: CommittedOffset(offset=1, metadata=name)}, lease)

    for name in names:
        held = await peer.leases.holder(f"group/{name}")
        assert held is not None
        assert held.holder == scene.server
        found = await peer.groups.load(name)
        assert found == GroupSnapshot(group=name, protocol_type=name, state=name.encode())
        assert (await peer.groups.offsets(name))[key].metadata == name
    assert await peer.groups.list() == [GroupListing(group=name, protocol_type=name) for name in sorted(names)]
    for name in names:
        await scene.metadata.groups.delete(name, await scene.metadata.leases.acquire(f"group/{name}", scene.server))
    assert await peer.groups.list() == []


async def test_users_rules_and_quotas_keep_their_names(metadata: Metadata, peer: Metadata) -> None:
    users = [*NAMES, longest(USER_NAME_BYTES_MAX)]
    long = longest(RULE_NAME_BYTES_MAX)
    rules = [
        AccessRule(resource, name, pattern, f"User:{name}"[:RULE_NAME_BYTES_MAX], "*", Operation.READ, Permission.DENY)
        for name in NAMES
        for resource in (Resource.STREAM, Resource.GROUP)
        for pattern in PatternKind
    ]
    rules.append(
        AccessRule(
            Resource.GROUP,
            long,
            PatternKind.LITERAL,
            "User:" + longest(RULE_NAME_BYTES_MAX - len("User:")),
            long,
            Operation.READ,
            Permission.DENY,
        )
    )
    entities = [Entity(user=name, client_id=name) for name in [*NAMES, longest(QUOTA_NAME_BYTES_MAX)]]
    await metadata.users.change(
        [CredentialChange(name, CREDENTIAL.mechanism, CREDENTIAL) for name in users], revision=0
    )
    await metadata.access.change(created=rules, deleted=[], revision=0)
    await metadata.quotas.change(
        [QuotaChange(entity, QuotaKey.PRODUCER_BYTE_RATE, 1.0) for entity in entities], revision=0
    )

    assert [user.name for user in await peer.users.list()] == sorted(users)
    for name in users:
        found = await peer.users.get(name)
        assert found is not None
        assert found.name == name
    assert set((await peer.access.read())[1]) == set(rules)
    assert set((await peer.quotas.read())[1]) == {
        Quota(entity, QuotaKey.PRODUCER_BYTE_RATE, 1.0) for entity in entities
    }


async def test_named_producers_keep_their_names(scene: Any, peer: Metadata) -> None:
    key = await scene.partition()
    names = [*NAMES, longest(PRODUCER_NAME_BYTES_MAX)]
    first = {name: (await scene.metadata.producers.named(key, name)).producer_id for name in names}

    assert len(set(first.values())) == len(names)
    assert {name: (await peer.producers.named(key, name)).producer_id for name in names} == first


async def test_configs_keep_their_texts(metadata: Metadata, peer: Metadata) -> None:
    configs = dict(zip(NAMES, reversed(NAMES), strict=True))
    await by_name.create(metadata, StreamSpec(name="t", partition_count=1, configs=configs))

    assert (await peer.streams.get("t")).configs == configs


@pytest.mark.parametrize("name", ["a\0b", "\0", "\ud800"])
async def test_what_postgresql_cannot_store_is_refused_alike_by_every_store(metadata: Metadata, name: str) -> None:
    with pytest.raises(Invalid):
        await metadata.users.change([CredentialChange(name, CREDENTIAL.mechanism, CREDENTIAL)], revision=0)
    with pytest.raises(Invalid):
        await metadata.quotas.change([QuotaChange(Entity(user=name), QuotaKey.PRODUCER_BYTE_RATE, 1.0)], revision=0)
    rule = AccessRule(Resource.GROUP, name, PatternKind.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
    with pytest.raises(Invalid):
        await metadata.access.change(created=[rule], deleted=[], revision=0)
    assert await metadata.users.list() == []


def test_the_longest_names_are_as_long_as_their_limits() -> None:
    for bytes_max in (GROUP_NAME_BYTES_MAX, PRODUCER_NAME_BYTES_MAX, CURSOR_NAME_BYTES_MAX, 255):
        assert len(longest(bytes_max).encode()) == bytes_max
