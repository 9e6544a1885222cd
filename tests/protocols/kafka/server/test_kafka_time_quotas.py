"""Quotas of time for Kafka clients: which requests wait, and that members stay in their groups. The clock is the test's."""

import asyncio

import pytest

from bearlake.metadata.quotas import Entity, QuotaKey
from bearlake.metadata.users import CredentialChange
from bearlake.protocols.kafka import codec, dispatch
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.connection import Connection
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.handlers import produce
from bearlake.protocols.kafka.throttling import MEMBER_WAIT_S_MAX
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.principal import ANONYMOUS
from fixtures.kafka_server import batch_of, fetch_request, produce_request
from fixtures.kafka_world import join_of
from fixtures.logins import LOGIN_MS
from fixtures.quotas import LimitedServer, take_a_second_for
from fixtures.waiting import until

METADATA = m.MetadataRequest(topics=None)


def has_topic(answer):
    """Whether the answer to `METADATA` lists the stream."""
    return "t" in {topic.name for topic in answer.topics}


@pytest.fixture
async def limited(kafka):
    await kafka.create("t")
    return LimitedServer(kafka)


@pytest.fixture
def busy(monkeypatch):
    """Each request takes a second of the event loop's time when it is decoded."""

    def begin():
        take_a_second_for(monkeypatch, KafkaContext, "decode")

    return begin


def commit_of(offset):
    partition = m.OffsetCommitRequest.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = m.OffsetCommitRequest.Topic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])


def wait_s_of(connection):
    return connection.quota_wait.when() - asyncio.get_running_loop().time()


async def test_a_client_that_owes_time_gains_nothing_by_new_connections(limited):
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 100.0)
    limited.quotas.usage.charge_time(ANONYMOUS, 100)
    clients = []
    for _ in range(5):
        clients.append(await limited.node.client())
        for _ in range(20):
            clients[-1].send(METADATA, 9)
    await until(lambda: limited.waiting_count() == 5)

    assert [connection._request_count for connection in limited.node.server.connections] == [0] * 5  # noqa: SLF001
    await limited.pass_time(1000)
    assert [has_topic(await client.receive()) for client in clients] == [True] * 5


async def test_requests_that_were_read_wait_one_by_one(limited, busy):
    """All requests are read before the first has used any time. Each request makes the client owe more than the first second allows."""
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    client = await limited.node.client()
    await client.ask(m.ApiVersionsRequest(), 0)
    connection = limited.connection()
    await limited.pass_time(1000)
    busy()
    for _ in range(4):
        client.send(METADATA, 9)
    for left in (3, 2, 1, 0):
        await client.receive()
        await until(lambda: connection.waits_for_quota)
        assert connection._request_count == left  # noqa: SLF001 - the others have not begun
        await limited.pass_time(1000)


@pytest.mark.parametrize("ends", ["is answered", "is cancelled"])
async def test_a_request_is_charged_while_it_runs(kafka_cluster, monkeypatch, busy, ends):
    """Otherwise all requests that begin before the first one ends would begin for nothing, and cancelled ones would cost nothing."""
    may_end, fetch = asyncio.Event(), dispatch.HANDLERS[ApiKey.FETCH]

    async def long(context, caller, request):
        await may_end.wait()
        return await fetch(context, caller, request)

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.FETCH, long)
    limited = LimitedServer((await kafka_cluster(1))[0])
    await limited.node.create("t")
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    first, second = await limited.node.client(), await limited.node.client()
    await second.ask(m.ApiVersionsRequest(), 0)
    busy()
    first.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: limited.quotas.usage.due_s(ANONYMOUS, QuotaKey.REQUEST_PERCENTAGE) > 0)
    if ends == "is cancelled":
        await first.close()
        await until(lambda: len(limited.node.server.connections) == 1)
    second.send(METADATA, 9)
    await until(lambda: limited.waiting_count() == 1)

    may_end.set()
    await limited.pass_time(1000)
    assert has_topic(await second.receive())


async def test_connections_that_wait_begin_one_after_another_in_the_order_in_which_they_came(limited, monkeypatch):
    """All wait for the same debt. Each request takes a second, which the client owes before the next connection is looked at."""
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 100.0)
    clients = [await limited.node.client() for _ in range(4)]
    connections = list(limited.node.server.connections)
    for client in clients:
        await client.ask(m.ApiVersionsRequest(), 0)
    limited.quotas.usage.charge_time(ANONYMOUS, 10)
    for count, client in enumerate(clients, start=1):
        client.send(METADATA, 9)
        await until(lambda count=count: limited.quotas.lines.waiting_count == count)
    spent_s = take_a_second_for(monkeypatch, KafkaContext, "decode")
    for count, client in enumerate(clients, start=1):
        await limited.pass_time(9.1 if count == 1 else 1)
        assert has_topic(await client.receive())
        for _ in range(20):
            await asyncio.sleep(0)
        assert spent_s[0] == count
        assert [connection.waiter.is_waiting for connection in connections] == [False] * count + [True] * (4 - count)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(codec, "read_request_header"), (KafkaContext, "decode"), (KafkaContext, "encode"), (Connection, "_write")],
)
async def test_all_that_the_loop_does_for_a_connection_is_charged(limited, monkeypatch, owner, name):
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 100.0)
    client = await limited.node.client()
    request = fetch_request([("t", 0, 0)])
    take_a_second_for(monkeypatch, owner, name)
    for _ in range(3):
        client.send(request, 12)
        await client.receive()
        for _ in range(20):
            await asyncio.sleep(0)
        assert limited.quotas.usage.charge_time(ANONYMOUS, 0.5) == 0.5  # the request has used the burst of a second
        await limited.pass_time(1.5)


