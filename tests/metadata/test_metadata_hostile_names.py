r"""Names that try to be SQL, formats, paths or terminal codes: every store keeps them as they are, or refuses them as `Invalid`.

Only PostgreSQL refuses NUL, which its texts cannot have; names of transactional ids are the same in all stores (decision 161).
"""

import contextlib
from typing import Any

import pytest

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.model import CommittedOffset, GroupSnapshot, PartitionKey
from bearlake.metadata.quotas import Entity, Quota, QuotaChange, QuotaKey
from bearlake.metadata.schemas import Deletion, Registration, SubjectKey
from bearlake.metadata.transactions import Put, Transaction, is_transactional_id

PARTITION = PartitionKey(1 << 20)
KEY = next(iter(QuotaKey))
NAMES = [
    "'; drop table bearlake.log; --",
    '"quoted"."name"',
    "`tick`",
    "$$ $1 ${x} %s %(name)s {0}",
    "a\\b\\",
    "line\nfeed\r",
    "\u202eright to left\u2066",
    "\x1b[31mred\x7f",
    "../../etc/passwd",
    "%2e%2e%2f",
    "select",
    "🐻" * 60,
    "x" * 5_000,
]


@pytest.mark.parametrize("name", [*NAMES, "zero\0byte"], ids=range(len(NAMES) + 1))
async def test_a_group_of_any_name_is_kept_or_refused(scene: Any, peer: Metadata, name: str) -> None:
    groups = scene.metadata.groups
    lease = await scene.metadata.leases.acquire("lease", scene.server)
    snapshot = GroupSnapshot(group=name, protocol_type=name, state=name.encode())
    await groups.save(GroupSnapshot(group="other", protocol_type="consumer", state=b"other"), lease)

    with contextlib.suppress(Invalid):
        await groups.save(snapshot, lease)
        await groups.commit_offsets(name, {PARTITION: CommittedOffset(offset=1, metadata=name)}, lease)
        assert await peer.groups.load(name) == snapshot
        assert {listing.group for listing in await peer.groups.list()} == {name, "other"}
        await groups.delete(name, lease)
    assert [listing.group for listing in await peer.groups.list()] == ["other"]


@pytest.mark.parametrize("name", [*NAMES, "", "zero\0byte"], ids=range(len(NAMES) + 2))
async def test_a_transactional_id_of_any_name_is_kept_or_refused(metadata: Metadata, peer: Metadata, name: str) -> None:
    group = name.replace("\0", "")
    row = Transaction(transactional_id=name, producer_id=7, epoch=0, groups=frozenset({group, "other"}))
    kept: list[Transaction] = []

    with contextlib.suppress(Invalid):
        stored = await metadata.transactions.change(name, lambda held: Put(row))
        assert stored is not None
        assert await peer.transactions.get(name) == stored
        assert stored.groups == {group, "other"}
        kept.append(stored)
    assert len(kept) == is_transactional_id(name)
    assert [found.transactional_id for found in await peer.transactions.list()] == [
        item.transactional_id for item in kept
    ]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_schema_of_any_name_and_content_is_kept(metadata: Metadata, peer: Metadata, name: str) -> None:
    subject = SubjectKey("", name)

    row = await metadata.schemas.register(
        Registration(subject=subject, revision=0, fingerprint=b"f" * 32, body=b"b" * 32, content=name)
    )

    assert [at.name for at in await peer.schemas.subjects(context=None, deletion=Deletion.LIVE, limit=10)] == [name]
    assert [at.content for at in await peer.schemas.schemas("", [row.schema_id])] == [name]


@pytest.mark.parametrize("name", NAMES[:-1], ids=range(len(NAMES) - 1))
async def test_a_quota_and_configs_of_any_name_are_kept(metadata: Metadata, peer: Metadata, name: str) -> None:
    entity = Entity(user=name, client_id=name)

    await metadata.quotas.change([QuotaChange(entity, KEY, 5.0)], revision=0)
    await metadata.defaults.set(name, {name: name}, version=0)

    assert list((await peer.quotas.read()).quotas) == [Quota(entity, KEY, 5.0)]
    assert (await peer.defaults.get(name)).configs == {name: name}
