"""A draining server: clients move to other servers without a failed request; a single server finishes its requests and closes."""

import asyncio
import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, fetch_request, produce_request, values_of
from fixtures.waiting import WAIT_S, until


async def brokers(client):
    return [broker.node_id for broker in (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers]


async def begin_drain(cluster, index, deadline_ms):
    await cluster[index].member.drain()
    for node in cluster.nodes:
        await node.member.refresh()
    return asyncio.create_task(cluster[index].server.drain(deadline_ms))


async def test_a_single_server_answers_accepted_requests_and_closes_although_fetches_wait(kafka):
    await kafka.create("t")
    client, waiting, idle = await kafka.client(), await kafka.client(), await kafka.client()
    await idle.ask(m.MetadataRequest(topics=[]), 12)
    fetched_count = metrics.KAFKA_REQUESTS.labels("FETCH").value
    waiting.send(fetch_request([("t", 0, 0)], wait_ms=60_000_000, bytes_min=1_000_000), 12)
    for _ in range(50):
        client.send(produce_request("t", batch_of(b"v")), 9)
    await until(lambda: metrics.KAFKA_REQUESTS.labels("FETCH").value > fetched_count)
    answers = [await client.receive()]

    async with asyncio.timeout(WAIT_S):  # long before the deadline
        await kafka.server.drain(60_000_000)

    try:
        while client.sent:
            answers.append(await client.receive())
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    codes = {answer.responses[0].partition_responses[0].error_code for answer in answers}
    assert codes == {0}
    assert await waiting.is_closed()
    assert await idle.is_closed()
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset, depending on the system
        await kafka.client()


async def test_drain_ends_by_its_deadline_although_a_client_does_not_read_its_answers(kafka):
    await kafka.create("t", max_message_bytes="9000000")
    writer, glutton = await kafka.client(), await kafka.client()
    for _ in range(5):
        await writer.produce("t", batch_of(b"x" * 8_000_000))
    glutton.writer.transport.pause_reading()
    for _ in range(5):
        glutton.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: kafka.server.context.slow_readers.unread_bytes > 0)

    async with asyncio.timeout(WAIT_S):
        await kafka.server.drain(400)

    assert len(kafka.server.connections) > 0  # the drain did not wait longer for the client that does not read


async def test_with_other_servers_a_draining_server_leaves_metadata_then_redirects_clients_then_closes(
    any_cluster, monkeypatch
):
    cluster = await any_cluster(2, settings=KafkaSettings(drain_redirect_after_ms=150))
    context = cluster[0].server.context
    redirect, may_redirect = context.redirect, asyncio.Event()
    monkeypatch.setattr(context, "redirect", lambda: may_redirect.is_set() and redirect())  # else it is tried again
    await cluster[0].create("t")
    clients = [await node.client() for node in cluster.nodes]
    first, second = (node.member.node_id for node in cluster.nodes)
    assert await brokers(clients[0]) == await brokers(clients[1]) == [first, second]

    draining = await begin_drain(cluster, 0, 120_000)

    assert await brokers(clients[0]) == await brokers(clients[1]) == [second]
    found = await clients[0].ask(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="t")]), 12)
    assert {partition.leader_id for partition in found.topics[0].partitions} == {second}
    assert found.controller_id == second
    assert (await clients[0].produce("t", batch_of(b"served"))).error_code == 0
    may_redirect.set()
    await until(lambda: context.is_redirecting)
    # A connection between two requests may be closed as idle; the second of two pipelined requests is answered.
    clients[0].send(produce_request("t", batch_of(b"refused")), 9)
    clients[0].send(fetch_request([("t", 0, 0)]), 12)
    try:
        answer = await clients[0].receive()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    assert await clients[0].is_closed()
    await asyncio.wait_for(draining, WAIT_S)
    assert values_of((await clients[1].fetch("t", 0)).records) == [(0, b"served")]


