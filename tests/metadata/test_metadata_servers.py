"""Membership and leases of every store."""

from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import ServerRef
from fixtures.liveness import lapse


async def register(metadata: Metadata, name: str, timeout_ms: int = 10_000) -> ServerRef:
    endpoints = {"kafka": "127.0.0.1:9092"}
    registration = await registering.register(
        metadata.servers, name, zone="a", endpoints=endpoints, version="1", timeout_ms=timeout_ms
    )
    assert registration.cluster_id == await metadata.cluster_id()
    return registration.server


async def test_the_cluster_id_is_created_once(metadata: Metadata, peer: Metadata) -> None:
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


async def test_a_late_registration_does_not_fence_a_server_that_registered_meanwhile(
    metadata: Metadata, peer: Metadata
) -> None:
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


async def test_a_name_that_left_keeps_its_node_id(metadata: Metadata) -> None:
    first = await register(metadata, "a")
    await metadata.servers.leave(first)
    other = await register(metadata, "b")
    again = await register(metadata, "a")

    assert again.node_id == first.node_id != other.node_id


async def test_live_servers_are_listed_with_their_registered_data(metadata: Metadata, peer: Metadata) -> None:
    await registering.register(
        metadata.servers, "a", zone=None, endpoints={"kafka": "h:1", "admin": "h:2"}, version="7", timeout_ms=9_000
    )
    other = await register(metadata, "b")
    await metadata.servers.drain(other)
    await peer.servers.heartbeat(other)
    first, second = await peer.servers.live()

    assert (first.name, first.zone, first.endpoints, first.version) == (
        "a",
        None,
        {"kafka": "h:1", "admin": "h:2"},
        "7",
    )
    assert (first.is_draining, second.is_draining) == (False, True)
    assert second.ref == other
    assert (first.heartbeat_count, first.timeout_ms) == (0, 9_000)
    assert second.heartbeat_count == 1


async def test_a_server_is_live_until_an_observer_declares_it_lapsed_and_again_from_its_next_heartbeat(
    metadata: Metadata, peer: Metadata
) -> None:
    silent, lively = await register(metadata, "silent"), await register(metadata, "lively")
    assert await lapse(peer, silent)

    assert [server.ref for server in await metadata.servers.live()] == [lively]
    await metadata.servers.heartbeat(silent)
    assert [server.ref for server in await peer.servers.live()] == [silent, lively]


async def test_a_server_learns_its_lapse_count_from_heartbeats_and_reads(metadata: Metadata, peer: Metadata) -> None:
    a = await register(metadata, "a")
    assert (await metadata.servers.heartbeat(a), await metadata.servers.lapse_count(a)) == (0, 0)

    assert await lapse(peer, a)
    assert await metadata.servers.lapse_count(a) == 1
    assert await metadata.servers.heartbeat(a) == 1
    assert await metadata.servers.heartbeat(a) == 1
    assert await lapse(peer, a)

    assert await metadata.servers.lapse_count(a) == 2
    assert await metadata.servers.heartbeat(a) == 2


async def test_a_repeated_declaration_is_the_same_lapse(metadata: Metadata, peer: Metadata) -> None:
    a = await register(metadata, "a")

    assert await metadata.servers.lapse(a, 0)
    assert await peer.servers.lapse(a, 0)
    assert await metadata.servers.heartbeat(a) == 1


async def test_a_heartbeat_that_the_observer_missed_keeps_a_server_from_lapsing(
    metadata: Metadata, peer: Metadata
) -> None:
    a = await register(metadata, "a")
    await metadata.servers.heartbeat(a)

    assert not await peer.servers.lapse(a, 0)
    assert [server.ref for server in await peer.servers.live()] == [a]
    assert await metadata.servers.heartbeat(a) == 0


async def test_only_the_newest_registration_that_has_not_left_can_lapse(metadata: Metadata, peer: Metadata) -> None:
    former = await register(metadata, "a")
    newest = await register(metadata, "a")

    assert not await peer.servers.lapse(former, 0)
    assert [server.ref for server in await peer.servers.live()] == [newest]
    await metadata.servers.leave(newest)
    assert not await peer.servers.lapse(newest, 0)
    assert not await peer.servers.lapse(ServerRef(node_id=77, epoch=1), 0)


