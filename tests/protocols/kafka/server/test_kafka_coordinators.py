"""FindCoordinator names a server also while the metadata store does not answer, because clients may not ask again (decision 330)."""

import asyncio
import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata.registering import register
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import coordinators
from bearlake.serving.membership import ServerSettings
from fixtures.waiting import WAIT_S, until
from protocols.kafka.server.test_kafka_consumer_groups import Member

FAILED_MAX = 20
"""More look-ups than librdkafka makes in its three requests for a transaction, and in the requests of a consumer meanwhile."""


async def found_by(node, names, key_type=0, version=4):
    """What a server answers, by key."""
    request = m.FindCoordinatorRequest(coordinator_keys=names, key_type=key_type)
    found = await (await node.client()).ask(request, version)
    assert [answer.key for answer in found.coordinators] == names
    return {answer.key: (answer.error_code, answer.node_id) for answer in found.coordinators}


async def coordinator(node, name="g"):
    """Error code and server that a server answers."""
    return (await found_by(node, [name]))[name]


def change(monkeypatch, noun, method, failure, count=None):
    """Let calls of a method of a store await `failure` first, at most `count` times; returns the list of the calls."""
    real, calls = getattr(noun, method), []

    async def changed(*arguments):
        calls.append(arguments)
        if count is None or len(calls) <= count:
            await failure()
        return await real(*arguments)

    monkeypatch.setattr(noun, method, changed)
    return calls


def raising(error):
    """A failure for `change`."""

    async def fail():
        raise error

    return fail


async def hang():
    """A failure for `change`: a store that does not answer."""
    await asyncio.Event().wait()


async def nothing():
    """No failure, for `change`."""


def fail_lookups(node, monkeypatch, error, count=None):
    """Let look-ups of leases in a server's store fail, at most `count` times; returns the list of the calls."""
    return change(monkeypatch, node.streams.metadata.leases, "holders", raising(error), count)


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


NAMES = [f"g{number}" for number in range(64)]
SELDOM = ServerSettings(name="a", heartbeat_ms=600_000, timeout_ms=1_800_000)
"""A server that asks who is live only if a request needs it."""


async def joined(node, *, timeout_ms=600_000):
    """Register another server, which never runs, in the store of `node`."""
    registered = await register(
        node.streams.metadata.servers,
        "b",
        zone=None,
        endpoints={"kafka": "127.0.0.1:1"},
        version="1.0.0",
        timeout_ms=timeout_ms,
    )
    return registered.server


async def test_a_store_that_hangs_is_asked_once_for_all_groups_of_a_request(kafka, monkeypatch):
    asked = change(monkeypatch, kafka.streams.metadata.leases, "holders", hang)
    monkeypatch.setattr(coordinators, "LOOK_UP_MS", 50)

    found = await found_by(kafka, NAMES)

    assert found == dict.fromkeys(NAMES, (0, kafka.member.node_id))
    assert len(asked) == 1