async def test_a_produce_response_tells_the_time_that_is_owed(limited, monkeypatch):
    """Also what its own request has used."""
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    client = await limited.node.client()
    await client.ask(m.ApiVersionsRequest(), 0)
    take_a_second_for(monkeypatch, produce.kernel, "parse_produce")
    answer = await client.ask(produce_request("t", batch_of(b"x")), 9)

    assert 1000 <= answer.throttle_time_ms <= 1100  # a second of the loop's time, of which the burst gives a half


async def test_a_new_connection_of_a_member_is_served_while_time_is_owed(limited):
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 1.0)
    limited.quotas.usage.charge_time(ANONYMOUS, 100)
    member = await limited.node.client()
    found = await member.ask(m.FindCoordinatorRequest(key="g", key_type=0), 2)
    assert found.throttle_time_ms == 1000 * MEMBER_WAIT_S_MAX
    await limited.pass_time(0)

    joined = await member.ask(join_of(), 5)
    assert joined.throttle_time_ms == 1000 * MEMBER_WAIT_S_MAX


async def test_other_requests_on_a_members_connection_do_not_silence_it(limited):
    """Some clients use one connection for everything. Heartbeats come behind their other requests."""
    member = await limited.node.client()
    joined = await member.ask(join_of(), 3)
    assert joined.error_code == 0
    connection = limited.connection()
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 1.0)
    heartbeat = m.HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    sync = m.SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[m.SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"x")],
    )
    assert (await member.ask(sync, 1)).error_code == 0
    limited.quotas.usage.charge_time(ANONYMOUS, 100)
    for _ in range(3):
        await limited.pass_time(0)
        assert has_topic(await member.ask(METADATA, 9))
        await until(lambda: connection.waits_for_quota)
        assert wait_s_of(connection) <= MEMBER_WAIT_S_MAX + 0.001
        await limited.pass_time(0)
        assert (await member.ask(heartbeat, 4)).error_code == 0


async def hold_a_commit(client, connection, busy):
    """Use up the client's time by one request, and let a commit behind it wait, which was read and has not begun."""
    busy()
    client.send(METADATA, 9)
    client.send(commit_of(7), 5)
    await client.receive()
    await until(lambda: connection.waits_for_quota)
    assert connection._request_count == 1  # noqa: SLF001 - the commit has not begun


async def test_a_commit_that_a_quota_holds_is_made_although_its_client_has_gone(limited, busy):
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    client = await limited.node.client()
    await client.ask(m.ApiVersionsRequest(), 0)
    connection = limited.connection()
    await limited.pass_time(1000)
    await hold_a_commit(client, connection, busy)
    connection.close("test", "test")
    await until(lambda: not len(limited.node.server.connections))

    await limited.pass_time(1000)
    asked = m.OffsetFetchRequest(group_id="g", topics=[m.OffsetFetchRequest.Topic(name="t", partition_indexes=[0])])
    other = await limited.node.client()
    answer = await other.ask(asked, 5)
    assert answer.topics[0].partitions[0].committed_offset == 7


async def test_a_request_that_a_quota_holds_ends_with_the_login(kafka_cluster, busy):
    """It was read before the login ended, and would begin after that."""
    cluster = await kafka_cluster(1, authentication=AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS))
    credential = create_credential("SCRAM-SHA-256", "secret")
    await cluster.metadata.users.change([CredentialChange("alice", credential.mechanism, credential)], revision=0)
    await cluster[0].create("t")
    limited = LimitedServer(cluster[0])
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0, Entity(user="alice"))
    client = await cluster.client()
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (await client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)).error_code == 0
    connection = limited.connection()
    await hold_a_commit(client, connection, busy)
    connection.session.ends_s = 0.0
    await limited.pass_time(1000)

    assert await client.is_closed()
    await until(lambda: not len(cluster[0].server.connections))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not await cluster.metadata.groups.offsets("g")


async def test_a_drain_answers_what_a_quota_holds(limited, busy):
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    client = await limited.node.client()
    await client.ask(m.ApiVersionsRequest(), 0)
    connection = limited.connection()
    await limited.pass_time(1000)
    busy()
    for _ in range(2):
        client.send(METADATA, 9)
    await client.receive()
    await until(lambda: connection.waits_for_quota)
    connection.finish()

    assert has_topic(await client.receive())


async def test_connections_are_listed_in_the_order_in_which_they_were_opened(limited):
    clients = [await limited.node.client() for _ in range(10)]
    for client in clients:
        await client.ask(m.ApiVersionsRequest(), 0)
    ports = [client.writer.get_extra_info("sockname")[1] for client in clients]

    assert [int(connection.peer.rpartition(":")[2]) for connection in limited.node.server.connections] == ports