async def test_a_new_registration_has_never_lapsed(metadata: Metadata) -> None:
    assert await lapse(metadata, await register(metadata, "a"))
    again = await register(metadata, "a")

    assert await metadata.servers.lapse_count(again) == 0
    assert [server.ref for server in await metadata.servers.live()] == [again]


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
async def test_a_step_of_the_stores_clock_changes_nothing_about_leases(
    metadata: Metadata, peer: Metadata, backend: Any, step_ms: int
) -> None:
    a, b = await register(metadata, "a"), await register(peer, "b")
    lease = await metadata.leases.acquire("group-0", a)
    await backend.step(step_ms)
    await peer.servers.heartbeat(b)

    with pytest.raises(Conflict):
        await peer.leases.acquire("group-0", b)
    assert await peer.leases.holder("group-0") == lease
    assert await metadata.servers.heartbeat(a) == 0
    assert await lapse(peer, a)
    assert (await peer.leases.acquire("group-0", b)).epoch > lease.epoch


async def test_the_former_epoch_is_fenced(metadata: Metadata, peer: Metadata) -> None:
    former = await register(metadata, "a")
    newest = await register(peer, "a")

    steps = metadata.servers.heartbeat(former), metadata.servers.drain(former), metadata.servers.lapse_count(former)
    for step in steps:
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
    with pytest.raises(Fenced):
        await scene.metadata.servers.lapse_count(scene.server)


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


async def test_holders_of_many_leases_are_read_together(metadata: Metadata, peer: Metadata) -> None:
    a, b, c = [await register(metadata, name) for name in "abc"]
    held = {name: await metadata.leases.acquire(name, server) for name, server in (("l-a", a), ("l-b", b), ("l-c", c))}
    released = await metadata.leases.acquire("l-0", a)
    await metadata.leases.release(released)
    await metadata.servers.leave(b)
    assert await lapse(metadata, c)

    names = ["l-a", "l-0", "l-b", "l-c", "never", "", "l-a", *(f"other-{number}" for number in range(1_000))]

    assert await peer.leases.holders(names) == {"l-a": held["l-a"]}
    assert await peer.leases.holders([]) == {}


async def test_a_released_lease_is_taken_with_a_larger_epoch(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(peer, "b")
    lease = await metadata.leases.acquire("group-0", a)
    await metadata.leases.release(lease)
    assert await metadata.leases.holder("group-0") is None
    taken = await peer.leases.acquire("group-0", b)
    await metadata.leases.release(lease)

    assert taken.epoch > lease.epoch
    assert await metadata.leases.holder("group-0") == taken


async def test_a_lapsed_servers_leases_can_be_taken(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(metadata, "b")
    lease = await metadata.leases.acquire("group-0", a)
    assert await lapse(peer, a)
    assert await peer.leases.holder("group-0") is None
    taken = await peer.leases.acquire("group-0", b)
    await metadata.servers.heartbeat(a)

    assert taken.epoch > lease.epoch
    with pytest.raises(Conflict):
        await metadata.leases.acquire("group-0", a)


async def test_a_lease_that_no_server_took_belongs_to_its_revived_holder(metadata: Metadata, peer: Metadata) -> None:
    a, b = await register(metadata, "a"), await register(metadata, "b")
    lease = await metadata.leases.acquire("group-0", a)
    assert await lapse(peer, a)
    await metadata.servers.heartbeat(a)

    assert await peer.leases.holder("group-0") == lease
    with pytest.raises(Conflict):
        await peer.leases.acquire("group-0", b)


async def test_a_lapsed_server_gets_no_lease_before_its_next_heartbeat(metadata: Metadata, peer: Metadata) -> None:
    a = await register(metadata, "a")
    assert await lapse(peer, a)

    with pytest.raises(Fenced):
        await metadata.leases.acquire("group-0", a)
    await metadata.servers.heartbeat(a)
    assert (await metadata.leases.acquire("group-0", a)).holder == a


async def test_a_lapsed_server_may_still_commit(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    assert await lapse(peer, scene.server)

    await scene.commit(scene.batch(partition))


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
