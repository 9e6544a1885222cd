"""Rounds, syncs, sessions and commits of a group. Kafka's own rules: GroupCoordinator (classic); KIP-62, KIP-559."""

import asyncio

import pytest
import uvloop

from bearlake.streams.groups.model import Group, GroupState, Joined, Synced
from bearlake.streams.groups.problems import Problem
from fixtures.groups import REBALANCE_MS, SESSION_MS, Scene
from simulator.loop import virtual_time

CHANGED = (("range", b"other topics"),)


# -- rejoining -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_follower_that_joins_a_stable_group_again_without_change_gets_the_present_generation():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    again = scene.join(id=b.id)

    assert again.answer.generation == scene.generation
    assert again.answer.leader == a.id
    assert again.answer.members == ()
    assert scene.state is GroupState.STABLE


@virtual_time
async def test_a_leader_that_joins_a_stable_group_again_asks_for_a_round():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    again = scene.join(id=a.id)

    assert again.answer is None
    assert scene.beat(b) is Problem.REBALANCE_IN_PROGRESS


@virtual_time
async def test_a_follower_with_changed_metadata_asks_for_a_round():
    scene = Scene()
    _, b = await scene.stable("a", "b")

    assert scene.join(id=b.id, protocols=CHANGED).answer is None
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_a_lost_answer_to_a_join_is_given_again_while_the_assignment_is_awaited():
    scene = Scene()
    a, b = await scene.completing("a", "b")

    assert len(scene.join(id=a.id).answer.members) == 2
    assert scene.join(id=b.id).answer.members == ()
    assert scene.state is GroupState.COMPLETING


@virtual_time
async def test_changed_metadata_while_the_assignment_is_awaited_starts_the_round_again():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    waiting = scene.sync(b)

    again = scene.join(id=a.id, protocols=CHANGED)

    assert waiting.answer is Problem.REBALANCE_IN_PROGRESS
    assert again.answer is None
    assert scene.join(id=b.id).answer.generation == again.answer.generation


@virtual_time
async def test_a_newcomer_while_the_assignment_is_awaited_starts_the_round_again():
    scene = Scene()
    _, b = await scene.completing("a", "b")
    waiting = scene.sync(b)

    scene.enter("c")

    assert waiting.answer is Problem.REBALANCE_IN_PROGRESS
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_a_second_join_of_a_member_replaces_the_first():
    scene = Scene()
    a, b = await scene.stable("a", "b")
    first = scene.join(id=a.id)

    second = scene.join(id=a.id)
    scene.join(id=b.id)

    assert first.answer is Problem.REBALANCE_IN_PROGRESS
    assert isinstance(second.answer, Joined)


@virtual_time
async def test_a_leader_that_does_not_rejoin_is_replaced():
    scene = Scene()
    a, b = await scene.stable("a", "b")
    scene.join(id=b.id, protocols=CHANGED)

    await scene.pass_ms(SESSION_MS + 1)

    assert a.id not in scene.group.members
    assert scene.group.leader == b.id
    assert scene.state is GroupState.COMPLETING


# -- sync ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_followers_wait_for_the_leader_and_all_wait_for_the_save():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    scene.saves_by_hand = True

    follower = scene.sync(b)
    leader = scene.sync(a, {a.id: b"1", b.id: b"2"})
    await scene.run_due()
    assert leader.answer is follower.answer is None
    scene.machine.rounds.saved(scene.saves[-1])

    assert leader.answer.assignment == b"1"
    assert follower.answer.assignment == b"2"
    assert scene.state is GroupState.STABLE


@virtual_time
async def test_a_member_without_an_assignment_gets_an_empty_one():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    follower = scene.sync(b)

    scene.sync(a, {a.id: b"1", "nobody": b"9"})
    await scene.run_due()

    assert follower.answer.assignment == b""


@virtual_time
async def test_a_sync_in_a_stable_group_is_answered_at_once():
    scene = Scene()
    _, b = await scene.stable("a", "b")

    assert scene.sync(b).answer.assignment == b"for b"


@virtual_time
async def test_a_sync_is_refused_by_generation_state_and_protocol():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    generation = scene.generation

    def sync(generation, protocol):
        return scene.call("sync", b.id, None, generation, protocol, {}).answer

    assert sync(generation - 1, (None, None)) is Problem.ILLEGAL_GENERATION
    assert sync(generation + 1, (None, None)) is Problem.ILLEGAL_GENERATION
    assert sync(generation, ("connect", "range")) is Problem.INCONSISTENT_PROTOCOL  # KIP-559
    assert sync(generation, ("consumer", "sticky")) is Problem.INCONSISTENT_PROTOCOL
    scene.join(id=a.id, protocols=CHANGED)
    assert sync(generation, ("consumer", "range")) is Problem.REBALANCE_IN_PROGRESS


