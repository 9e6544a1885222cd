"""Records of share groups over the wire (KIP-932): locks, delivery counts, sessions, several servers."""

import asyncio

import pytest

from bearlake.errors import Invalid
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.kafka_server import batch_of, produce_request
from fixtures.late_follower import delay, wait_for_question
from fixtures.share_groups import ACCEPT, REJECT, RELEASE, RENEW, member_of, share_settings
from fixtures.waiting import WAIT_S, until


@pytest.fixture
async def node(cluster_of_each_store):
    return (await cluster_of_each_store(1, streams=share_settings()))[0]


@pytest.fixture
async def topic_id(node):
    """A topic `t` of one partition with three batches of two records."""
    topic_id = await node.create("t")
    client = await node.client()
    for start in range(0, 6, 2):
        await client.produce("t", batch_of(b"%d" % start, b"%d" % (start + 1)))
    return topic_id


async def test_two_members_get_different_records(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)

    assert await a.take(records=2) == ([(0, 1, 1)], [b"0", b"1"])
    assert await b.take() == ([(2, 5, 1)], [b"2", b"3", b"4", b"5"])
    assert await a.take() == ([], [])


async def test_released_records_come_again_with_a_higher_count_and_accepted_ones_do_not(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.take()

    assert await a.acknowledge((0, 5, [ACCEPT, RELEASE, ACCEPT, ACCEPT, REJECT, RELEASE])) == 0

    acquired, values = await b.take()
    assert acquired == [(1, 1, 2), (5, 5, 2)]
    assert values == [b"0", b"1", b"4", b"5"]  # whole batches


async def test_acknowledgements_in_a_fetch_are_applied_before_records_are_acquired(node, topic_id):
    a = await member_of(node, topic_id)
    await a.take(records=2)

    acquired, _ = await a.take((0, 1, [RELEASE]), records=2)

    assert acquired == [(0, 1, 2)]


async def test_only_who_holds_the_lock_may_acknowledge(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.take(records=2)
    await b.take(records=2)

    assert await b.acknowledge((0, 1, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await a.acknowledge((0, 9, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    assert await a.acknowledge((0, 1, [ACCEPT])) == 0
    assert await a.acknowledge((0, 1, [ACCEPT])) == 0  # below the start by now: nothing to do


async def test_a_fetch_waits_for_records(node, topic_id):
    a = await member_of(node, topic_id)
    await a.take()
    waiting = asyncio.create_task(a.take(wait_ms=60_000))

    await (await node.client()).produce("t", batch_of(b"6"))

    assert await asyncio.wait_for(waiting, WAIT_S) == ([(6, 6, 1)], [b"6"])


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_records": 0}])
async def test_a_fetch_of_no_bytes_or_no_records_is_answered_at_once_without_records(node, topic_id, limits):
    a = await member_of(node, topic_id)

    answer = await asyncio.wait_for(a.fetch(max_wait_ms=600_000, **limits), WAIT_S)

    assert (answer.error_code, answer.responses) == (0, [])
    assert (await a.take(records=2))[0] == [(0, 1, 1)]  # nothing was acquired


async def test_a_fetch_that_waits_gets_records_that_another_member_releases(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.take()
    waiting = asyncio.create_task(b.take(wait_ms=60_000))
    await b.client.writer.drain()

    await a.acknowledge((2, 2, [RELEASE]))

    acquired, _ = await asyncio.wait_for(waiting, WAIT_S)
    assert acquired == [(2, 2, 2)]


async def test_a_strict_fetch_gets_no_more_records_than_it_asks_for(node, topic_id):
    a = await member_of(node, topic_id)

    acquired, values = await a.take(records=3, mode=1)

    assert acquired == [(0, 2, 1)]
    assert values == [b"0", b"1", b"2", b"3"]  # whole batches


async def test_sessions_have_epochs(node, topic_id):
    a = await member_of(node, topic_id)

    assert (await a.fetch(session=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await a.fetch((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_REQUEST
    assert (await a.fetch()).error_code == 0
    assert (await a.fetch(session=5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await a.acknowledge((0, 0, [ACCEPT]), session=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await a.fetch(indexes=())).error_code == 0


async def test_a_session_that_is_closed_releases_what_is_not_acknowledged(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.take()

    assert await a.acknowledge((0, 3, [ACCEPT]), session=-1) == 0

    acquired, _ = await b.take()
    assert acquired == [(4, 5, 2)]


async def test_a_connection_that_ends_releases_what_its_member_holds(node, topic_id):
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.take()

    await a.client.close()

    acquired, _ = await b.take(wait_ms=60_000)
    assert acquired == [(0, 5, 2)]


async def test_a_fetch_gets_nothing_after_its_member_has_opened_a_session_on_another_connection(node, topic_id):
    former, a, b, c = [await member_of(node, topic_id) for _ in range(4)]
    await b.take()
    waiting = asyncio.create_task(former.fetch(wait_ms=60_000))
    sessions = node.server.context.share_sessions
    await until(lambda: len(sessions) == 2)
    a.id, a.joins = former.id, False
    assert (await a.fetch()).error_code == 0

    await b.acknowledge((0, 5, [RELEASE]))

    assert (await asyncio.wait_for(waiting, WAIT_S)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await c.take(wait_ms=60_000) == ([(0, 5, 2)], [b"0", b"1", b"2", b"3", b"4", b"5"])


async def test_a_member_id_is_a_uuid(node, topic_id):
    a = await member_of(node, topic_id)

    for name in ("no uuid", "", "A" * 23, "A" * 22 + "==="):
        a.id = name
        assert (await a.fetch()).error_code == ErrorCode.INVALID_REQUEST
    a.id = "A" * 22
    assert (await a.fetch()).error_code == 0


async def test_a_member_of_one_server_gets_records_from_a_dispatcher_on_another(cluster_of_each_store):
    cluster = await cluster_of_each_store(2, streams=share_settings())
    topic_id = await cluster[0].create("t")
    await (await cluster[0].client()).produce("t", batch_of(b"0", b"1", b"2", b"3"))
    await cluster[1].streams.catalog.find("t")
    a, b = await member_of(cluster[0], topic_id), await member_of(cluster[1], topic_id)
    await a.take(records=1, mode=1)

    acquired, values = await b.take(records=2, mode=1, wait_ms=1_000)

    assert (acquired, values) == ([(1, 2, 1)], [b"0", b"1", b"2", b"3"])
    assert await b.acknowledge((1, 1, [ACCEPT]), (2, 2, [RELEASE])) == 0
    assert (await a.take())[0] == [(2, 2, 2), (3, 3, 1)]


async def test_another_server_goes_on_with_delivery_counts_when_the_dispatcher_dies(cluster_of_each_store):
    cluster = await cluster_of_each_store(2, streams=share_settings())
    topic_id = await cluster[0].create("t")
    await (await cluster[0].client()).produce("t", batch_of(b"0", b"1", b"2", b"3"))
    await cluster[1].streams.catalog.find("t")
    a = await member_of(cluster[0], topic_id)
    await a.take()
    assert await a.acknowledge((0, 0, [ACCEPT]), (2, 2, [RELEASE])) == 0  # saved, with the counts of the other records
    assert (await a.take())[0] == [(2, 2, 2)]
    assert await a.acknowledge((2, 2, [RELEASE])) == 0

    await cluster.kill(0)

    b = await member_of(cluster[1], topic_id)
    assert (await b.take(wait_ms=1_000))[0] == [(1, 1, 2), (2, 2, 3), (3, 3, 2)]


async def test_renewed_records_stay_locked_and_the_answer_has_no_records(node, topic_id):
    a = await member_of(node, topic_id)
    await a.take(records=2)

    answer = await a.fetch((0, 0, [RENEW]), is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0)

    (partition,) = answer.responses[0].partitions
    assert (partition.acknowledge_error_code, partition.acquired_records) == (0, [])
    assert await a.acknowledge((0, 1, [ACCEPT])) == 0
    assert (await a.fetch((2, 2, [RENEW]), is_renew_ack=True)).error_code == ErrorCode.INVALID_REQUEST


async def test_pulsar_does_not_see_share_groups(node, topic_id):
    a = await member_of(node, topic_id)
    await a.take()
    partition = node.streams.catalog.peek("t").partition(0)

    assert await node.streams.subscriptions.names(partition) == []
    assert await node.streams.subscriptions.stats(partition) == []
    with pytest.raises(Invalid):
        await node.streams.subscriptions.create(partition, "\x01share/g", 0)


async def test_locks_expire(cluster_of_each_store):
    node = (await cluster_of_each_store(1, streams=share_settings(record_lock_duration_ms=30)))[0]
    topic_id = await node.create("t")
    a, b = await member_of(node, topic_id), await member_of(node, topic_id)
    await a.client.produce("t", batch_of(b"0", b"1"))
    await a.take()

    acquired, _ = await b.take(wait_ms=60_000)

    assert acquired == [(0, 1, 2)]
    assert await a.acknowledge((0, 1, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


async def test_a_group_goes_on_at_the_start_of_the_log_after_records_were_deleted(node, topic_id):
    a = await member_of(node, topic_id)
    await a.take(records=2)
    r = m.DeleteRecordsRequest
    topic = r.Topic(name="t", partitions=[r.Partition(partition_index=0, offset=4)])
    assert (await a.client.ask(r(topics=[topic], timeout_ms=1_000), 2)).topics[0].partitions[0].error_code == 0
    async with asyncio.timeout(WAIT_S):
        while (
            await a.client.fetch("t", 4)
        ).log_start_offset < 4:  # a server follows its own trims as it follows others
            pass

    assert (await a.take())[0] == [(4, 5, 1)]


async def transaction(client, *values, is_commit=True):
    """Write values to `t` in a transaction of KIP-890, and end it."""
    who = await client.ask(m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)
    batch = batch_of(*values, producer=(who.producer_id, who.producer_epoch, 0), is_transactional=True)
    sent = await client.ask(produce_request("t", batch, transactional_id="x"), 12)
    assert sent.responses[0].partition_responses[0].error_code == 0
    ended = await client.ask(
        m.EndTxnRequest(
            transactional_id="x", producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=is_commit
        ),
        5,
    )
    assert ended.error_code == 0


@pytest.mark.parametrize(
    ("level", "expected"),
    [("read_committed", [(3, 3, 1), (5, 5, 1)]), ("read_uncommitted", [(0, 1, 1), (3, 3, 1), (5, 5, 1)])],
)
async def test_members_get_records_by_the_isolation_level_and_never_markers(cluster_of_each_store, level, expected):
    node = (await cluster_of_each_store(1, streams=share_settings(isolation_level=level)))[0]
    topic_id = await node.create("t")
    a = await member_of(node, topic_id)
    await transaction(a.client, b"a", b"b", is_commit=False)
    await transaction(a.client, b"c")
    await a.client.produce("t", batch_of(b"d"))

    assert (await a.take())[0] == expected


async def test_a_member_that_does_not_wait_gets_a_transaction_whose_end_is_acknowledged(kafka_cluster):
    node = (await kafka_cluster(1, streams=share_settings(isolation_level="read_committed")))[0]
    topic_id = await node.create("t")
    a = await member_of(node, topic_id)
    await transaction(a.client, b"a")
    assert (await a.take())[0] == [(0, 0, 1)]
    log = delay(node.streams)
    await transaction(a.client, b"b")

    taking = asyncio.create_task(a.take())
    await wait_for_question(node.streams)
    log.opened.set()

    assert await taking == ([(2, 2, 1)], [b"b"])


async def test_the_delivery_of_locked_records_counts_after_their_dispatcher_died(cluster_of_each_store):
    cluster = await cluster_of_each_store(2, streams=share_settings())
    topic_id = await cluster[0].create("t")
    await (await cluster[0].client()).produce("t", batch_of(b"0", b"1", b"2", b"3"))
    partition = (await cluster[1].streams.catalog.find("t")).partition(0)
    a = await member_of(cluster[0], topic_id)
    await a.take()
    async with asyncio.timeout(WAIT_S):
        while True:
            (cursor,) = await cluster.metadata.cursors.load(partition)
            if cursor.revision:
                break
            await asyncio.sleep(0.02)

    await cluster.kill(0)

    b = await member_of(cluster[1], topic_id)
    assert (await b.take(wait_ms=1_000))[0] == [(0, 3, 2)]


async def test_a_member_that_moves_to_another_server_keeps_what_it_acquires_there(kafka_cluster):
    cluster = await kafka_cluster(2, streams=share_settings())
    topic_id = await cluster[0].create("t")
    await (await cluster[0].client()).produce("t", batch_of(b"0", b"1"))
    await cluster[1].streams.catalog.find("t")
    a, moved, b = [await member_of(cluster[index], topic_id) for index in (0, 1, 0)]
    moved.id = a.id
    await a.take(records=1, mode=1)
    assert (await moved.take(wait_ms=1_000))[0] == [(1, 1, 1)]

    await a.client.close()

    assert (await b.take(wait_ms=60_000))[0] == [(0, 0, 2)]
    assert await moved.acknowledge((1, 1, [ACCEPT])) == 0
