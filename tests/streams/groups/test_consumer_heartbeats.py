"""Members of a consumer group (KIP-848): joining, assignment, epochs, leaving. The answers are those of Apache Kafka 4.3.1."""

import asyncio
from dataclasses import replace

import pytest

from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.model import GroupState, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from fixtures.consumer_groups import REBALANCE_MS, SETTINGS, ConsumerScene, Topics
from simulator.loop import virtual_time


@virtual_time
async def test_the_first_member_gets_all_partitions():
    scene = ConsumerScene()

    a = await scene.join("a")

    assert a.epoch == scene.group.epoch == scene.group.assignment_epoch == 1
    assert a.indexes() == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert scene.group.state is GroupState.STABLE


@virtual_time
async def test_a_second_member_gets_partitions_when_the_first_has_given_them_up():
    scene = ConsumerScene()
    a = await scene.join("a")

    b = await scene.join("b")
    assert not b.has
    assert scene.group.state is GroupState.RECONCILING
    await scene.beat(a)
    assert a.epoch == 1
    assert len(a.has) == 2
    await scene.beat(b)
    assert not b.has
    await scene.beat(a)
    await scene.beat(b)

    assert (a.epoch, b.epoch) == (2, 2)
    assert not a.has & b.has
    assert len(a.has | b.has) == 4
    assert scene.group.state is GroupState.STABLE


@virtual_time
async def test_a_member_without_news_gets_no_assignment():
    scene = ConsumerScene()
    a = await scene.join("a")

    answer = await scene.beat(a, owned=None)

    assert isinstance(answer, HeartbeatAnswer)
    assert answer.assigned is None


@virtual_time
async def test_a_full_request_gets_the_assignment_again():
    scene = ConsumerScene()
    a = await scene.join("a")

    answer = await scene.beat(a, rebalance_timeout_ms=REBALANCE_MS, topics=("t",))

    assert isinstance(answer, HeartbeatAnswer)
    assert set(answer.assigned or ()) == a.has


@virtual_time
async def test_partitions_of_a_member_that_leaves_go_to_the_others():
    scene = ConsumerScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.settle(a, b)

    left = await scene.beat(b, epoch=LEAVES)
    await scene.settle(a)

    assert left == HeartbeatAnswer(member_id="b", epoch=LEAVES)
    assert len(a.has) == 4


@virtual_time
async def test_a_member_that_is_silent_for_its_session_timeout_is_removed():
    scene = ConsumerScene()
    a, b = await scene.join("a"), await scene.join("b")
    for _ in range(10):
        await asyncio.sleep(5)
        await scene.beat(a)

    assert list(scene.group.members) == ["a"]
    assert len(a.has) == 4
    assert await scene.beat(b) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_no_member_expires_while_the_server_cannot_confirm_its_registration():
    scene = ConsumerScene()
    await scene.join("a")

    scene.may_expire = False
    await asyncio.sleep(200)
    assert "a" in scene.group.members
    scene.may_expire = True
    await asyncio.sleep(50)

    assert not scene.group.members


@virtual_time
async def test_a_member_that_does_not_give_up_its_partitions_in_its_rebalance_timeout_is_removed():
    scene = ConsumerScene()
    a = await scene.join("a")
    b = await scene.join("b")
    stubborn = tuple(a.has)
    for _ in range(8):
        await asyncio.sleep(5)
        await scene.beat(a, owned=stubborn)
        await scene.beat(b)

    assert list(scene.group.members) == ["b"]
    assert len(b.has) == 4


@virtual_time
async def test_an_epoch_ahead_is_fenced():
    scene = ConsumerScene()
    a = await scene.join("a")

    assert await scene.beat(a, epoch=a.epoch + 1) is Problem.FENCED_MEMBER_EPOCH


@virtual_time
async def test_the_previous_epoch_is_accepted_with_a_part_of_the_partitions_as_its_answer_may_be_lost():
    scene = ConsumerScene()
    a = await scene.join("a")
    old, had = a.epoch, tuple(a.has)
    await scene.join("b")
    await scene.beat(a)
    await scene.beat(a)

    assert isinstance(await scene.beat(a, epoch=old, owned=tuple(a.has)), HeartbeatAnswer)
    assert await scene.beat(a, epoch=old, owned=had) is Problem.FENCED_MEMBER_EPOCH
    assert await scene.beat(a, epoch=old, owned=None) is Problem.FENCED_MEMBER_EPOCH