@virtual_time
async def test_a_failed_save_sends_everybody_back_and_keeps_the_generation():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    scene.saves_by_hand = True
    syncs = [scene.sync(b), scene.sync(a, {a.id: b"1"})]
    await scene.run_due()

    scene.machine.rounds.save_failed(scene.saves[-1])

    assert [sync.answer for sync in syncs] == [Problem.COORDINATOR_UNAVAILABLE] * 2
    assert scene.state is GroupState.COMPLETING
    scene.saves_by_hand = False
    generations = [scene.join(id=member.id).answer.generation for member in (b, a)]
    await scene.run_due()
    assert generations == [scene.generation] * 2


@virtual_time
async def test_a_save_that_ends_after_its_round_was_given_up_changes_nothing():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    scene.saves_by_hand = True
    leader = scene.sync(a, {a.id: b"1"})
    scene.enter("c")

    scene.machine.rounds.saved(scene.saves[-1])

    assert leader.answer is Problem.REBALANCE_IN_PROGRESS
    assert scene.state is GroupState.PREPARING
    scene.join(id=a.id)
    scene.join(id=b.id)
    assert scene.state is GroupState.COMPLETING
    scene.machine.rounds.saved(scene.saves[-1])
    assert scene.state is GroupState.COMPLETING


@virtual_time
async def test_the_group_is_saved_as_of_the_sync():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    scene.saves_by_hand = True
    scene.sync(a, {a.id: b"1", b.id: b"2"})
    scene.enter("c")

    saved = Group.decode("g", "consumer", scene.snapshots[-1])

    assert {member.member_id: member.assignment for member in saved.members.values()} == {a.id: b"1", b.id: b"2"}


@virtual_time
async def test_a_leader_that_sends_no_assignment_is_removed_after_the_rebalance_timeout():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    waiting = scene.sync(b)

    await scene.pass_ms(REBALANCE_MS + 1, beating=(a, b))

    assert waiting.answer is Problem.REBALANCE_IN_PROGRESS
    assert set(scene.group.members) == {b.id}
    assert scene.join(id=b.id).answer.leader == b.id


@virtual_time
async def test_a_member_that_never_syncs_is_dropped_from_a_stable_group_too():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    scene.sync(a, {a.id: b"1", b.id: b"2"})
    await scene.run_due()
    assert scene.state is GroupState.STABLE

    await scene.pass_ms(REBALANCE_MS + 1, beating=(a, b))

    assert set(scene.group.members) == {a.id}
    assert scene.state is GroupState.PREPARING


@virtual_time
async def test_no_member_is_removed_when_all_have_synced():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    await scene.pass_ms(2 * REBALANCE_MS, beating=(a, b))

    assert scene.state is GroupState.STABLE


# -- sessions ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_member_that_is_silent_for_its_session_is_dropped_and_heartbeats_keep_it():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    await scene.pass_ms(SESSION_MS + 1, beating=(a,))

    assert set(scene.group.members) == {a.id}
    assert scene.beat(b) is Problem.UNKNOWN_MEMBER
    assert scene.beat(a) is Problem.REBALANCE_IN_PROGRESS


@virtual_time
async def test_heartbeats_are_answered_by_generation_and_state():
    scene = Scene()
    a, b = await scene.stable("a", "b")

    assert scene.beat(b, generation=scene.generation - 1) is Problem.ILLEGAL_GENERATION
    scene.join(id=a.id)
    assert scene.beat(b) is Problem.REBALANCE_IN_PROGRESS
    scene.join(id=b.id)
    assert scene.state is GroupState.COMPLETING
    scene.beat(b)  # no refusal: KAFKA-10134


@virtual_time
async def test_a_member_does_not_expire_while_it_waits_for_the_others():
    scene = Scene()
    a, b = await scene.stable("a", "b")
    waiting = scene.join(id=b.id, protocols=CHANGED)

    await scene.pass_ms(3 * SESSION_MS, beating=(a,))

    assert b.id in scene.group.members
    assert waiting.answer is None


