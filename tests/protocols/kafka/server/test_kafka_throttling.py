"""Quotas of Kafka clients: `throttle_time_ms`, and connections that are not read meanwhile (KIP-219), by a clock that tests advance."""

import asyncio

import pytest

from bearlake.metadata.quotas import DEFAULT, Entity, QuotaChange, QuotaKey
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import produce_pipelined
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.protocols.kafka.throttling import MEMBER_WAIT_S_MAX
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.slabs import SMALL_BYTES
from bearlake.streams.principal import ANONYMOUS
from fixtures.kafka_server import batch_of, fetch_request
from fixtures.quotas import ANYBODY, LimitedServer, take_a_second_for
from fixtures.waiting import until

SLOW_BYTES_MAX = 123_456


@pytest.fixture
async def limited(kafka):
    await kafka.create("t")
    return LimitedServer(kafka)


def produce(size, acks=-1):
    partition = m.ProduceRequest.Partition(index=0, records=batch_of(b"x" * size))
    return m.ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[m.ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


async def test_a_produce_response_says_how_long_to_wait_and_nothing_is_read_meanwhile(limited):
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    client = await limited.node.client()
    answer = await client.ask(produce(2800), 9)

    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 1800 <= answer.throttle_time_ms <= 2100
    client.send(m.MetadataRequest(topics=None), 9)
    await until(lambda: limited.connection().waits_for_quota)

    await limited.pass_time(answer.throttle_time_ms / 1000)
    assert "t" in {topic.name for topic in (await client.receive()).topics}
    await limited.pass_time(10)
    assert (await client.ask(produce(10), 9)).throttle_time_ms == 0


async def test_a_produce_request_on_another_connection_waits_and_is_then_served(limited):
    """As with Kafka the answer says how long to wait. A client that connects again instead gains nothing."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    first, second = await limited.node.client(), await limited.node.client()
    await second.ask(m.ApiVersionsRequest(), 0)
    await first.ask(produce(3000), 9)
    second.send(produce(10), 9)
    other = limited.connection()
    await until(lambda: other.waits_for_quota)

    await limited.pass_time(10)
    assert (await second.receive()).responses[0].partition_responses[0].base_offset == 1


async def left_waiting(limited, request, version, **options):
    """A client's request waits for the quota when the client closes its connection."""
    await (await limited.node.client()).ask(produce(3000), 9)
    client = await limited.node.client()
    await client.ask(m.ApiVersionsRequest(), 0)
    client.send(request, version, **options)
    connection = limited.connection()
    await until(lambda: connection.waits_for_quota)
    await client.close()
    return connection


@pytest.mark.parametrize("version", [7, 9])
async def test_a_request_that_its_client_gives_up_and_repeats_is_stored_once(limited, version):
    """What was given up does not use the quota either: the repeated request would wait for it, and be given up too."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    given_up = await left_waiting(limited, produce(3000), version)
    again = await limited.node.client()
    again.send(produce(3000), version)
    await until(lambda: limited.waiting_count() == 3)

    await limited.pass_time(10)
    assert (await again.receive()).responses[0].partition_responses[0].base_offset == 1
    await until(lambda: given_up not in limited.node.server.connections)
    assert (await (await limited.node.client()).list_offset("t", -1)).offset == 2


async def test_a_request_without_an_answer_is_stored_although_its_client_has_gone(limited):
    """A client with acks=0 may close as soon as it has sent."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    gone = await left_waiting(limited, produce(10, acks=0), 9, has_answer=False)

    await limited.pass_time(10)
    await until(lambda: gone not in limited.node.server.connections)
    friend = await limited.node.client("console")
    assert (await friend.ask(produce(10), 9)).responses[0].partition_responses[0].base_offset == 2


async def test_a_first_request_on_another_connection_waits_under_its_client_id(limited):
    """A Produce request need not follow a request that names the client; after a login it follows none."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0, Entity(user=DEFAULT, client_id="batch"))
    await (await limited.node.client("batch")).ask(produce(3000), 9)
    second = await limited.node.client("batch")
    second.send(produce(10), 9)
    await until(lambda: limited.waiting_count() == 2)
    assert (await (await limited.node.client("console")).list_offset("t", -1)).offset == 1

    await limited.pass_time(10)
    assert (await second.receive()).responses[0].partition_responses[0].base_offset == 1


async def test_requests_that_wait_hold_no_memory_that_others_need(kafka_cluster):
    """Without this, a client over its quota would stop all others that send large requests."""
    node = (await kafka_cluster(1, settings=KafkaSettings(receive_bytes_max=2 * 1024 * 1024)))[0]
    await node.create("t")
    limited = LimitedServer(node)
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0, Entity(user=DEFAULT, client_id="batch"))
    flood = [await node.client("batch") for _ in range(6)]
    await flood[0].ask(produce(900_000), 9)
    for client in flood[1:]:
        for _ in range(3):
            client.send(produce(900_000), 9)
    connections = list(node.server.connections)
    await until(lambda: all(connection.waits_for_quota for connection in connections))
    friend = await node.client("console")

    assert (await friend.ask(produce(900_000), 9)).responses[0].partition_responses[0].error_code == 0
    assert all(connection._slab.size == SMALL_BYTES for connection in connections)  # noqa: SLF001 - what they hold

    async def codes(client):
        answers = [await client.receive() for _ in range(3)]
        return [answer.responses[0].partition_responses[0].error_code for answer in answers]

    waiting = asyncio.gather(*map(codes, flood[1:]))
    while not waiting.done():
        await limited.pass_time(1000)
        await asyncio.sleep(0)
    assert waiting.result() == [[0, 0, 0]] * 5


async def test_a_begun_request_is_charged_before_its_rest_arrives(limited):
    """So that requests on many connections do not all begin before one of them is charged."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    first, second = await limited.node.client(), await limited.node.client()
    await second.ask(m.ApiVersionsRequest(), 0)
    frame = b"".join(codec.request(ApiKey.PRODUCE, 9).frame(1, "test", produce(3000)))
    first.send_bytes(frame[:1000])
    await until(lambda: limited.quotas.usage.due_s(ANONYMOUS, QuotaKey.PRODUCER_BYTE_RATE) > 2)
    second.send(produce(10), 9)
    await until(lambda: limited.waiting_count() == 1)

    first.send_bytes(frame[1000:])
    await first.receive_frame()
    await limited.pass_time(10)
    assert (await second.receive()).responses[0].partition_responses[0].base_offset == 1


async def test_other_requests_of_another_connection_do_not_wait(limited):
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    first, second = await limited.node.client(), await limited.node.client()
    await first.ask(produce(3000), 9)

    assert "t" in {topic.name for topic in (await second.ask(m.MetadataRequest(topics=None), 9)).topics}


async def test_a_fetch_response_has_its_records_and_says_how_long_to_wait(limited):
    client = await limited.node.client()
    await client.ask(produce(3000), 9)
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    answer = await client.ask(fetch_request([("t", 0, 0)]), 12)

    assert len(answer.responses[0].partitions[0].records) > 3000
    assert 2000 <= answer.throttle_time_ms <= 2200
    client.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: limited.connection().waits_for_quota)
    await limited.pass_time(10)
    assert (await client.receive()).responses[0].partitions[0].error_code == 0


