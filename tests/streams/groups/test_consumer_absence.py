"""A coordinator that does not know a topic yet does not take it for deleted (decision 157)."""

from bearlake.metadata.model import partition_index
from bearlake.streams.groups.consumer.model import Heartbeat
from bearlake.streams.groups.problems import Problem
from fixtures.consumer_groups import Topics
from fixtures.liveness import lapse
from simulator.loop import virtual_time
from streams.groups.test_consumer_ownership import Cluster, classic_group, joining, refused


async def taken_over(cluster, view, **changes):
    """A group with the member `a`, whose coordinator is gone; returns its last answer and the next server."""
    first, second = await cluster.server("1"), await cluster.server("2", view)
    answer = await first.beat("g", joining(**changes))
    await lapse(cluster.metadata, first.ownership.server)
    return answer, second


def reports(answer, **changes):
    values = {"rebalance_timeout_ms": 30_000, "topics": ("t",), "owned": tuple(answer.assigned)}
    return Heartbeat(member_id="a", epoch=answer.epoch, **(values | changes))


@virtual_time
async def test_members_keep_partitions_of_a_topic_that_the_next_coordinator_does_not_know_yet():
    cluster = await Cluster.open()
    answer, second = await taken_over(cluster, cluster.topics.behind())

    again = await second.beat("g", reports(answer))

    assert (again.epoch, set(again.assigned)) == (answer.epoch, set(answer.assigned))
    assert len(again.assigned) == 4
    await cluster.metadata.close()


@virtual_time
async def test_members_keep_partitions_that_a_topic_gained_a_moment_ago():
    cluster = await Cluster.open()
    behind = cluster.topics.behind()
    await behind.catch_up()
    cluster.topics.create("t", 6)
    answer, second = await taken_over(cluster, behind)

    again = await second.beat("g", reports(answer))

    assert (again.epoch, sorted(map(partition_index, again.assigned))) == (answer.epoch, [0, 1, 2, 3, 4, 5])
    await cluster.metadata.close()


@virtual_time
async def test_a_topic_that_was_deleted_before_the_take_over_is_given_up():
    cluster = await Cluster.open()
    answer, second = await taken_over(cluster, cluster.topics.behind())
    cluster.topics.delete("t")

    again = await second.beat("g", reports(answer))

    assert (again.epoch, list(again.assigned)) == (answer.epoch, [])
    await cluster.metadata.close()


@virtual_time
async def test_a_server_that_cannot_catch_up_serves_no_member():
    cluster = await Cluster.open()
    behind = cluster.topics.behind()
    behind.fails = True
    answer, second = await taken_over(cluster, behind)

    assert await refused(second.beat("g", reports(answer))) is Problem.COORDINATOR_UNAVAILABLE
    behind.fails = False
    again = await second.beat("g", reports(answer))

    assert (again.epoch, set(again.assigned)) == (answer.epoch, set(answer.assigned))
    await cluster.metadata.close()


@virtual_time
async def test_matches_of_a_pattern_that_are_older_than_the_take_over_are_not_used():
    cluster = await Cluster.open()
    behind = cluster.topics.behind()
    found = {"topics": (), "pattern": "t.*"}
    answer, second = await taken_over(cluster, behind, **found, matches=frozenset({"t"}), matched_version=1)

    stale = await second.beat("g", reports(answer, **found, matches=frozenset(), matched_version=behind.version))
    cluster.topics.delete("t")
    await behind.catch_up()
    fresh = await second.beat("g", reports(answer, **found, matches=frozenset(), matched_version=behind.version))

    assert set(stale.assigned) == set(answer.assigned)
    assert list(fresh.assigned) == []
    await cluster.metadata.close()


@virtual_time
async def test_a_classic_group_that_becomes_a_consumer_group_keeps_partitions_of_topics_unknown_here():
    cluster = await Cluster.open()
    behind = Topics().behind()
    server = await cluster.server("1", behind)
    behind._current = cluster.topics  # noqa: SLF001 - created on another server since
    await classic_group(server)

    joined = await server.beat("g", joining("new"))
    group = await server.describe_consumer("g")

    assert list(joined.assigned) == []
    (old,) = [member for member in group.members.values() if member.classic is not None]
    assert sorted(map(partition_index, old.assigned)) == [0, 1, 2, 3]
    await cluster.metadata.close()


@virtual_time
async def test_a_classic_group_whose_server_cannot_catch_up_stays_classic():
    cluster = await Cluster.open()
    behind = cluster.topics.behind()
    server = await cluster.server("1", behind)
    ref = await classic_group(server)
    behind.fails = True

    assert await refused(server.beat("g", joining("new"))) is Problem.COORDINATOR_UNAVAILABLE

    await server.heartbeat(ref)
    await cluster.metadata.close()
