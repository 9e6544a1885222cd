"""Coordination through leases: ownership, recovery after the owner's crash, and limits of a fenced owner."""

import asyncio

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import CommittedOffset, PartitionKey, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupState, JoinRequest
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from fixtures.groups import RANGE, ref
from fixtures.liveness import lapse
from simulator.loop import virtual_time

TIMEOUT_MS = 6_000


OPEN_STORES: list[Metadata] = []


@pytest.fixture(autouse=True)
def _close_stores():
    yield
    while OPEN_STORES:
        asyncio.run(OPEN_STORES.pop().close())


class Cluster:
    """Coordinators of several servers on one store in memory, which is closed after the test."""

    async def open(self):
        self.clock = ManualClock()
        self.metadata = await open_metadata("memory:///", clock=self.clock)
        OPEN_STORES.append(self.metadata)
        stream = await self.metadata.streams.create(StreamSpec(name="t", partition_count=2))
        self.partition = stream.partition(0)
        return self

    async def server(self, name: str, metadata=None, **settings) -> Coordinator:
        found = await registering.register(
            self.metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=TIMEOUT_MS
        )
        store = metadata or self.metadata
        return Coordinator(store, Ownership(store, found.server, GroupSettings(**settings)))

    async def committed(self, group: str = "g") -> dict[PartitionKey, int]:
        return {key: value.offset for key, value in (await self.metadata.groups.offsets(group)).items()}


def request(member_id: str = "", **changes) -> JoinRequest:
    values = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "requires_known_id": False,
        "can_skip_assignment": False,
    }
    return JoinRequest(**(values | changes))


async def join_alone(groups: Coordinator, name: str = "g", **changes) -> str:
    """Join one member to a group and stabilize the group; return the member's id."""
    joined = await groups.join(name, request(**changes))
    await groups.sync(ref(name, joined.member_id, None, joined.generation), (None, None), {joined.member_id: b"all"})
    return joined.member_id


async def refused(work) -> Problem:
    with pytest.raises(GroupRefusal) as caught:
        await work
    return caught.value.problem


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(offset=value)


@virtual_time
async def test_a_group_has_one_coordinator():
    cluster = await Cluster().open()
    first, second = await cluster.server("1"), await cluster.server("2")
    member = await join_alone(first)

    assert await refused(second.heartbeat(ref("g", member, None, 1))) is Problem.NOT_COORDINATOR
    assert await refused(second.join("g", request())) is Problem.NOT_COORDINATOR
    assert (await second.holder("g")) == first.ownership.server


@virtual_time
async def test_members_keep_ids_generation_and_assignment_when_their_coordinator_dies():
    cluster = await Cluster().open()
    first = await cluster.server("1")
    member = await join_alone(first)
    await first.commit(ref("g", member, None, 1), {cluster.partition: offset(7)})
    assert await lapse(cluster.metadata, first.ownership.server)

    second = await cluster.server("2")
    await second.heartbeat(ref("g", member, None, 1))
    synced = await second.sync(ref("g", member, None, 1), ("consumer", "range"), {})
    await second.commit(ref("g", member, None, 1), {cluster.partition: offset(8)})

    assert synced.assignment == b"all"
    assert (await second.describe("g")).state is GroupState.STABLE
    assert await cluster.committed() == {cluster.partition: 8}
    await second.ownership.close()


@virtual_time
async def test_a_replaced_coordinator_is_fenced_drops_the_group_and_reports_it():
    cluster = await Cluster().open()
    first = await cluster.server("1")
    member = await join_alone(first)
    assert await lapse(cluster.metadata, first.ownership.server)
    second = await cluster.server("2")
    await second.heartbeat(ref("g", member, None, 1))

    problem = await refused(first.commit(ref("g", member, None, 1), {cluster.partition: offset(9)}))

    assert problem is Problem.NOT_COORDINATOR
    assert await cluster.committed() == {}
    assert not first.owned()
    await second.ownership.close()