async def test_fetches_on_many_connections_together_keep_to_the_quota(limited, monkeypatch):
    """All fetches begin while nothing is owed. Those that end after the first one get no records, as with Kafka, and ask again."""
    clients = [await limited.node.client() for _ in range(5)]
    await clients[0].ask(produce(3000), 9)
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    fetch, begun, may_end = limited.node.streams.fetch, [], asyncio.Event()

    async def held(*arguments, **options):
        begun.append(1)
        await may_end.wait()
        return await fetch(*arguments, **options)

    monkeypatch.setattr(limited.node.streams, "fetch", held)
    for client in clients:
        client.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: len(begun) == len(clients))
    may_end.set()
    answers = [await client.receive() for client in clients]
    found = [answer.responses[0].partitions[0] for answer in answers]

    assert [partition.error_code for partition in found] == [0] * 5
    assert sum(bool(partition.records) for partition in found) == 1
    assert all(answer.throttle_time_ms > 0 for answer in answers)


async def test_a_slow_read_is_not_starved_by_a_fast_one(limited, monkeypatch):
    """Both begin while nothing is owed. The fast one always ends first, and would leave nothing to the slow one."""
    slow, fast = await limited.node.client("slow"), await limited.node.client("fast")
    await fast.ask(produce(3000), 9)
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    fetch, begun, may_end = limited.node.streams.fetch, [], asyncio.Event()

    async def held(ranges, **options):
        if ranges[0].bytes_max == SLOW_BYTES_MAX:
            begun.append(1)
            await may_end.wait()
        return await fetch(ranges, **options)

    monkeypatch.setattr(limited.node.streams, "fetch", held)
    got = []
    for _ in range(6):
        may_end.clear()
        begun.clear()
        slow.send(fetch_request([("t", 0, 0)], partition_bytes_max=SLOW_BYTES_MAX), 12)
        await until(lambda: begun)
        fast.send(fetch_request([("t", 0, 0)]), 12)
        for _ in range(50):
            await asyncio.sleep(0)
        may_end.set()
        got.append(bool((await slow.receive()).responses[0].partitions[0].records))
        await limited.pass_time(100)
        await fast.receive()
        await limited.pass_time(100)

    assert got == [False, True, True, True, True, True]


