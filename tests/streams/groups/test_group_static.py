"""Static members. Source: KIP-345, KIP-814; Kafka's GroupCoordinator (classic)."""

import pytest

from bearlake.streams.groups.model import Group, GroupState, Joined
from bearlake.streams.groups.problems import Problem
from fixtures.groups import BOTH, SESSION_MS, Scene
from simulator.loop import virtual_time

STICKY_FIRST = (("sticky", b"topics"), ("range", b"topics"))


async def pair(scene: Scene, **options):
    """A stable group of two static members; `i1` leads."""
    a = scene.join("a", instance="i1", **options)
    b = scene.join("b", instance="i2", **options)
    scene.join(id=a.id, instance="i1", **options)
    plan = {a.id: b"1", b.id: b"2"}
    scene.sync(a, plan, instance="i1")
    scene.sync(b, instance="i2")
    await scene.run_due()
    assert scene.state is GroupState.STABLE
    return a, b


@virtual_time
async def test_a_static_member_gets_its_id_at_once():
    scene = Scene()

    joined = scene.join("a", instance="i1")

    assert joined.answer.member_id.startswith("i1-")
    assert joined.answer.members[0].instance_id == "i1"


@virtual_time
async def test_a_restarted_follower_takes_its_old_place_without_a_round():
    scene = Scene()
    a, b = await pair(scene)

    again = scene.join("b", instance="i2")
    await scene.run_due()

    assert again.answer.generation == scene.generation == 2
    assert again.answer.leader == a.id
    assert again.answer.members == ()
    assert scene.state is GroupState.STABLE
    new = again.answer.member_id
    assert new != b.id
    assert scene.call("sync", new, "i2", 2, (None, None), {}).answer.assignment == b"2"
    assert scene.beat(b, instance="i2") is Problem.FENCED_INSTANCE
    assert scene.call("check_commit", b.id, "i2", 2).answer is Problem.FENCED_INSTANCE
    assert scene.call("leave", b.id, "i2").answer is Problem.FENCED_INSTANCE
    assert scene.join(id=b.id, instance="i2").answer is Problem.FENCED_INSTANCE
    assert scene.beat(b) is Problem.UNKNOWN_MEMBER  # without saying who it is


@virtual_time
async def test_changed_metadata_of_a_restarted_member_needs_no_round_while_the_protocol_stays():
    # Java's consumer writes its last generation into the metadata, so that it differs after every restart.
    scene = Scene()
    await pair(scene)

    again = scene.join("b", instance="i2", protocols=(("range", b"restarted"),))
    await scene.run_due()

    assert isinstance(again.answer, Joined)
    assert scene.state is GroupState.STABLE


@virtual_time
async def test_a_restarted_member_that_changes_the_election_starts_a_round():
    scene = Scene()
    a, b = await pair(scene, protocols=BOTH)
    assert scene.group.protocol_name == "range"
    scene.join("b", instance="i2", protocols=STICKY_FIRST)  # one vote each
    await scene.run_due()
    assert scene.state is GroupState.STABLE

    again = scene.join("a", instance="i1", protocols=STICKY_FIRST)

    assert again.answer is None
    assert scene.state is GroupState.PREPARING
    assert a.id not in scene.group.members
    assert b.id not in scene.group.members


@pytest.mark.parametrize("skips", [False, True])
def test_a_restarted_leader_does_not_assign(skips):
    @virtual_time
    async def run():
        scene = Scene()
        a, _ = await pair(scene)

        again = scene.join("a", instance="i1", skips=skips)
        await scene.run_due()

        answer = again.answer
        assert scene.group.leader == answer.member_id
        assert answer.skips_assignment is skips
        assert (answer.leader == answer.member_id) is skips  # before KIP-814 it gets its old id
        assert len(answer.members) == (2 if skips else 0)
        if not skips:
            assert answer.leader == a.id

    run()


@virtual_time
async def test_the_new_id_is_saved_before_its_owner_gets_it():
    scene = Scene()
    await pair(scene)
    scene.saves_by_hand = True

    again = scene.join("b", instance="i2")
    await scene.run_due()
    assert again.answer is None
    saved = Group.decode("g", "consumer", scene.snapshots[-1])
    scene.machine.rounds.saved(scene.saves[-1])

    assert saved.static["i2"] == again.answer.member_id
    assert saved.members[again.answer.member_id].assignment == b"2"


