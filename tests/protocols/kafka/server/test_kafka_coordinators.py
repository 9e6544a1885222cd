"""FindCoordinator names a server also while the metadata store does not answer, because clients may not ask again (decision 330)."""

import asyncio
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bearlake.errors import Overloaded, Unavailable
from bearlake.protocols.kafka import messages as m
from fixtures.waiting import WAIT_S
from protocols.kafka.server.test_kafka_consumer_groups import Member

FAILED_MAX = 20
"""More look-ups than librdkafka makes in its three requests for a transaction, and in the requests of a consumer meanwhile."""


async def coordinator(node, name="g"):
    """Error code and server that a server answers."""
    found = await (await node.client()).ask(m.FindCoordinatorRequest(coordinator_keys=[name]), 4)
    return found.coordinators[0].error_code, found.coordinators[0].node_id


def leave(node, monkeypatch, error, count=None):
    """Let look-ups of a server's store for leases fail, at most `count` times; returns the list of the failures."""
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
async def test_the_server_that_coordinates_a_group_names_itself_while_the_store_does_not_answer(
    kafka_cluster, monkeypatch, error
):
    cluster = await kafka_cluster(2)
    await cluster[0].create("t")
    codes = []
    for node in cluster.nodes:
        member = Member(await node.client(), "g")
        codes.append((await member.join("t")).error_code)
    (holder,) = [node for node, code in zip(cluster.nodes, codes, strict=True) if code == 0]
    failed = leave(holder, monkeypatch, error)

    found = await coordinator(holder)

    assert found == (0, holder.member.node_id)
    assert failed


async def test_a_live_server_is_named_for_a_group_that_nobody_can_look_up(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(2)
    ids = {node.member.node_id for node in cluster.nodes}
    failed = leave(cluster[0], monkeypatch, Unavailable("no"))  # the servers of this cluster share a store

    answers = [await coordinator(node, name) for node in cluster.nodes for name in ("g", "h", "i")]

    assert {code for code, _ in answers} == {0}
    assert {found for _, found in answers} <= ids
    assert len(failed) >= len(answers)


@pytest.mark.integration
async def test_offsets_of_a_transaction_are_committed_after_a_moment_without_the_store(kafka_cluster, monkeypatch):
    """On a cluster that answers an error a few times, librdkafka 2.16 waits for ever here, whatever the call's time limit."""
    cluster = await kafka_cluster(1)
    await cluster[0].create("t")
    failed = leave(cluster[0], monkeypatch, Unavailable("no"), FAILED_MAX)
    servers = {"bootstrap.servers": cluster[0].address}
    producer = Producer({**servers, "transactional.id": "copier"})
    consumer = Consumer({**servers, "group.id": "g"})
    done = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def commit():
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata, WAIT_S)
        producer.commit_transaction(WAIT_S)
        loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=commit, daemon=True).start()
    async with asyncio.timeout(2 * WAIT_S):
        await done

    committed = await asyncio.to_thread(consumer.committed, [TopicPartition("t", 0)], WAIT_S)
    await asyncio.to_thread(consumer.close)
    assert [part.offset for part in committed] == [7]
    assert failed
