"""FindCoordinator names a server also while the metadata store does not answer, because clients may not ask again (decision 330)."""

import asyncio
import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bearlake.errors import Overloaded, Unavailable
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.waiting import WAIT_S
from protocols.kafka.server.test_kafka_consumer_groups import Member

FAILED_MAX = 20
"""More look-ups than librdkafka makes in its three requests for a transaction, and in the requests of a consumer meanwhile."""


async def coordinator(node, name="g"):
    """Error code and server that a server answers."""
    found = await (await node.client()).ask(m.FindCoordinatorRequest(coordinator_keys=[name]), 4)
    return found.coordinators[0].error_code, found.coordinators[0].node_id


def fail_lookups(node, monkeypatch, error, count=None):
    """Let look-ups of leases in a server's store fail, at most `count` times; returns the list of the failures."""
    leases, failed = node.streams.metadata.leases, []
    holder = leases.holder

    async def fails(name):
        if count is not None and len(failed) >= count:
            return await holder(name)
        failed.append(name)
        raise error

    monkeypatch.setattr(leases, "holder", fails)
    return failed


@pytest.mark.parametrize("error", [Unavailable("no"), Overloaded("no")], ids=["away", "busy"])
async def test_a_server_names_itself_while_the_store_does_not_answer(kafka_cluster, monkeypatch, error):
    cluster = await kafka_cluster(2)
    failed = fail_lookups(cluster[0], monkeypatch, error)  # the servers of this cluster share a store

    answers = [(node, await coordinator(node, name)) for node in cluster.nodes for name in ("g", "h", "i")]

    assert [found for _, found in answers] == [(0, node.member.node_id) for node, _ in answers]
    assert len(failed) >= len(answers)


async def test_a_server_that_is_named_without_the_store_refuses_the_group_of_another(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(2)
    await cluster[0].create("t")
    clients = [await node.client() for node in cluster.nodes]
    joined = [(await Member(client, "m").join("t")).error_code for client in clients]
    other = cluster[joined.index(ErrorCode.NOT_COORDINATOR)]
    with monkeypatch.context() as patch:
        fail_lookups(other, patch, Unavailable("no"))
        assert await coordinator(other) == (0, other.member.node_id)

    assert (await Member(await other.client(), "m").join("t")).error_code == ErrorCode.NOT_COORDINATOR
    assert await coordinator(other) == (0, cluster[joined.index(0)].member.node_id)


@pytest.mark.integration
async def test_offsets_of_a_transaction_are_committed_after_a_moment_without_the_store(kafka_cluster, monkeypatch):
    """On a cluster that answers an error a few times, librdkafka 2.16 waits for ever here, whatever the call's time limit."""
    cluster = await kafka_cluster(1)
    await cluster[0].create("t")
    failed = fail_lookups(cluster[0], monkeypatch, Unavailable("no"), FAILED_MAX)
    servers = {"bootstrap.servers": cluster[0].address}
    producer = Producer({**servers, "transactional.id": "copier"})
    consumer = Consumer({**servers, "group.id": "g"})
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def commit():
        try:
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata, WAIT_S)
            producer.commit_transaction(WAIT_S)
        except KafkaException as raised:
            loop.call_soon_threadsafe(ended.set_result, raised)
        else:
            loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(
        target=commit, daemon=True
    ).start()  # not a thread of a pool: a call that hangs must not keep this process
    async with asyncio.timeout(2 * WAIT_S):
        assert await ended is None

    committed = await asyncio.to_thread(consumer.committed, [TopicPartition("t", 0)], WAIT_S)
    await asyncio.to_thread(consumer.close)
    assert [part.offset for part in committed] == [7]
    assert failed