@virtual_time
async def test_when_the_new_id_cannot_be_saved_its_owner_asks_again():
    scene = Scene()
    await pair(scene)
    scene.saves_by_hand = True
    again = scene.join("b", instance="i2")

    scene.machine.rounds.save_failed(scene.saves[-1])
    assert again.answer is Problem.COORDINATOR_UNAVAILABLE
    scene.saves_by_hand = False
    third = scene.join("b", instance="i2")
    await scene.run_due()

    assert third.answer.generation == scene.generation
    assert scene.state is GroupState.STABLE


@virtual_time
async def test_two_replacements_wait_for_one_save():
    scene = Scene()
    await pair(scene)
    scene.saves_by_hand = True
    first, second = scene.join("a", instance="i1"), scene.join("b", instance="i2")

    scene.machine.rounds.saved(scene.saves[-2])
    assert first.answer is second.answer is None
    scene.machine.rounds.saved(scene.saves[-1])

    assert isinstance(first.answer, Joined)
    assert isinstance(second.answer, Joined)


@virtual_time
async def test_a_round_that_starts_while_a_new_id_is_saved_answers_with_its_own_generation():
    scene = Scene()
    a, _ = await pair(scene)
    scene.saves_by_hand = True
    again = scene.join("b", instance="i2")
    scene.join(id=a.id, instance="i1")
    assert again.answer.generation == scene.generation == 3

    scene.machine.rounds.saved(scene.saves[-1])

    assert scene.state is GroupState.COMPLETING


@virtual_time
async def test_a_replacement_while_the_assignment_is_awaited_starts_the_round_again():
    scene = Scene()
    a, b = await pair(scene)
    scene.join(id=a.id, instance="i1")
    scene.join(id=b.id, instance="i2")
    assert scene.state is GroupState.COMPLETING
    old = scene.sync(b, instance="i2")

    again = scene.join("b", instance="i2")

    assert old.answer is Problem.FENCED_INSTANCE
    assert again.answer is None
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_a_replacement_while_the_old_one_waits_to_join_fences_the_old_one():
    scene = Scene()
    a, b = await pair(scene)
    old = scene.join(id=b.id, instance="i2", protocols=(("range", b"changed"),))

    again = scene.join("b", instance="i2")
    scene.join(id=a.id, instance="i1")

    assert old.answer is Problem.FENCED_INSTANCE
    assert again.answer.generation == 3


@virtual_time
async def test_an_absent_static_member_keeps_its_place_through_rounds_until_its_session_expires():
    scene = Scene()
    a, b = await pair(scene, session_ms=40_000, rebalance_ms=5_000)
    scene.join(id=a.id, instance="i1", session_ms=40_000, rebalance_ms=5_000)

    await scene.pass_ms(5_100)
    assert scene.state is GroupState.COMPLETING
    assert b.id in scene.group.members
    scene.sync(a, {a.id: b"1", b.id: b"2"}, instance="i1")
    await scene.run_due()
    await scene.pass_ms(30_000, beating=(a,))
    assert b.id in scene.group.members
    await scene.pass_ms(5_000, beating=(a,))

    assert b.id not in scene.group.members
    assert "i2" not in scene.group.static


@virtual_time
async def test_a_round_with_only_absent_static_members_keeps_waiting():
    scene = Scene()
    a, b = await pair(scene, session_ms=40_000, rebalance_ms=5_000)
    stranger = scene.join("c", old=True, rebalance_ms=5_000)
    scene.call("leave", stranger.id, None)

    await scene.pass_ms(12_000)
    assert scene.state is GroupState.PREPARING
    assert scene.generation == 2
    waiting = scene.join(id=b.id, instance="i2", session_ms=40_000, rebalance_ms=5_000)
    await scene.pass_ms(5_001)

    assert waiting.answer.leader == b.id
    assert a.id in scene.group.members


@virtual_time
async def test_an_instance_is_removed_by_its_name_alone():
    scene = Scene()
    _, b = await pair(scene)

    call = scene.call("leave", "", "i2")

    assert call.future == b.id
    assert b.id not in scene.group.members
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_a_silent_static_member_expires_with_its_session():
    scene = Scene()
    a, b = await pair(scene)

    await scene.pass_ms(SESSION_MS - 1_000)
    scene.beat(a, instance="i1")
    await scene.pass_ms(2_000)

    assert set(scene.group.members) == {a.id}
    assert scene.beat(b, instance="i2") is Problem.UNKNOWN_MEMBER