async def test_redirected_fetches_and_produces_get_not_leader(kafka):
    await kafka.create("t")
    client = await kafka.client()
    kafka.server.context.redirect()

    assert (await client.produce("t", batch_of(b"v"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.fetch("t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await client.produce("t", batch_of(b"v"), acks=0)
    assert await client.is_closed()  # the only error that redirects these clients


async def test_groups_move_to_the_other_server_with_their_generation(any_cluster):
    cluster = await any_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    protocol = m.JoinGroupRequest.Protocol(name="range", metadata=b"")
    join = m.JoinGroupRequest(
        group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    joined = await clients[0].ask(join, 3)
    sync = m.SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined.member_id,
        assignments=[m.SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"mine")],
    )
    await clients[0].ask(sync, 3)
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    find = m.FindCoordinatorRequest(coordinator_keys=["g"])
    owner = cluster[0].member.node_id
    assert [(await client.ask(find, 4)).coordinators[0].node_id for client in clients] == [owner, owner]

    draining = await begin_drain(cluster, 0, 120_000)
    await until(lambda: not cluster[0].streams.coordinator.owned())

    assert (await clients[0].ask(beat, 4)).error_code == ErrorCode.NOT_COORDINATOR
    # The members are notified before the lease is released; until then look-ups name the draining server, so clients ask again.
    await until_found(clients[0], "g", cluster[1].member.node_id)
    assert (await clients[1].ask(beat, 4)).error_code == 0
    assert (await clients[1].ask(sync, 3)).assignment == b"mine"
    await draining


async def test_no_client_is_sent_to_a_draining_server_even_before_others_learn_of_the_drain(any_cluster):
    cluster = await any_cluster(2)
    client = await cluster[1].client()
    first, second = (node.member.node_id for node in cluster.nodes)
    found = {name: await coordinator(client, name) for name in map(str, range(32))}
    assert set(found.values()) == {first, second}

    await cluster[0].member.drain()  # the second server learns of the drain at its next heartbeat

    assert {await coordinator(client, name) for name in found} == {second}


async def coordinator(client, group):
    found = await client.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 4)
    return found.coordinators[0].node_id


async def until_found(client, group, node_id):
    """Ask for the coordinator until it is that server."""
    async with asyncio.timeout(WAIT_S):
        while await coordinator(client, group) != node_id:  # noqa: ASYNC110 - only a request shows the coordinator
            await asyncio.sleep(0.005)


COUNT = 3_000


class Traffic:
    """A confluent producer and consumer in threads of their own."""

    def __init__(self, addresses, topic):
        common = {"bootstrap.servers": addresses}
        self.producer = Producer(common | {"enable.idempotence": True, "linger.ms": 2})
        self.consumer = Consumer(
            common | {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        self.topic = topic
        self.delivered, self.received, self.failures = [], [], []
        self.stop = threading.Event()

    def produce(self):
        for at in range(COUNT):
            self.producer.produce(self.topic, b"%d" % at, key=b"k", on_delivery=self.on_delivery)
            self.producer.poll(0.001)
        self.producer.flush(60)

    def on_delivery(self, error, message):
        (self.failures if error is not None else self.delivered).append(error or message.offset())

    def consume(self):
        self.consumer.subscribe([self.topic])
        while len(self.received) < COUNT and not self.stop.is_set():
            message = self.consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                self.failures.append(message.error())
                continue
            self.received.append(int(message.value()))
            if len(self.received) % 100 == 0:
                try:
                    self.consumer.commit(message, asynchronous=False)
                except KafkaException as error:
                    self.failures.append(error)
        self.consumer.close()


@pytest.mark.integration
async def test_librdkafka_clients_see_no_failed_request_while_a_server_drains(any_cluster):
    cluster = await any_cluster(2, settings=KafkaSettings(drain_redirect_after_ms=200))
    await cluster[0].create("t", 4)
    traffic = Traffic(",".join(node.address for node in cluster.nodes), "t")
    loop = asyncio.get_running_loop()
    work = [loop.run_in_executor(None, traffic.produce), loop.run_in_executor(None, traffic.consume)]
    try:
        await until(lambda: len(traffic.received) > 200)
        owner = await cluster[0].streams.coordinator.holder("g")
        leaving = next(index for index, node in enumerate(cluster.nodes) if node.member.server == owner)

        draining = await begin_drain(cluster, leaving, 120_000)
        await draining
        was_left = not len(cluster[leaving].server.connections)
        await asyncio.wait_for(asyncio.gather(*work), WAIT_S)
    finally:
        traffic.stop.set()

    assert was_left
    assert traffic.failures == []
    assert len(traffic.delivered) == COUNT
    assert traffic.received == list(range(COUNT))  # one key: one partition, in order, each once
