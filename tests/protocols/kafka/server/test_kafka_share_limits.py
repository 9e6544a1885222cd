"""Share groups over the wire: groups that do not exist, and requests and sessions without end."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import Invalid
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import share_offsets
from bearlake.protocols.kafka.share_sessions import SessionKey, SessionProblem, ShareSessions
from bearlake.streams.fetch import ReaderSettings
from bearlake.streams.groups.share.configs import parse_reset
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.turns import AT_ONCE
from fixtures.kafka_server import batch_of
from fixtures.late_follower import delay, wait_for_question
from fixtures.share_groups import ACCEPT, Member, member_of, share_settings
from fixtures.turns import CountingTurns
from fixtures.waiting import WAIT_S


@pytest.fixture
async def cluster(kafka_cluster):
    limits = share_settings(partition_record_locks=100, partition_record_locks_max=100, session_partition_count_max=3)
    return await kafka_cluster(1, streams=limits)


@pytest.fixture
async def topic_id(cluster):
    """A topic `t` of one partition with two records."""
    topic_id = await cluster[0].create("t")
    await (await cluster[0].client()).produce("t", batch_of(b"0", b"1"))
    return topic_id


async def cursors(cluster, topic_id):
    partition = cluster[0].streams.catalog.peek_id(topic_id).partition(0)
    return await cluster.metadata.cursors.load(partition)


def codes(answer: Any) -> list[int]:
    return [item.error_code for topic in answer.responses for item in topic.partitions]


async def stranger(cluster, topic_id, group="g") -> Member:
    """Fetches without having joined the group."""
    member = await member_of(cluster[0], topic_id, group=group)
    member.joins = False
    return member


async def test_fetching_and_acknowledging_create_nothing_for_a_group_that_does_not_exist(cluster, topic_id):
    a = await stranger(cluster, topic_id)

    assert codes(await a.fetch()) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await a.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    assert await cursors(cluster, topic_id) == []


async def test_a_consumer_group_gets_no_state_of_a_share_group(cluster, topic_id):
    a = await stranger(cluster, topic_id)
    beat = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=a.id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await a.client.ask(beat, 1)).error_code == 0

    assert codes(await a.fetch()) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await cursors(cluster, topic_id) == []


async def test_a_member_of_a_deleted_group_does_not_bring_its_state_back(cluster, topic_id):
    a = await member_of(cluster[0], topic_id)
    await a.take(records=1)
    await a.beat(member_epoch=-1)
    client = await cluster[0].client()
    deleted = await client.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == 0
    a.joins = False

    assert codes(await a.fetch()) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await cursors(cluster, topic_id) == []
    b = await member_of(cluster[0], topic_id)
    assert (await b.take())[0] == [(0, 1, 1)]


async def test_a_member_does_not_bring_back_offsets_that_were_deleted(cluster, topic_id):
    a = await member_of(cluster[0], topic_id)
    await a.take()
    await a.beat(member_epoch=-1)
    r = m.DeleteShareGroupOffsetsRequest
    client = await cluster[0].client()
    answer = await client.ask(r(group_id="g", topics=[r.Topic(topic_name="t")]), 0)
    assert (answer.error_code, answer.responses[0].error_code) == (0, 0)
    a.joins = False

    assert codes(await a.fetch()) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await cursors(cluster, topic_id) == []


@pytest.mark.parametrize("is_group", [True, False])
async def test_state_in_partitions_that_the_coordinator_has_not_heard_of_is_deleted(kafka_cluster, is_group):
    cluster = await kafka_cluster(2, streams=share_settings())
    topic_id = await cluster[0].create("t")
    view = await cluster[1].streams.catalog.find("t")
    a = await member_of(cluster[0], topic_id)
    await a.take()
    late = delay(cluster[0].streams)
    view = await cluster[1].streams.add_partitions(ANONYMOUS, view.stream, 2)
    b = await stranger(cluster, topic_id)
    b.client = await cluster[1].client()
    assert codes(await b.fetch(indexes=(1,))) == []
    assert len(await cluster.metadata.cursors.load(view.partition(1))) == 1
    await a.beat(member_epoch=-1)

    r = m.DeleteShareGroupOffsetsRequest
    request = m.DeleteGroupsRequest(groups_names=["g"])
    if not is_group:
        request = r(group_id="g", topics=[r.Topic(topic_name="t")])
    deleting = asyncio.create_task((await cluster[0].client()).ask(request, 2 if is_group else 0))
    await wait_for_question(cluster[0].streams)
    late.opened.set()

    answer = await asyncio.wait_for(deleting, WAIT_S)
    assert (answer.results if is_group else answer.responses)[0].error_code == 0
    assert await cluster.metadata.cursors.load(view.partition(1)) == []


@pytest.mark.parametrize("group", ["g\0", "g" * 1_001, ""])
async def test_names_that_no_group_can_have_are_refused(cluster, topic_id, group):
    a = await stranger(cluster, topic_id, group)

    assert (await a.fetch()).error_code == ErrorCode.INVALID_REQUEST
    assert await a.acknowledge((0, 0, [ACCEPT]), session=1) == ErrorCode.INVALID_REQUEST


async def test_more_acknowledgements_than_records_in_flight_are_refused(cluster, topic_id):
    a = await member_of(cluster[0], topic_id)
    await a.client.produce("t", batch_of(*[b"x"] * 298))
    for start in (0, 100, 200):
        assert (await a.take())[0] == [(start, start + 99, 1)]
        assert await a.acknowledge((start, start + 99, [ACCEPT])) == 0

    assert await a.acknowledge((0, 299, [ACCEPT] * 300)) == ErrorCode.INVALID_REQUEST
    assert await a.acknowledge(*[(index, index, [ACCEPT]) for index in range(300)]) == ErrorCode.INVALID_REQUEST
    assert await a.acknowledge(*[(index, index, [ACCEPT]) for index in range(100)]) == 0  # as many as can be in flight


async def test_longer_lists_than_those_of_a_session_are_refused_and_not_kept(cluster, topic_id):
    a = await member_of(cluster[0], topic_id)
    sessions = cluster[0].server.context.share_sessions

    answer = await a.fetch(indexes=(0, 1, 2, 3))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (len(sessions), sessions.partition_count) == (0, 0)
    assert (await a.fetch(indexes=(0, 1, 2))).error_code == 0
    assert (await a.fetch(indexes=(3,))).error_code == ErrorCode.INVALID_REQUEST
    assert sessions.partition_count == 3


async def test_a_session_of_many_partitions_is_walked_in_turns(kafka_cluster):
    node = (await kafka_cluster(1, streams=share_settings()))[0]
    a = await member_of(node, await node.create("t"))
    await a.join()
    turns = node.streams.authorizer = CountingTurns()

    answer = await a.fetch(indexes=tuple(range(1, 2_501)))

    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2_500
    assert turns.most <= AT_ONCE + 10


async def test_offsets_of_many_partitions_are_described_in_turns(cluster, topic_id, monkeypatch):
    r = m.DescribeShareGroupOffsetsRequest
    a = await member_of(cluster[0], topic_id)
    await a.take()
    turns, failed = CountingTurns(), share_offsets._failed  # noqa: SLF001 - called once for each of these partitions

    def counted(*arguments: Any) -> Any:
        turns.tick()
        return failed(*arguments)

    monkeypatch.setattr(share_offsets, "_failed", counted)
    many = list(range(1, 5_001))
    topics = [r.Topic(topic_name="t", partitions=many), r.Topic(topic_name="u", partitions=many)]
    answer = await a.client.ask(r(groups=[r.Group(group_id="g", topics=topics)]), 1)

    assert [len(topic.partitions) for topic in answer.groups[0].topics] == [5_000, 5_000]
    assert turns.most <= AT_ONCE + 10


async def test_a_fetch_waits_no_longer_than_the_server_lets_it(kafka_cluster):
    settings = replace(share_settings(), reader=ReaderSettings(wait_max_ms=20))
    node = (await kafka_cluster(1, streams=settings))[0]
    a = await member_of(node, await node.create("t"))

    answer = await asyncio.wait_for(a.fetch(wait_ms=2**31 - 1), WAIT_S)

    assert (answer.error_code, codes(answer)) == (0, [])


# -- sessions and settings, without a server ------------------------------------------------------------------------


def items(*indexes: int) -> list[tuple[bytes, int]]:
    return [(b"t", index) for index in indexes]


def test_the_partitions_of_all_sessions_have_a_limit() -> None:
    sessions = ShareSessions(ShareGroupSettings(session_partition_count_max=3, session_partition_total_max=4))
    first, second = sessions.open(SessionKey("g", "a"), "peer"), sessions.open(SessionKey("g", "b"), "peer")
    sessions.change(first, items(0, 1, 2), ())

    with pytest.raises(SessionProblem) as refused:
        sessions.change(second, items(0, 1), ())

    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert list(second.partitions) == []
    sessions.change(first, items(0), items(1))
    sessions.change(second, items(0, 1), ())
    sessions.close(SessionKey("g", "a"))
    assert sessions.partition_count == 2


def test_a_partition_that_is_added_and_forgotten_at_once_is_forgotten() -> None:
    sessions = ShareSessions(ShareGroupSettings())
    session = sessions.open(SessionKey("g", "a"), "peer")

    sessions.change(session, items(0, 1, 1), items(1, 5, 5))

    assert list(session.partitions) == items(0)
    assert sessions.partition_count == 1


def test_one_connection_cannot_take_all_sessions() -> None:
    sessions = ShareSessions(ShareGroupSettings(session_per_connection_max=2))
    for member in ("a", "b", "a"):
        sessions.open(SessionKey("g", member), "peer")

    with pytest.raises(SessionProblem) as refused:
        sessions.open(SessionKey("g", "c"), "peer")

    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(SessionKey("g", "c"), "another peer")


def test_settings_whose_state_could_not_be_saved_are_refused() -> None:
    with pytest.raises(Invalid):
        ShareGroupSettings(partition_record_locks_max=100_001)
    with pytest.raises(Invalid):
        ShareGroupSettings(delivery_count_limit_max=101)


def test_a_duration_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(Invalid):
        parse_reset(f"by_duration:PT{'9' * 5_000}S")