@virtual_time
async def test_a_fenced_coordinator_refuses_members_that_wait_in_a_round():
    cluster = await Cluster().open()
    first = await cluster.server("1")
    member = await join_alone(first)
    waiting = asyncio.create_task(first.join("g", request()))
    await asyncio.sleep(1)
    assert await lapse(cluster.metadata, first.ownership.server)
    second = await cluster.server("2")
    await second.heartbeat(ref("g", member, None, 1))

    await refused(first.commit(ref("g", member, None, 1), {cluster.partition: offset(9)}))

    assert await refused(waiting) is Problem.NOT_COORDINATOR
    await second.ownership.close()


@virtual_time
async def test_a_drained_coordinator_hands_over_its_groups():
    cluster = await Cluster().open()
    first, second = await cluster.server("1"), await cluster.server("2")
    members = {name: await join_alone(first, name) for name in (f"g{number}" for number in range(100))}

    await first.ownership.drain()

    assert not first.owned()
    assert await refused(first.heartbeat(ref("g1", members["g1"], None, 1))) is Problem.NOT_COORDINATOR
    assert await first.holder("g1") is None
    for name, member in members.items():
        await second.heartbeat(ref(name, member, None, 1))
    assert await refused(first.join("new", request())) is Problem.NOT_COORDINATOR
    await second.ownership.close()


@virtual_time
async def test_a_group_taken_while_the_server_drains_is_released_again():
    cluster = await Cluster().open()
    gate = Gate(cluster.metadata)
    first, second = await cluster.server("1", gate), await cluster.server("2")
    gate.close("load")
    taking = asyncio.create_task(first.join("g", request()))
    await asyncio.sleep(0.1)
    await first.ownership.drain()
    gate.open()

    assert await refused(taking) is Problem.NOT_COORDINATOR
    assert await join_alone(second)
    await second.ownership.close()


@virtual_time
async def test_a_failed_save_is_unavailable_and_the_next_save_succeeds_in_the_same_generation():
    cluster = await Cluster().open()
    gate = Gate(cluster.metadata)
    coordinator = await cluster.server("1", gate)
    joined = await coordinator.join("g", request())
    gate.failures["save"] = Unavailable("lost")

    problem = await refused(
        coordinator.sync(ref("g", joined.member_id, None, 1), (None, None), {joined.member_id: b"all"})
    )
    again = await coordinator.join("g", request(joined.member_id))
    synced = await coordinator.sync(ref("g", joined.member_id, None, 1), (None, None), {joined.member_id: b"all"})

    assert problem is Problem.COORDINATOR_UNAVAILABLE
    assert again.generation == 1
    assert synced.assignment == b"all"
    await coordinator.ownership.close()


@pytest.mark.parametrize(("step", "method"), [("acquire", "join"), ("load", "join"), ("commit_offsets", "commit")])
def test_a_store_that_does_not_answer_is_a_retriable_refusal(step, method):
    @virtual_time
    async def run():
        cluster = await Cluster().open()
        gate = Gate(cluster.metadata)
        coordinator = await cluster.server("1", gate)
        gate.failures[step] = Unavailable("lost")
        work = (
            coordinator.join("g", request())
            if method == "join"
            else coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(1)})
        )

        assert await refused(work) is Problem.COORDINATOR_UNAVAILABLE

        await coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(2)})
        assert await cluster.committed() == {cluster.partition: 2}
        await coordinator.ownership.close()

    run()


@virtual_time
async def test_a_damaged_snapshot_is_a_retriable_refusal():
    cluster = await Cluster().open()
    first = await cluster.server("1")
    await join_alone(first)
    snapshot = await cluster.metadata.groups.load("g")
    await first.ownership.drain()
    second = await cluster.server("2")
    lease = await cluster.metadata.leases.acquire("group/g", second.ownership.server)
    damaged = type(snapshot)(group="g", protocol_type="consumer", state=snapshot.state[:-5])
    await cluster.metadata.groups.save(damaged, lease)

    assert await refused(second.join("g", request())) is Problem.COORDINATOR_UNAVAILABLE