async def test_pipelined_fetches_wait_one_by_one(limited):
    client = await limited.node.client()
    await client.ask(produce(3000), 9)
    await limited.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    connection = limited.connection()
    for _ in range(5):
        client.send(fetch_request([("t", 0, 0)]), 12)
    for _ in range(5):
        answer = await client.receive()
        assert answer.throttle_time_ms > 0
        assert connection._request_count == len(client.sent)  # noqa: SLF001 - the others have not begun
        await until(lambda: connection.waits_for_quota)
        await limited.pass_time(10)


@pytest.mark.parametrize("version", [7, 13])
async def test_pipelined_requests_of_a_limited_client_are_each_charged(limited, version):
    """All requests arrive at once. The first request that exceeds the quota makes those behind it wait. All answers say how long."""
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 10_000.0)
    client = await limited.node.client()
    topic = {"name": "t"} if version < 13 else {"topic_id": limited.node.streams.catalog.peek("t").id_bytes}
    for _ in range(6):
        partition = m.ProduceRequest.Partition(index=0, records=batch_of(b"x" * 4000))
        data = [m.ProduceRequest.Topic(**topic, partition_data=[partition])]
        client.send(m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), version)
    answers = [await client.receive() for _ in range(3)]
    assert [answer.throttle_time_ms > 0 for answer in answers] == [True, True, True]

    connection = limited.connection()
    await until(lambda: connection.waits_for_quota)
    await limited.pass_time(100)
    answers = [await client.receive() for _ in range(3)]
    assert [answer.throttle_time_ms > 0 for answer in answers] == [True, True, True]


async def test_a_client_id_has_a_quota_of_its_own(limited):
    entity = Entity(user=DEFAULT, client_id="batch")
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0, entity)
    batch, console = await limited.node.client("batch"), await limited.node.client("console")

    assert (await batch.ask(produce(3000), 9)).throttle_time_ms > 0
    assert (await console.ask(produce(3000), 9)).throttle_time_ms == 0


async def test_clients_without_a_quota_keep_the_fast_path(limited, monkeypatch):
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0, Entity(user="somebody"))
    client = await limited.node.client()
    taken = []
    take = produce_pipelined.take
    monkeypatch.setattr(produce_pipelined, "take", lambda *arguments: taken.append(1) or take(*arguments))
    for _ in range(3):
        assert (await client.ask(produce(3000), 9)).throttle_time_ms == 0

    assert len(taken) == 2


async def test_topics_are_created_and_deleted_at_the_rate_of_the_quota(limited):
    """KIP-599: THROTTLING_QUOTA_EXCEEDED, nothing done, and the time to wait in the response."""
    await limited.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 2.0)
    client = await limited.node.client()

    def create(name, count):
        return m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequest.Topic(name=name, num_partitions=count, replication_factor=1)],
            timeout_ms=1000,
        )

    first = await client.ask(create("a", 6), 7)
    assert first.topics[0].error_code == 0
    assert first.throttle_time_ms == 2000
    await limited.pass_time(1)
    second = await client.ask(create("b", 1), 7)
    assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_time_ms == 1000
    assert limited.node.streams.catalog.peek("b") is None
    await limited.pass_time(1)
    assert (await client.ask(create("b", 1), 7)).topics[0].error_code == 0
    await limited.pass_time(10)

    deleted = await client.ask(m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topic(name="a")]), 6)
    assert deleted.responses[0].error_code == 0
    assert deleted.throttle_time_ms == 2000


