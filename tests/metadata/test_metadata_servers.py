"""Membership and leases of every store."""

from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import ServerRef


async def register(metadata: Metadata, name: str, timeout_ms: int = 10_000) -> ServerRef:
    endpoints = {"kafka": "127.0.0.1:9092"}
    registration = await registering.register(
        metadata.servers, name, zone="a", endpoints=endpoints, version="1", timeout_ms=timeout_ms
    )
    assert registration.cluster_id == await metadata.cluster_id()
    return registration.server


async def test_the_cluster_id_is_made_once(metadata: Metadata, peer: Metadata) -> None:
    cluster_id = await metadata.cluster_id()

    assert cluster_id == await peer.cluster_id()
    assert len(cluster_id) == 22
    assert set(cluster_id) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


async def test_a_name_keeps_its_node_id_and_gets_growing_epochs(metadata: Metadata, peer: Metadata) -> None:
    first = await register(metadata, "a")
    other = await register(peer, "b")
    again = await register(peer, "a")

    assert again.node_id == first.node_id
    assert again.epoch > first.epoch
    assert other.node_id != first.node_id
    assert min(first.node_id, other.node_id) >= 0


async def test_a_late_registration_does_not_fence_who_registered_meanwhile(metadata: Metadata, peer: Metadata) -> None:
    how: dict[str, Any] = {"zone": None, "endpoints": {}, "version": "1", "timeout_ms": 10_000}
    assert await metadata.servers.last_epoch("a") == 0
    first = (await metadata.servers.register("a", **how)).server
    assert await peer.servers.last_epoch("a") == first.epoch
    second = (await peer.servers.register("a", after=first.epoch, **how)).server
    for late in (0, first.epoch, second.epoch + 1):
        with pytest.raises(Conflict):
            await metadata.servers.register("a", after=late, **how)
    await peer.servers.leave(second)
    with pytest.raises(Conflict):
        await metadata.servers.register("a", after=first.epoch, **how)

    assert await metadata.servers.last_epoch("a") == second.epoch


async def test_a_left_name_keeps_its_node_id(metadata: Metadata) -> None:
    first = await register(metadata, "a")
    await metadata.servers.leave(first)
    other = await register(metadata, "b")
    again = await register(metadata, "a")

    assert again.node_id == first.node_id != other.node_id


async def test_live_servers_are_listed_with_what_they_registered(
    metadata: Metadata, peer: Metadata, backend: Any
) -> None:
    await registering.register(
        metadata.servers, "a", zone=None, endpoints={"kafka": "h:1", "admin": "h:2"}, version="7", timeout_ms=9_000
    )
    other = await register(metadata, "b")
    await metadata.servers.drain(other)
    await backend.advance(50)
    first, second = await peer.servers.live()

    assert (first.name, first.zone, first.endpoints, first.version) == (
        "a",
        None,
        {"kafka": "h:1", "admin": "h:2"},
        "7",
    )
    assert (first.is_draining, second.is_draining) == (False, True)
    assert second.ref == other
    assert first.heartbeat_age_ms >= 50


async def test_a_server_is_live_until_its_heartbeats_stop(metadata: Metadata, peer: Metadata, backend: Any) -> None:
    silent = await register(metadata, "silent", timeout_ms=2_000)
    lively = await register(metadata, "lively", timeout_ms=2_000)
    await backend.advance(1_500)
    await peer.servers.heartbeat(lively)
    await backend.advance(1_000)

    assert [server.ref for server in await peer.servers.live()] == [lively]
    await metadata.servers.heartbeat(silent)
    assert len(await peer.servers.live()) == 2


async def test_the_former_epoch_is_fenced(metadata: Metadata, peer: Metadata) -> None:
    former = await register(metadata, "a")
    newest = await register(peer, "a")

    for step in (metadata.servers.heartbeat(former), metadata.servers.drain(former)):
        with pytest.raises(Fenced):
            await step
    await metadata.servers.leave(former)
    assert [server.ref for server in await metadata.servers.live()] == [newest]


async def test_a_server_that_left_is_not_live_and_fenced(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await peer.servers.leave(scene.server)
    await peer.servers.leave(scene.server)

    assert await scene.metadata.servers.live() == []
    with pytest.raises(Fenced):
        await scene.commit(scene.batch(partition))
    with pytest.raises(Fenced):
        await scene.metadata.servers.heartbeat(scene.server)


async def test_unknown_servers_are_fenced(metadata: Metadata) -> None:
    stranger = ServerRef(node_id=77, epoch=1)

    with pytest.raises(Fenced):
        await metadata.servers.heartbeat(stranger)
    with pytest.raises(Fenced):
        await metadata.leases.acquire("group-0", stranger)
    await metadata.servers.leave(stranger)


async def test_a_lease_has_one_holder(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(peer, "b")
    lease = await metadata.leases.acquire("group-0", a)

    assert await metadata.leases.acquire("group-0", a) == lease
    assert await peer.leases.holder("group-0") == lease
    with pytest.raises(Conflict):
        await peer.leases.acquire("group-0", b)
    other = await peer.leases.acquire("group-1", b)
    assert (other.name, other.holder) == ("group-1", b)
    assert await peer.leases.holder("group-2") is None


async def test_a_released_lease_is_taken_with_a_larger_epoch(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(peer, "b")
    lease = await metadata.leases.acquire("group-0", a)
    await metadata.leases.release(lease)
    assert await metadata.leases.holder("group-0") is None
    taken = await peer.leases.acquire("group-0", b)
    await metadata.leases.release(lease)

    assert taken.epoch > lease.epoch
    assert await metadata.leases.holder("group-0") == taken


async def test_leases_die_with_their_holder(metadata: Metadata, peer: Metadata, backend: Any) -> None:
    a = await register(metadata, "a", timeout_ms=2_000)
    b = await register(metadata, "b", timeout_ms=60_000)
    lease = await metadata.leases.acquire("group-0", a)
    await backend.advance(2_500)
    assert await peer.leases.holder("group-0") is None
    taken = await peer.leases.acquire("group-0", b)
    await metadata.servers.heartbeat(a)

    assert taken.epoch > lease.epoch
    with pytest.raises(Conflict):
        await metadata.leases.acquire("group-0", a)


async def test_a_silent_server_gets_no_lease(metadata: Metadata, backend: Any) -> None:
    a = await register(metadata, "a", timeout_ms=2_000)
    await backend.advance(2_500)

    with pytest.raises(Fenced):
        await metadata.leases.acquire("group-0", a)


async def test_leases_end_when_the_holder_leaves_or_registers_again(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(metadata, "b")
    first = await metadata.leases.acquire("group-0", a)
    newer = await register(metadata, "a")
    assert await peer.leases.holder("group-0") is None
    with pytest.raises(Fenced):
        await peer.leases.acquire("group-0", a)
    second = await peer.leases.acquire("group-0", newer)
    await metadata.servers.leave(newer)
    third = await peer.leases.acquire("group-0", b)

    assert first.epoch < second.epoch < third.epoch