@virtual_time
async def test_a_member_has_a_whole_session_after_its_assignment_has_arrived():
    scene = Scene()
    a, b = await scene.completing("a", "b")
    follower = scene.sync(b)
    await scene.pass_ms(SESSION_MS - 100, beating=(a,))
    scene.sync(a, {a.id: b"1", b.id: b"2"})
    await scene.run_due()
    assert isinstance(follower.answer, Synced)

    await scene.pass_ms(SESSION_MS - 100, beating=(a,))

    assert b.id in scene.group.members


@virtual_time
async def test_a_new_member_whose_client_has_gone_is_dropped_after_five_minutes_of_waiting():
    scene = Scene()
    (a,) = await scene.stable("a", rebalance_ms=900_000)
    gone = scene.join("b", old=True, rebalance_ms=900_000)

    await scene.pass_ms(300_001, beating=(a,))

    assert gone.answer is Problem.UNKNOWN_MEMBER
    assert set(scene.group.members) == {a.id}


@virtual_time
async def test_a_restored_group_is_stable_and_expects_its_members():
    scene = Scene()
    a, b = await scene.stable("a", "b")
    scene.machine.rounds.close(Problem.NOT_COORDINATOR)

    after = Scene(group=Group.decode("g", "consumer", scene.snapshots[-1]))
    assert after.state is GroupState.STABLE
    assert after.generation == scene.generation
    assert after.beat(a) is None
    assert after.sync(b).answer.assignment == b"for b"
    await after.pass_ms(SESSION_MS + 1, beating=(a,))

    assert set(after.group.members) == {a.id}


# -- commits -------------------------------------------------------------------------------------------------------

SELF = ("", None, -1)
COMMITS = [
    # state, member, generation relative to the group's, outcome
    ("empty", "", None, None),
    ("empty", "nobody", None, None),
    ("empty", "nobody", 0, Problem.ILLEGAL_GENERATION),
    ("stable", "a", 0, None),
    ("stable", "a", -1, Problem.ILLEGAL_GENERATION),
    ("stable", "a", 1, Problem.ILLEGAL_GENERATION),
    ("stable", "a", None, Problem.ILLEGAL_GENERATION),
    ("stable", "", None, Problem.UNKNOWN_MEMBER),
    ("stable", "", 0, Problem.UNKNOWN_MEMBER),
    ("stable", "nobody", 0, Problem.UNKNOWN_MEMBER),
    ("preparing", "a", 0, None),
    ("preparing", "", None, Problem.UNKNOWN_MEMBER),
    ("completing", "a", 0, Problem.REBALANCE_IN_PROGRESS),
    ("completing", "a", -1, Problem.ILLEGAL_GENERATION),
    ("completing", "", None, Problem.UNKNOWN_MEMBER),
]


@pytest.mark.parametrize(("state", "member", "relative", "outcome"), COMMITS)
def test_commits_are_taken_by_state_member_and_generation(state, member, relative, outcome):
    @virtual_time
    async def run():
        scene = Scene()
        member_id = member
        if state != "empty":
            members = await getattr(scene, state)("a", "b")
            member_id = members[0].id if member == "a" else member
        generation = -1 if relative is None else scene.generation + relative

        assert scene.call("check_commit", member_id, None, generation).problem is outcome

    run()


@virtual_time
async def test_a_commit_keeps_the_session_alive():
    scene = Scene()
    a, b = await scene.stable("a", "b")
    for _ in range(4):
        await scene.pass_ms(SESSION_MS / 2, beating=(a,))
        assert scene.call("check_commit", b.id, None, scene.generation).problem is None

    assert b.id in scene.group.members


@virtual_time
async def test_an_empty_group_that_had_members_refuses_their_commits():
    scene = Scene()
    (a,) = await scene.stable("a")
    scene.call("leave", a.id, None)

    assert scene.call("check_commit", a.id, None, 1).problem is Problem.UNKNOWN_MEMBER
    assert scene.call("check_commit", "", None, -1).problem is None


def test_on_uvloop_a_session_that_ends_within_half_a_millisecond_is_renewed():
    async def run():
        scene = Scene()
        (a,) = await scene.stable("a")
        member = scene.group.members[a.id]
        member.timer.cancel()
        member.deadline = asyncio.get_running_loop().time() + 0.0002
        scene.machine.rounds._arm(member)  # uvloop gives a handle without `when()`  # noqa: SLF001

        assert scene.beat(a) is None
        await asyncio.sleep(0.01)
        assert a.id in scene.group.members
        scene.machine.rounds.close(Problem.NOT_COORDINATOR)

    uvloop.run(run())
