"""Static members of a consumer group (KIP-345 in KIP-848); the answers are those of Apache Kafka 4.3.1."""

import asyncio
from dataclasses import replace

from bearlake.streams.groups.consumer.model import LEAVES, LEAVES_FOR_A_WHILE, HeartbeatAnswer
from bearlake.streams.groups.problems import Problem
from fixtures.consumer_groups import ConsumerScene
from simulator.loop import virtual_time


@virtual_time
async def test_an_instance_id_belongs_to_one_member_until_that_member_leaves():
    scene = ConsumerScene()
    a = await scene.join("a", instance="i")

    assert (await scene.join("b", instance="i")).answers == [Problem.UNRELEASED_INSTANCE]
    assert (await scene.join("a", instance="i")).answers == [Problem.UNRELEASED_INSTANCE]
    assert await scene.beat(replace(a, id="b")) is Problem.FENCED_INSTANCE
    assert await scene.beat(replace(a, instance="other")) is Problem.UNKNOWN_MEMBER


@virtual_time
async def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions_for_its_next_start():
    scene = ConsumerScene()
    a, other = await scene.join("a", instance="i"), await scene.join("o")
    await scene.settle(a, other)
    epoch = scene.group.epoch

    left = await scene.beat(a, epoch=LEAVES_FOR_A_WHILE)
    b = await scene.join("b", instance="i")

    assert left == HeartbeatAnswer(member_id="a", epoch=LEAVES_FOR_A_WHILE)
    assert (b.epoch, b.has) == (epoch, a.has)
    assert scene.group.epoch == epoch
    assert await scene.beat(replace(a, epoch=epoch)) is Problem.FENCED_INSTANCE


@virtual_time
async def test_a_static_member_that_does_not_come_back_in_its_session_timeout_is_removed():
    scene = ConsumerScene()
    a = await scene.join("a", instance="i")

    await scene.beat(a, epoch=LEAVES_FOR_A_WHILE)
    await asyncio.sleep(44)
    assert "a" in scene.group.members
    await asyncio.sleep(2)

    assert not scene.group.members
    assert not scene.group.owners


@virtual_time
async def test_a_static_member_that_left_while_it_gave_partitions_up_has_its_session_timeout_at_the_next_coordinator():
    scene = ConsumerScene()
    a = await scene.join("a", instance="i")
    await scene.join("b")
    await scene.beat(a)  # it must give partitions up in its rebalance timeout, 30 s
    assert scene.group.members["a"].revoking
    await scene.beat(a, epoch=LEAVES_FOR_A_WHILE)

    later = scene.restored()
    await asyncio.sleep(40)

    assert "a" in later.group.members


@virtual_time
async def test_a_static_member_may_leave_for_good():
    scene = ConsumerScene()
    a = await scene.join("a", instance="i")

    await scene.beat(a, epoch=LEAVES)

    assert not scene.group.members
    assert not scene.group.static


@virtual_time
async def test_the_next_coordinator_knows_that_a_static_member_has_left_for_a_while():
    scene = ConsumerScene()
    a = await scene.join("a", instance="i")
    await scene.beat(a, epoch=LEAVES_FOR_A_WHILE)

    b = await scene.restored().join("b", instance="i")

    assert b.has == a.has
