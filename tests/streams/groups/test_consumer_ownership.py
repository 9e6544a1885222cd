"""Consumer groups at their owner: leases, saves that fail, changes of the protocol, and snapshots of other versions."""

from dataclasses import replace

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata import registering
from bearlake.metadata.model import GroupSnapshot, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer import snapshot
from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupKind, GroupState, JoinRequest, MemberRef
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from fixtures.consumer_groups import Topics
from fixtures.liveness import lapse
from simulator.loop import virtual_time

TIMEOUT_MS = 6_000


class FailingGroups:
    """A `GroupStore` whose saves fail while `is_failing`."""

    def __init__(self, inner):
        self._inner = inner
        self.is_failing = False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def save(self, *arguments):
        if self.is_failing:
            raise Unavailable("no")
        await self._inner.save(*arguments)


class Cluster:
    """Coordinators of several servers on one store in memory."""

    @classmethod
    async def open(cls):
        cluster = cls()
        cluster.metadata = await open_metadata("memory:///", clock=ManualClock())
        cluster.metadata.groups = cluster.groups = FailingGroups(cluster.metadata.groups)
        await cluster.metadata.streams.create(StreamSpec(name="t", partition_count=2))
        cluster.topics = Topics(t=4)
        return cluster

    async def server(self, name, topics=None, **settings):
        found = await registering.register(
            self.metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=TIMEOUT_MS
        )
        all_settings = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0, **settings))
        return Coordinator(
            self.metadata, Ownership(self.metadata, found.server, all_settings, topics=topics or self.topics)
        )


def joining(member_id="a", **changes):
    values = {"epoch": 0, "rebalance_timeout_ms": 30_000, "topics": ("t",), "owned": ()}
    return Heartbeat(member_id=member_id, **(values | changes))


def classic(member_id=""):
    return JoinRequest(
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", assignment.encode_subscription(["t"])),),
        requires_known_id=False,
        can_skip_assignment=False,
    )


async def classic_group(server):
    joined = await server.join("g", classic())
    ref = MemberRef(group="g", member_id=joined.member_id, generation=joined.generation)
    await server.sync(ref, (None, None), {joined.member_id: assignment.encode_assignment({"t": [0, 1, 2, 3]})})
    return ref


async def refused(work):
    with pytest.raises(GroupRefusal) as caught:
        await work
    return caught.value.problem


@virtual_time
async def test_a_server_that_lost_its_lease_refuses_heartbeats():
    cluster = await Cluster.open()
    first, second = await cluster.server("1"), await cluster.server("2")
    answer = await first.beat("g", joining())
    assert await refused(second.beat("g", joining("b"))) is Problem.NOT_COORDINATOR

    await lapse(cluster.metadata, first.ownership.server)
    taken = await second.beat("g", Heartbeat(member_id="a", epoch=answer.epoch))

    assert taken.epoch == answer.epoch
    assert await refused(first.beat("g", Heartbeat(member_id="a", epoch=answer.epoch))) is Problem.NOT_COORDINATOR
    await cluster.metadata.close()


@virtual_time
async def test_a_join_whose_save_fails_is_refused_and_succeeds_when_it_is_repeated():
    cluster = await Cluster.open()
    server = await cluster.server("1")
    cluster.groups.is_failing = True
    assert await refused(server.beat("g", joining())) is Problem.COORDINATOR_UNAVAILABLE
    assert await cluster.groups.load("g") is None

    cluster.groups.is_failing = False
    answer = await server.beat("g", joining())

    stored = await cluster.groups.load("g")
    assert snapshot.decode("g", stored.state).members["a"].epoch == answer.epoch
    await cluster.metadata.close()


@virtual_time
async def test_a_request_for_an_assignor_that_does_not_exist_creates_no_group():
    cluster = await Cluster.open()
    server = await cluster.server("1")

    assert await refused(server.beat("g", joining(assignor="none"))) is Problem.UNSUPPORTED_ASSIGNOR

    assert not server.ownership.owned
    assert await server.holder("g") is None
    await cluster.metadata.close()


@virtual_time
async def test_a_request_that_is_refused_does_not_change_the_groups_protocol():
    cluster = await Cluster.open()
    server = await cluster.server("1")
    ref = await classic_group(server)

    assert await refused(server.beat("g", joining(assignor="none"))) is Problem.UNSUPPORTED_ASSIGNOR
    assert await refused(server.beat("g", joining(epoch=1))) is Problem.NOT_FOUND

    assert (await server.describe("g")).kind is GroupKind.CLASSIC
    await server.heartbeat(ref)
    await cluster.metadata.close()


@virtual_time
@pytest.mark.parametrize(("policy", "is_allowed"), [("bidirectional", True), ("upgrade", True), ("downgrade", False)])
async def test_the_policy_decides_whether_a_classic_group_becomes_a_consumer_group(policy, is_allowed):
    cluster = await Cluster.open()
    server = await cluster.server("1", migration_policy=policy)
    await classic_group(server)

    if is_allowed:
        await server.beat("g", joining())
    else:
        assert await refused(server.beat("g", joining())) is Problem.NOT_FOUND

    assert ((await server.describe("g")).kind is GroupKind.CONSUMER) is is_allowed
    await cluster.metadata.close()


@virtual_time
@pytest.mark.parametrize(("policy", "is_allowed"), [("bidirectional", True), ("upgrade", False)])
async def test_the_policy_decides_whether_a_consumer_group_becomes_a_classic_group(policy, is_allowed):
    cluster = await Cluster.open()
    server = await cluster.server("1", migration_policy=policy)
    await classic_group(server)
    answer = await server.beat("g", joining())

    await server.beat("g", Heartbeat(member_id="a", epoch=LEAVES))

    group = await server.describe("g")
    assert (group.kind is GroupKind.CLASSIC) is is_allowed
    assert group.generation > answer.epoch
    assert (group.state is GroupState.PREPARING) is is_allowed
    await cluster.metadata.close()


@virtual_time
async def test_a_group_without_members_takes_members_of_either_protocol_and_goes_on_counting():
    cluster = await Cluster.open()
    server = await cluster.server("1", migration_policy="disabled")
    ref = await classic_group(server)
    await server.leave(MemberRef(group="g", member_id=ref.member_id))

    answer = await server.beat("g", joining())
    assert answer.epoch > ref.generation
    await server.beat("g", Heartbeat(member_id="a", epoch=LEAVES))
    joined = await server.join("g", classic())

    assert joined.generation > answer.epoch
    await cluster.metadata.close()


@virtual_time
async def test_a_static_classic_member_that_replaces_the_last_new_one_makes_the_group_classic():
    cluster = await Cluster.open()
    server = await cluster.server("1")
    await server.beat("g", joining(instance_id="i"))

    joined = await server.join("g", replace(classic(), instance_id="i"))

    assert joined.leader == joined.member_id
    assert (await server.describe("g")).kind is GroupKind.CLASSIC
    await cluster.metadata.close()


@virtual_time
async def test_a_snapshot_of_a_later_version_is_left_to_a_server_that_can_read_it():
    cluster = await Cluster.open()
    first, second = await cluster.server("1"), await cluster.server("2")
    await first.beat("g", joining())
    owned = first.ownership.owned["g"]
    await cluster.groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b'{"version": 9}'), owned.lease)
    await first.ownership.release_all()

    assert await refused(second.beat("g", joining())) is Problem.COORDINATOR_UNAVAILABLE

    assert await second.holder("g") is None
    await cluster.metadata.close()