async def test_a_refused_creation_costs_nothing(limited):
    """KIP-599: what the controller has accepted counts. The quota may be shared by clients that did nothing wrong."""
    await limited.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    client = await limited.node.client()

    def create(name, count):
        topic = m.CreateTopicsRequest.Topic(name=name, num_partitions=count, replication_factor=1)
        return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000)

    for refused, code in (
        (create("t", 1000), ErrorCode.TOPIC_ALREADY_EXISTS),
        (create("u", 1_000_000), ErrorCode.INVALID_PARTITIONS),
    ):
        answer = await client.ask(refused, 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (code, 0)
    growth = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.Topic(name="t", count=1_000_000, assignments=None)], timeout_ms=1000
    )
    answer = await client.ask(growth, 3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (ErrorCode.INVALID_PARTITIONS, 0)

    assert (await client.ask(create("u", 1), 7)).topics[0].error_code == 0


async def test_creation_on_demand_counts_as_a_mutation(limited):
    await limited.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 4.0)
    client = await limited.node.client()
    names = [m.MetadataRequest.Topic(name=f"auto-{at}") for at in range(10)]
    answer = await client.ask(m.MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)

    made = [topic.name for topic in answer.topics if not topic.error_code]
    assert len(made) == 2  # of four partitions each: the second owes


async def test_time_on_the_event_loop_is_limited(limited, monkeypatch):
    take_a_second_for(monkeypatch, KafkaContext, "decode")
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 50.0)
    client = await limited.node.client()
    answer = await client.ask(m.MetadataRequest(topics=None), 9)

    # A response that is rendered for all clients does not say how long to wait.
    assert "t" in {topic.name for topic in answer.topics}
    await until(lambda: limited.connection().waits_for_quota)


async def test_members_of_groups_wait_at_most_a_second(limited):
    """A client that uses much time must not make groups lose the members of its user."""
    await limited.limit(QuotaKey.REQUEST_PERCENTAGE, 1.0)
    member = await limited.node.client()
    limited.quotas.usage.charge_time(ANONYMOUS, 100)
    answer = await member.ask(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), 4)

    assert answer.throttle_time_ms == 1000 * MEMBER_WAIT_S_MAX


async def test_a_login_has_its_full_time_after_the_wait_of_its_address(kafka_cluster):
    """Otherwise clients that wait longer would be disconnected, connect again, and never be served."""
    settings = AuthenticationSettings(mechanisms=["SCRAM-SHA-256"], login_ms=500)
    node = (await kafka_cluster(1, authentication=settings))[0]
    limited = LimitedServer(node)
    await limited.limit(QuotaKey.CONNECTION_CREATION_RATE, 1.0, Entity(address=DEFAULT))
    await node.client()
    second = await node.client()
    await until(lambda: limited.waiting_count() == 1)
    await until(lambda: len(node.server.connections) == 1)  # the first has not logged in in time
    assert limited.connection().waits_for_quota

    await limited.pass_time(1)
    assert (await second.ask(m.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)).error_code == 0


async def test_connections_of_an_address_are_served_at_the_rate_of_its_quota(limited):
    await limited.limit(QuotaKey.CONNECTION_CREATION_RATE, 1.0, Entity(address="127.0.0.1"))
    first, second = await limited.node.client(), await limited.node.client()
    await first.ask(m.ApiVersionsRequest(), 0)
    second.send(m.ApiVersionsRequest(), 0)
    await until(lambda: any(connection.waits_for_quota for connection in limited.node.server.connections))
    (waiting,) = (connection for connection in limited.node.server.connections if connection.waits_for_quota)
    await until(lambda: not waiting._transport.is_reading())  # noqa: SLF001 - no client sees whether its socket is read

    await limited.pass_time(1)
    assert (await second.receive()).error_code == 0


async def test_a_lifted_quota_lets_the_next_request_pass(limited):
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    client = await limited.node.client()
    await client.ask(produce(3000), 9)
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, None)
    await limited.pass_time(0)

    assert (await client.ask(produce(3000), 9)).throttle_time_ms == 0


async def test_quotas_of_one_server_hold_on_the_other(kafka_cluster):
    cluster = await kafka_cluster(2)
    await cluster[0].streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, 1000.0)])
    await until(lambda: cluster[1].streams.quotas.revision == 1)
    assert cluster[1].streams.quotas.usage is not None

    await cluster[1].streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, None)])
    await until(lambda: cluster[0].streams.quotas.revision == 2)
    assert cluster[0].streams.quotas.usage is None


async def test_servers_that_clients_use_are_counted(kafka_cluster):
    cluster = await kafka_cluster(2)
    assert [node.member.serving_count for node in cluster.nodes] == [2, 2]

    await cluster.kill(1)
    await cluster[0].member.refresh()
    assert cluster[0].member.serving_count == 1