@virtual_time
async def test_a_fenced_member_joins_again_with_epoch_0_and_gives_everything_up():
    scene = ConsumerScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.settle(a, b)

    again = await scene.join("a")

    assert again.epoch == a.epoch
    assert again.has == a.has


@virtual_time
async def test_an_unknown_member_is_told_so():
    scene = ConsumerScene()
    a = await scene.join("a")

    assert await scene.beat(replace(a, id="x", answers=[])) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_an_assignor_that_the_server_does_not_have_is_refused():
    scene = ConsumerScene()

    a = await scene.join("a", assignor="sticky")

    assert a.answers == [Problem.UNSUPPORTED_ASSIGNOR]
    assert not scene.group.members


@virtual_time
async def test_the_assignor_that_most_members_ask_for_is_used():
    scene = ConsumerScene()
    a, b, c = [await scene.join(name, assignor=asked) for name, asked in (("a", None), ("b", "range"), ("c", None))]

    await scene.settle(a, b, c)

    assert scene.group.assignor == "range"
    assert b.indexes() == [(1, 2)]


@virtual_time
async def test_a_full_group_takes_no_new_member_but_lets_members_join_again():
    scene = ConsumerScene(settings=replace(SETTINGS, size_max=1))
    await scene.join("a")

    assert (await scene.join("b")).answers == [Problem.GROUP_FULL]
    assert isinstance((await scene.join("a")).answers[0], HeartbeatAnswer)


@virtual_time
async def test_partitions_that_a_topic_gains_are_assigned():
    scene = ConsumerScene(Topics(t=2))
    a = await scene.join("a")

    scene.topics.create("t", 3)
    await scene.settle(a)

    assert a.indexes() == [(1, 0), (1, 1), (1, 2)]


@virtual_time
async def test_a_topic_that_is_created_after_the_subscription_is_assigned():
    scene = ConsumerScene(Topics())
    a = await scene.join("a")
    assert not a.has

    scene.topics.create("t", 2)
    await scene.settle(a)

    assert len(a.has) == 2


@virtual_time
async def test_the_partitions_of_a_deleted_topic_are_taken_at_once():
    scene = ConsumerScene(Topics(t=2, u=1))
    a = await scene.join("a", "t", "u")

    scene.topics.delete("t")
    await scene.beat(a)

    assert a.indexes() == [(2, 0)]


@virtual_time
async def test_a_member_that_unsubscribes_loses_the_partitions_before_the_next_assignment():
    scene = ConsumerScene(Topics(t=2, u=1), ConsumerGroupSettings(assignment_interval_ms=1_000))
    a = await scene.join("a", "t", "u")

    await scene.beat(a, topics=("u",))

    assert scene.group.state is GroupState.ASSIGNING
    assert a.indexes() == [(2, 0)]


@virtual_time
async def test_assignments_are_computed_at_most_once_per_interval():
    scene = ConsumerScene(settings=ConsumerGroupSettings(assignment_interval_ms=1_000))
    a = await scene.join("a")

    b = await scene.join("b")
    assert scene.group.state is GroupState.ASSIGNING
    assert (b.epoch, b.has) == (1, set())
    await asyncio.sleep(1.001)
    await scene.settle(a, b)

    assert scene.group.state is GroupState.STABLE
    assert len(b.has) == 2


@virtual_time
async def test_topics_that_match_a_pattern_are_assigned_together_with_named_ones():
    scene = ConsumerScene(Topics(t=1, u=1, v=1))

    a = await scene.join("a", "t", pattern="u", matches=frozenset({"u"}))
    await scene.beat(a)

    assert a.indexes() == [(1, 0), (2, 0)]
    await scene.beat(a, pattern="")
    assert a.indexes() == [(1, 0)]