async def test_many_groups_are_looked_up_together_and_the_live_servers_once(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(1, server=SELDOM)
    other = await joined(cluster[0])
    await cluster[0].member.refresh()
    names = [f"g{number}" for number in range(2_500)]
    metadata = cluster[0].streams.metadata
    asked = change(monkeypatch, metadata.leases, "holders", nothing)
    listed = change(monkeypatch, metadata.servers, "live", nothing)

    found = await found_by(cluster[0], names)

    assert set(found.values()) == {(0, cluster[0].member.node_id), (0, other.node_id)}
    assert [len(list(groups)) for (groups,) in asked] == [1_000, 1_000, 500]
    assert len(listed) == 1


async def test_a_repeated_group_is_answered_each_time_and_looked_up_once(kafka, monkeypatch):
    asked = change(monkeypatch, kafka.streams.metadata.leases, "holders", nothing)
    request = m.FindCoordinatorRequest(coordinator_keys=["g", "h", "g", ""])

    answer = await (await kafka.client()).ask(request, 4)

    own = kafka.member.node_id
    assert [(item.key, item.error_code, item.node_id) for item in answer.coordinators] == [
        ("g", 0, own),
        ("h", 0, own),
        ("g", 0, own),
        ("", 0, own),
    ]
    assert [sorted(groups) for (groups,) in asked] == [["group/", "group/g", "group/h"]]


async def test_no_store_is_asked_about_key_types_without_coordinators(kafka, monkeypatch):
    asked = change(monkeypatch, kafka.streams.metadata.leases, "holders", nothing)

    for version in (4, 5, 6):
        assert await found_by(kafka, ["g:AAAAAAAAAAAAAAAAAAAAAA:0"], 2, version) == {
            "g:AAAAAAAAAAAAAAAAAAAAAA:0": (ErrorCode.INVALID_REQUEST, -1)
        }
    assert await found_by(kafka, ["g"], -1) == {"g": (ErrorCode.INVALID_REQUEST, -1)}
    assert await found_by(kafka, [], 0) == {}
    assert asked == []


@pytest.mark.parametrize("version", range(7))
async def test_requests_of_all_versions_name_this_server_while_the_store_does_not_answer(kafka, monkeypatch, version):
    fail_lookups(kafka, monkeypatch, Unavailable("no"))
    request = m.FindCoordinatorRequest(key="g", coordinator_keys=["g"])

    answer = await (await kafka.client()).ask(request, version)

    only = answer if version < 4 else answer.coordinators[0]
    assert (only.error_code, only.node_id, only.host) == (0, kafka.member.node_id, "127.0.0.1")
    assert only.port == kafka.port


async def test_a_known_holder_is_named_although_the_list_of_servers_cannot_be_read(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(1, server=SELDOM)
    own = cluster[0].member
    other = await joined(cluster[0])
    await own.refresh()
    leases = cluster[0].streams.metadata.leases
    for name in NAMES[::2]:
        await leases.acquire(f"group/{name}", other)
    failed = change(monkeypatch, cluster[0].streams.metadata.servers, "live", raising(Unavailable("no")))

    found = await found_by(cluster[0], NAMES)

    assert failed
    assert [found[name] for name in NAMES[::2]] == [(0, other.node_id)] * 32
    assert [found[name] for name in NAMES[1::2]] == [(0, own.node_id)] * 32


async def test_a_holder_that_has_just_joined_is_named(kafka_cluster):
    cluster = await kafka_cluster(1, server=SELDOM)
    other = await joined(cluster[0])
    await cluster[0].streams.metadata.leases.acquire("group/g", other)

    assert await coordinator(cluster[0]) == (0, other.node_id)


async def test_a_server_that_drains_without_the_store_sends_clients_to_another(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(1, server=SELDOM)
    own = cluster[0].member
    other = await joined(cluster[0])
    await own.refresh()
    fail_lookups(cluster[0], monkeypatch, Unavailable("no"))
    change(monkeypatch, cluster[0].streams.metadata.servers, "drain", raising(Unavailable("no")))
    with pytest.raises(Unavailable):
        await own.drain()

    assert await found_by(cluster[0], NAMES) == dict.fromkeys(NAMES, (0, other.node_id))
    assert await found_by(cluster[0], NAMES, 1) == dict.fromkeys(NAMES, (0, other.node_id))
    brokers = (await (await cluster[0].client()).ask(m.MetadataRequest(topics=[]), 12)).brokers
    assert [broker.node_id for broker in brokers] == [other.node_id]


async def test_a_server_whose_heartbeats_are_not_seen_any_more_is_named_for_no_transactional_id(kafka_cluster):
    cluster = await kafka_cluster(1, server=SELDOM)
    own = cluster[0].member
    other = await joined(cluster[0], timeout_ms=1)
    await own.refresh()
    await until(lambda: own.heartbeat_age_ms(other) >= 1)  # nobody reads the store, as while it is away

    assert await found_by(cluster[0], NAMES, 1) == dict.fromkeys(NAMES, (0, own.node_id))


@pytest.mark.integration
@pytest.mark.parametrize("failure", [raising(Unavailable("no")), hang], ids=["away", "hangs"])
async def test_offsets_of_a_transaction_are_committed_after_a_moment_without_the_store(
    kafka_cluster, monkeypatch, failure
):
    """On a cluster that answers an error a few times, librdkafka 2.16 waits for ever here, whatever the call's time limit."""
    cluster = await kafka_cluster(1)
    await cluster[0].create("t")
    monkeypatch.setattr(coordinators, "LOOK_UP_MS", 100)
    failed = change(monkeypatch, cluster[0].streams.metadata.leases, "holders", failure, FAILED_MAX)
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
