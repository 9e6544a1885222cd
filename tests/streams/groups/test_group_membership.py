"""Joining and leaving a group. Kafka's own rules: GroupCoordinator (classic); KIP-62, KIP-134, KIP-389, KIP-394."""

import pytest

from bearlake.streams.groups.model import GroupState, Joined, Synced
from bearlake.streams.groups.problems import Problem
from fixtures.groups import BOTH, REBALANCE_MS, SESSION_MS, Scene
from simulator.loop import virtual_time


@virtual_time
async def test_a_new_member_gets_an_id_first_and_joins_with_it_kip_394():
    scene = Scene()

    first = scene.join("app")
    second = scene.join("app", id=first.id)

    assert first.answer is Problem.MEMBER_ID_REQUIRED
    assert first.id.startswith("app-")
    assert second.answer.generation == 1
    assert second.answer.leader == second.answer.member_id == first.id
    assert [member.metadata for member in second.answer.members] == [b"topics"]
    assert scene.state is GroupState.COMPLETING


@virtual_time
async def test_an_old_client_joins_without_an_id():
    scene = Scene()

    assert scene.join("app", old=True).answer.generation == 1


@virtual_time
async def test_a_member_id_that_was_handed_out_delays_the_round_until_its_client_joins_or_times_out():
    scene = Scene()
    (a,) = await scene.stable("a")

    pending = scene.join("b")
    waiting = scene.join(id=a.id, protocols=RANGE_CHANGED)
    assert waiting.answer is None
    await scene.pass_ms(SESSION_MS + 1, beating=(a,))

    assert waiting.answer.generation == 2
    assert scene.join("b", id=pending.id).answer is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_a_member_id_that_was_handed_out_can_leave_and_the_round_completes():
    scene = Scene()
    (a,) = await scene.stable("a")
    pending = scene.join("b")
    waiting = scene.join(id=a.id, protocols=RANGE_CHANGED)

    assert scene.call("leave", pending.id, None).problem is None

    assert waiting.answer.generation == 2


@virtual_time
async def test_a_pending_id_with_an_instance_id_is_refused():
    scene = Scene()
    pending = scene.join("b")

    assert scene.join(id=pending.id, instance="i").answer is Problem.UNKNOWN_MEMBER


@pytest.mark.parametrize("state", ["stable", "completing", "preparing"])
def test_an_unknown_member_is_refused_in_every_state(state):
    @virtual_time
    async def run():
        scene = Scene()
        await getattr(scene, state)("a", "b")

        assert scene.join(id="nobody").answer is Problem.UNKNOWN_MEMBER
        assert scene.call("sync", "nobody", None, scene.generation, (None, None), {}).answer is Problem.UNKNOWN_MEMBER
        assert scene.call("heartbeat", "nobody", None, scene.generation).answer is Problem.UNKNOWN_MEMBER
        assert scene.call("leave", "nobody", None).answer is Problem.UNKNOWN_MEMBER
        assert scene.call("leave", "", None).answer is Problem.UNKNOWN_MEMBER
        assert scene.call("leave", "", "nobody").answer is Problem.UNKNOWN_MEMBER

    run()


@virtual_time
async def test_an_empty_group_refuses_everything_except_a_join():
    scene = Scene()

    assert scene.call("sync", "m", None, 0, (None, None), {}).answer is Problem.UNKNOWN_MEMBER
    assert scene.call("heartbeat", "m", None, 0).answer is Problem.UNKNOWN_MEMBER
    assert scene.join(id="m").answer is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_a_closed_group_sends_all_members_to_another_coordinator():
    scene = Scene()
    (a,) = await scene.stable("a")
    b = scene.enter("b")

    scene.machine.rounds.close(Problem.NOT_COORDINATOR)

    assert b.answer is Problem.NOT_COORDINATOR
    for method, *args in (
        ("heartbeat", a.id, None, 1),
        ("leave", a.id, None),
        ("check_commit", a.id, None, 1),
        ("check_commit", "", None, -1),
        ("sync", a.id, None, 1, (None, None), {}),
    ):
        assert scene.call(method, *args).answer is Problem.NOT_COORDINATOR
    assert scene.join("c").answer is Problem.NOT_COORDINATOR


@virtual_time
async def test_protocols_must_overlap_with_those_of_all_members():
    scene = Scene()
    (a,) = await scene.stable("a", protocols=BOTH)
    assert scene.enter("b", protocols=(("sticky", b""),)).answer is None
    assert scene.join("c").answer is Problem.INCONSISTENT_PROTOCOL  # b has no range
    assert scene.join("c", kind="connect", protocols=(("sticky", b""),)).answer is Problem.INCONSISTENT_PROTOCOL
    assert scene.join("c", protocols=()).answer is Problem.INCONSISTENT_PROTOCOL

    assert scene.join(id=a.id, protocols=BOTH).answer.protocol_name == "sticky"


@virtual_time
async def test_the_first_member_needs_a_protocol_type_and_a_protocol():
    scene = Scene()

    assert scene.join("a", kind="").answer is Problem.INCONSISTENT_PROTOCOL
    assert scene.join("a", protocols=()).answer is Problem.INCONSISTENT_PROTOCOL