@virtual_time
async def test_one_save_runs_at_a_time_and_the_next_one_covers_what_has_changed_meanwhile():
    scene = ConsumerScene(saves_by_hand=True)
    joins = [asyncio.ensure_future(scene.join(name)) for name in "abc"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    first = scene.saves.pop()
    scene.machine.saved(first)
    await asyncio.sleep(0)
    assert [join.done() for join in joins] == [True, False, False]
    scene.machine.saved(scene.saves.pop())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert all(join.done() for join in joins)
    assert not scene.saves


@virtual_time
async def test_members_whose_save_fails_are_refused_and_the_next_request_saves_again():
    scene = ConsumerScene(saves_by_hand=True)
    join = asyncio.ensure_future(scene.join("a"))
    await asyncio.sleep(0)
    scene.machine.save_failed(scene.saves.pop())
    assert (await join).answers == [Problem.COORDINATOR_UNAVAILABLE]

    again = asyncio.ensure_future(scene.join("a"))
    await asyncio.sleep(0)
    assert not again.done()
    scene.machine.saved(scene.saves.pop())

    assert len((await again).has) == 4


@virtual_time
async def test_a_heartbeat_without_changes_waits_for_the_save_that_runs():
    scene = ConsumerScene(saves_by_hand=True)
    join = asyncio.ensure_future(scene.join("a"))
    await asyncio.sleep(0)
    scene.machine.save_failed(scene.saves.pop())
    await join

    beat = asyncio.ensure_future(scene.ask(replace_beat("a", 1)))
    await asyncio.sleep(0)

    assert not beat.done()
    assert len(scene.saves) == 1
    scene.machine.saved(scene.saves.pop())
    assert isinstance(await beat, HeartbeatAnswer)


@virtual_time
async def test_waiting_members_are_refused_when_the_group_is_given_up():
    scene = ConsumerScene(saves_by_hand=True)
    join = asyncio.ensure_future(scene.join("a"))
    await asyncio.sleep(0)

    scene.machine.close(Problem.NOT_COORDINATOR)

    assert (await join).answers == [Problem.NOT_COORDINATOR]
    assert await scene.ask(replace_beat("a", 1)) is Problem.NOT_COORDINATOR


def replace_beat(member_id, epoch):
    return Heartbeat(member_id=member_id, epoch=epoch, client_id="c", client_host="/h")


def committing(scene, member_id, epoch, keys=(), **options):
    try:
        scene.machine.check_commit(
            MemberRef(group="g", member_id=member_id, generation=epoch), keys, **{"knows_epochs": True, **options}
        )
    except GroupRefusal as refusal:
        return refusal.problem
    return None


@virtual_time
async def test_a_commit_names_the_members_epoch_or_one_in_which_it_had_the_partitions_kip_1251():
    scene = ConsumerScene(Topics(t=1, u=1))
    a = await scene.join("a", "t")
    old = a.epoch
    await scene.beat(a, topics=("t", "u"))
    t, u = scene.topics.key("t", 0), scene.topics.key("u", 0)

    assert committing(scene, "a", a.epoch, [t, u]) is None
    assert committing(scene, "a", old, [t]) is None
    assert committing(scene, "a", old, [u]) is Problem.STALE_MEMBER_EPOCH
    assert committing(scene, "a", a.epoch + 1, [t]) is Problem.STALE_MEMBER_EPOCH
    assert committing(scene, "x", 1, [t]) is Problem.UNKNOWN_MEMBER
    assert committing(scene, "", -1, [t]) is Problem.UNKNOWN_MEMBER
    assert committing(scene, "a", a.epoch, [t], knows_epochs=False) is Problem.UNSUPPORTED_VERSION


@virtual_time
async def test_anyone_may_commit_to_a_group_without_members():
    scene = ConsumerScene()

    assert committing(scene, "", -1) is None
    assert committing(scene, "", -1, knows_epochs=False) is None


@virtual_time
async def test_offsets_are_read_in_the_members_epoch():
    scene = ConsumerScene()
    a = await scene.join("a")

    scene.machine.check_fetch("a", a.epoch)
    with pytest.raises(GroupRefusal) as stale:
        scene.machine.check_fetch("a", a.epoch - 1)
    with pytest.raises(GroupRefusal) as unknown:
        scene.machine.check_fetch("x", 1)

    assert stale.value.problem is Problem.STALE_MEMBER_EPOCH
    assert unknown.value.problem is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_another_coordinator_goes_on_where_the_last_one_stopped():
    scene = ConsumerScene()
    a = await scene.join("a", pattern="t.*", matches=frozenset({"t"}))
    b = await scene.join("b")
    await scene.beat(a)

    after = scene.restored()

    assert after.machine.encode() == scene.machine.encode()
    assert after.group.owners == scene.group.owners
    await after.settle(a, b)
    assert not a.has & b.has
    assert len(a.has | b.has) == 4