@virtual_time
async def test_concurrent_requests_take_the_group_only_once():
    cluster = await Cluster().open()
    gate = Gate(cluster.metadata)
    coordinator = await cluster.server("1", gate)

    await asyncio.gather(
        *(coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(n)}) for n in range(20))
    )

    assert gate.counts["acquire"] == 1


@virtual_time
async def test_an_empty_group_is_released_after_a_while_and_found_again():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1", idle_ms=1_000)
    await coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(3)})
    member = await join_alone(coordinator, "busy", session_timeout_ms=60_000)
    await asyncio.sleep(1.1)

    await coordinator.ownership.release_idle()

    assert set(coordinator.owned()) == {"busy"}
    assert await coordinator.holder("g") is None
    assert (await coordinator.offsets("g"))[cluster.partition].offset == 3
    await coordinator.heartbeat(ref("busy", member, None, 1))
    await coordinator.ownership.close()


@virtual_time
async def test_a_bug_with_one_idle_group_does_not_keep_others(monkeypatch):
    cluster = await Cluster().open()
    coordinator = await cluster.server("1", idle_ms=1_000)
    for name in ("bad", "good"):
        await coordinator.commit(ref(name, "", None, -1), {cluster.partition: offset(3)})
    await asyncio.sleep(1.1)
    release = coordinator.ownership.release

    async def fail_for_one(name, owned):
        if name == "bad":
            raise KeyError("a bug")
        await release(name, owned)

    monkeypatch.setattr(coordinator.ownership, "release", fail_for_one)

    await coordinator.ownership.release_idle()

    assert set(coordinator.owned()) == {"bad"}
    monkeypatch.undo()
    await coordinator.ownership.close()


@virtual_time
async def test_an_empty_group_without_offsets_is_deleted_after_a_while():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1", idle_ms=1_000)
    for name in ("console", "kept"):
        member = await join_alone(coordinator, name)
        if name == "kept":
            await coordinator.commit(ref(name, member, None, 1), {cluster.partition: offset(3)})
        await coordinator.leave(ref(name, member))
    await asyncio.sleep(1.1)
    assert [listing.group for listing in await coordinator.all()] == ["console", "kept"]

    await coordinator.ownership.release_idle()

    assert [listing.group for listing in await coordinator.all()] == ["kept"]
    assert not coordinator.owned()


@virtual_time
async def test_a_commit_during_the_deletion_of_an_unused_group_is_not_lost():
    cluster = await Cluster().open()
    gate = Gate(cluster.metadata)
    coordinator = await cluster.server("1", gate, idle_ms=1_000)
    await coordinator.leave(ref("g", await join_alone(coordinator)))
    await asyncio.sleep(1.1)
    gate.close("delete")
    deleting = asyncio.create_task(coordinator.ownership.release_idle())
    await asyncio.sleep(0.1)
    committing = asyncio.create_task(coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(3)}))
    await asyncio.sleep(0.1)
    gate.open()
    await deleting

    assert await refused(committing) is Problem.NOT_COORDINATOR  # its client tries again
    await coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(3)})
    assert await cluster.committed() == {cluster.partition: 3}


@virtual_time
async def test_a_request_for_a_group_whose_lease_is_being_released_waits_and_takes_the_lease_again():
    cluster = await Cluster().open()
    gate = Gate(cluster.metadata)
    coordinator = await cluster.server("1", gate, idle_ms=1_000)
    await coordinator.commit(ref("g", "", None, -1), {cluster.partition: offset(3)})
    await asyncio.sleep(1.1)
    gate.close("release")
    releasing = asyncio.create_task(coordinator.ownership.release_idle())
    await asyncio.sleep(0.1)
    joining = asyncio.create_task(join_alone(coordinator))
    await asyncio.sleep(0.1)
    gate.open()
    await releasing

    member = await joining

    await coordinator.commit(ref("g", member, None, 1), {cluster.partition: offset(4)})
    assert await coordinator.holder("g") == coordinator.ownership.server
    await coordinator.ownership.close()