@virtual_time
async def test_the_protocol_that_most_members_support_is_elected():
    scene = Scene()
    x, y = ("x", b""), ("y", b"")
    a = scene.enter("a", protocols=(x, y))
    b, c = scene.enter("b", protocols=(y, x)), scene.enter("c", protocols=(y, x))

    again = scene.join(id=a.id, protocols=(x, y))

    assert again.answer.protocol_name == b.answer.protocol_name == c.answer.protocol_name == "y"


@pytest.mark.parametrize("kind", ["connect", "sr", "anything"])
def test_other_protocol_types_are_opaque(kind):
    @virtual_time
    async def run():
        scene = Scene()
        a = scene.enter("w", kind=kind, protocols=(("v0", b"\x00\xff"),))
        assert a.answer.protocol_type == kind
        assert a.answer.members[0].metadata == b"\x00\xff"

        sync = scene.call("sync", a.id, None, 1, (kind, "v0"), {a.id: b"\xff\x00"})
        await scene.run_due()

        assert sync.answer == Synced(protocol_type=kind, protocol_name="v0", assignment=b"\xff\x00")

    run()


@virtual_time
async def test_a_full_group_accepts_no_member_and_ids_that_were_handed_out_count_kip_389():
    scene = Scene(size_max=2)
    await scene.stable("a")
    pending = scene.join("b")

    assert scene.join("c").answer is Problem.GROUP_FULL
    assert scene.join("c", old=True).answer is Problem.GROUP_FULL
    assert scene.join("c", instance="i").answer is Problem.GROUP_FULL
    assert scene.join("b", id=pending.id).answer is None
    assert scene.join("c").answer is Problem.GROUP_FULL


@virtual_time
async def test_the_last_member_to_leave_empties_the_group_and_saves_it():
    scene = Scene()
    (a,) = await scene.stable("a")

    assert scene.call("leave", a.id, None).problem is None

    assert scene.state is GroupState.EMPTY
    assert scene.generation == 2
    assert len(scene.saves) == 2
    assert scene.join("b", kind="connect").answer is Problem.MEMBER_ID_REQUIRED  # an empty group has no type


@virtual_time
async def test_a_leave_makes_the_other_members_rebalance():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    scene.call("leave", a.id, None)

    assert scene.state is GroupState.PREPARING
    assert scene.beat(b) is Problem.REBALANCE_IN_PROGRESS
    again = scene.join(id=b.id)
    assert again.answer.leader == b.id
    assert [member.member_id for member in again.answer.members] == [b.id]


@virtual_time
async def test_a_member_that_leaves_while_its_join_waits_is_answered():
    scene = Scene()
    await scene.stable("a")
    b = scene.enter("b")

    scene.call("leave", b.id, None)

    assert b.answer is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_the_first_round_waits_for_more_members_and_each_newcomer_prolongs_it_kip_134():
    scene = Scene(initial_delay_ms=3_000)
    a = scene.join("a", old=True)
    await scene.pass_ms(2_000)
    b = scene.join("b", old=True)
    await scene.pass_ms(2_000)
    assert a.answer is b.answer is None
    await scene.pass_ms(2_001)

    assert a.answer.generation == b.answer.generation == 1
    assert len(a.answer.members) == 2


@virtual_time
async def test_newcomers_prolong_the_first_round_at_most_to_the_rebalance_timeout():
    scene = Scene(initial_delay_ms=3_000)
    a = scene.join("a", old=True, rebalance_ms=7_000)
    for _ in range(6):
        await scene.pass_ms(1_100)
        scene.join("more", old=True, rebalance_ms=7_000)
    assert a.answer is None
    await scene.pass_ms(500)

    assert isinstance(a.answer, Joined)


@virtual_time
async def test_a_lone_member_waits_for_the_initial_delay_only():
    scene = Scene(initial_delay_ms=3_000)
    a = scene.join("a", old=True)
    await scene.pass_ms(2_999)
    assert a.answer is None
    await scene.pass_ms(2)

    assert isinstance(a.answer, Joined)


@virtual_time
async def test_absent_members_are_removed_after_the_rebalance_timeout():
    scene = Scene()
    a, b = await scene.stable("a", "b", rebalance_ms=REBALANCE_MS)
    c = scene.enter("c")

    await scene.pass_ms(REBALANCE_MS - 1_000, beating=(a, b))
    assert c.answer is None
    await scene.pass_ms(1_001, beating=(a, b))

    assert c.answer.leader == c.id
    assert set(scene.group.members) == {c.id}
    assert scene.beat(a) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_the_round_waits_for_the_longest_rebalance_timeout_of_its_members():
    scene = Scene()
    (a,) = await scene.stable("a", rebalance_ms=90_000)
    c = scene.enter("c", rebalance_ms=5_000)

    await scene.pass_ms(89_000, beating=(a,))
    assert c.answer is None
    await scene.pass_ms(1_001, beating=(a,))

    assert isinstance(c.answer, Joined)


RANGE_CHANGED = (("range", b"other topics"),)
