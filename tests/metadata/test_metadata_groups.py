"""Consumer groups of every store."""

from typing import Any

import pytest

from bearlake.errors import Fenced, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import CommittedOffset, GroupListing, GroupSnapshot, Lease, partition_key
from fixtures.liveness import lapse

A, B, C = partition_key(1, 0), partition_key(1, 1), partition_key(2, 0)


async def lease_of(scene: Any) -> Lease:
    lease: Lease = await scene.metadata.leases.acquire("group-0", scene.server)
    return lease


async def test_a_saved_snapshot_is_loaded_and_replaced(scene: Any, peer: Metadata) -> None:
    lease = await lease_of(scene)
    groups = scene.metadata.groups
    assert await groups.load("g") is None
    await groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b"\x00one"), lease)
    await peer.groups.save(GroupSnapshot(group="g", protocol_type="connect", state=b"two"), lease)

    assert await groups.load("g") == GroupSnapshot(group="g", protocol_type="connect", state=b"two")


async def test_offsets_are_committed_and_read_back(scene: Any, peer: Metadata) -> None:
    lease = await lease_of(scene)
    groups = scene.metadata.groups
    await groups.commit_offsets(
        "g", {A: CommittedOffset(offset=5, leader_epoch=3, metadata="m"), B: CommittedOffset(offset=7)}, lease
    )
    await groups.commit_offsets("other", {A: CommittedOffset(offset=1)}, lease)
    first = await peer.groups.offsets("g")
    await scene.backend.advance(100)
    await groups.commit_offsets("g", {A: CommittedOffset(offset=6)}, lease)
    second = await peer.groups.offsets("g")

    assert {key: committed.offset for key, committed in first.items()} == {A: 5, B: 7}
    assert (first[A].leader_epoch, first[A].metadata) == (3, "m")
    assert (first[B].leader_epoch, first[B].metadata) == (-1, "")
    assert second[B] == first[B]
    assert (second[A].offset, second[A].leader_epoch, second[A].metadata) == (6, -1, "")
    assert second[A].committed_ms >= first[A].committed_ms + 100


async def test_only_the_offsets_asked_for_are_returned(scene: Any) -> None:
    lease = await lease_of(scene)
    await scene.metadata.groups.commit_offsets("g", {A: CommittedOffset(offset=5), B: CommittedOffset(offset=7)}, lease)

    assert set(await scene.metadata.groups.offsets("g", [A, C])) == {A}
    assert await scene.metadata.groups.offsets("g", []) == {}
    assert await scene.metadata.groups.offsets("unknown") == {}


async def test_deleted_offsets_are_gone_and_absent_offsets_are_ignored(scene: Any) -> None:
    lease = await lease_of(scene)
    await scene.metadata.groups.commit_offsets("g", {A: CommittedOffset(offset=5), B: CommittedOffset(offset=7)}, lease)
    await scene.metadata.groups.delete_offsets("g", [A, C], lease)

    assert set(await scene.metadata.groups.offsets("g")) == {B}


async def test_a_deleted_group_is_gone(scene: Any) -> None:
    lease = await lease_of(scene)
    groups = scene.metadata.groups
    await groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b"x"), lease)
    await groups.commit_offsets("g", {A: CommittedOffset(offset=5)}, lease)
    await groups.commit_offsets("offsets-only", {A: CommittedOffset(offset=5)}, lease)
    await groups.delete("g", lease)
    await groups.delete("offsets-only", lease)

    assert await groups.load("g") is None
    assert await groups.offsets("g") == {}
    assert await groups.list() == []
    with pytest.raises(NotFound):
        await groups.delete("g", lease)


async def test_groups_are_listed_by_name_in_pages(scene: Any) -> None:
    lease = await lease_of(scene)
    groups = scene.metadata.groups
    for name in ("b", "a", "B"):
        await groups.save(GroupSnapshot(group=name, protocol_type="consumer", state=b"x"), lease)
    for name in ("b", "c"):
        await groups.commit_offsets(name, {A: CommittedOffset(offset=5), B: CommittedOffset(offset=5)}, lease)

    assert await groups.list() == [
        GroupListing(group="B", protocol_type="consumer"),
        GroupListing(group="a", protocol_type="consumer"),
        GroupListing(group="b", protocol_type="consumer"),
        GroupListing(group="c", protocol_type=""),
    ]
    assert [listing.group for listing in await groups.list(after="a", limit=1)] == ["b"]
    assert await groups.list(after="c") == []


async def overtaken_by_another(scene: Any, lease: Lease) -> None:
    other = await scene.register(scene.metadata, "other", timeout_ms=60_000)
    assert await lapse(scene.metadata, lease.holder)
    await scene.metadata.leases.acquire(lease.name, other)


async def released(scene: Any, lease: Lease) -> None:
    await scene.metadata.leases.release(lease)


async def left(scene: Any, lease: Lease) -> None:
    await scene.metadata.servers.leave(lease.holder)


async def registered_again(scene: Any, lease: Lease) -> None:
    await scene.register(scene.metadata)


@pytest.mark.parametrize("event", [overtaken_by_another, released, left, registered_again])
async def test_writes_with_a_lease_that_is_over_are_fenced_and_change_nothing(
    scene: Any, peer: Metadata, event: Any
) -> None:
    lease = await lease_of(scene)
    await scene.metadata.groups.commit_offsets("g", {A: CommittedOffset(offset=5)}, lease)
    before = await scene.metadata.groups.offsets("g")
    await event(scene, lease)

    for step in (
        peer.groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b"x"), lease),
        peer.groups.commit_offsets("g", {A: CommittedOffset(offset=9), B: CommittedOffset(offset=9)}, lease),
        peer.groups.delete_offsets("g", [A], lease),
        peer.groups.delete("g", lease),
    ):
        with pytest.raises(Fenced):
            await step
    assert await scene.metadata.groups.offsets("g") == before
    assert await scene.metadata.groups.load("g") is None