@virtual_time
async def test_groups_that_do_not_exist_are_not_found_and_create_no_state():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1")

    assert await refused(coordinator.describe("none")) is Problem.NOT_FOUND
    assert await refused(coordinator.delete("none")) is Problem.NOT_FOUND
    assert await refused(coordinator.delete_offsets("none", [cluster.partition])) is Problem.NOT_FOUND
    assert not coordinator.owned()
    assert await coordinator.holder("none") is None


@virtual_time
async def test_only_an_empty_group_is_deleted_with_its_offsets():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1")
    member = await join_alone(coordinator)
    await coordinator.commit(ref("g", member, None, 1), {cluster.partition: offset(3)})
    assert await refused(coordinator.delete("g")) is Problem.NON_EMPTY
    await coordinator.leave(ref("g", member))

    await coordinator.delete("g")

    assert await cluster.committed() == {}
    assert [listing.group for listing in await coordinator.all()] == []
    assert await refused(coordinator.describe("g")) is Problem.NOT_FOUND


@virtual_time
async def test_session_timeouts_have_limits_and_membership_needs_a_name():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1")

    for timeout_ms in (-1, 0, 5_999, 1_800_001):
        problem = await refused(coordinator.join("g", request(session_timeout_ms=timeout_ms)))
        assert problem is Problem.INVALID_SESSION_TIMEOUT
    assert await refused(coordinator.join("", request())) is Problem.INVALID_GROUP_ID
    assert await refused(coordinator.heartbeat(ref("", "m", None, 0))) is Problem.INVALID_GROUP_ID
    await coordinator.commit(
        ref("", "", None, -1), {cluster.partition: offset(1)}
    )  # Kafka accepts offsets of the group without a name
    assert await cluster.committed("") == {cluster.partition: 1}


@virtual_time
async def test_a_cancelled_wait_does_not_remove_the_member():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1")
    first = await join_alone(coordinator)
    waiting = asyncio.create_task(coordinator.join("g", request()))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.sleep(0)

    assert len((await coordinator.describe("g")).members) == 2
    again = await coordinator.join("g", request(first))
    assert len(again.members) == 2
    await coordinator.ownership.close()


class Gate:
    """A store whose methods can be delayed or fail once, by method name."""

    NOUNS = ("leases", "groups", "streams", "servers")

    def __init__(self, inner):
        self._inner = inner
        self.failures = {}
        self.counts = {}
        self.held = None
        self.opened = asyncio.Event()

    def close(self, method):
        self.held = method

    def open(self):
        self.opened.set()

    def __getattr__(self, name):
        inner = getattr(self._inner, name)
        return Noun(self, inner) if name in self.NOUNS else inner


class Noun:
    def __init__(self, gate, inner):
        self._gate = gate
        self._inner = inner

    def __getattr__(self, name):
        async def step(*args, **kwargs):
            gate = self._gate
            gate.counts[name] = gate.counts.get(name, 0) + 1
            if gate.held == name:
                await gate.opened.wait()
            error = gate.failures.pop(name, None)
            if error is not None:
                raise error
            return await getattr(self._inner, name)(*args, **kwargs)

        return step


@virtual_time
async def test_a_server_coordinates_at_most_a_limited_number_of_groups():
    cluster = await Cluster().open()
    coordinator = await cluster.server("1", count_max=2)
    for name in ("a", "b"):
        await coordinator.commit(ref(name, "", None, -1), {cluster.partition: offset(1)})

    assert await refused(coordinator.join("c", request())) is Problem.COORDINATOR_UNAVAILABLE
    await coordinator.commit(ref("a", "", None, -1), {cluster.partition: offset(2)})
