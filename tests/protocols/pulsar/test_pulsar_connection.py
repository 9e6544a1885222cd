"""The life-cycle of a connection, and look-ups, by raw frames."""

import asyncio

from google.protobuf.message import Message

from bearlake.protocols.pulsar import topic_lists
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.settings import PulsarSettings
from fixtures.pulsar_server import Make, PulsarNode
from fixtures.waiting import until


async def test_connect_is_answered_with_the_true_limits(pulsar: PulsarNode) -> None:
    connected = (await pulsar.client()).connected

    assert connected.server_version.startswith("Bearlake ")
    assert connected.protocol_version == 20  # the client's
    assert connected.max_message_size == 5 * 1024 * 1024
    flags = {field.name for field, is_set in connected.feature_flags.ListFields() if is_set}
    assert flags == {"supports_topic_watchers", "supports_get_partitioned_metadata_without_auto_creation"}


async def test_a_newer_client_gets_our_version(pulsar: PulsarNode) -> None:
    client = await pulsar.silent_client()

    connected = await client.ask("connect", pb.CommandConnect(client_version="test", protocol_version=99))

    assert connected.protocol_version == 21


async def test_ping_is_answered_with_pong(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    client.send("ping", pb.CommandPing())

    await client.receive("pong")


async def test_a_silent_client_is_asked_and_then_disconnected(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(keep_alive_ms=1)))[0]
    client = await node.client()

    asked = asyncio.create_task(client.receive("ping"))
    await until(lambda: node.server.connections.check() or asked.done())  # type: ignore[func-returns-value]
    await asked
    await until(lambda: node.server.connections.check() or not len(node.server.connections))  # type: ignore[func-returns-value]

    assert await client.is_closed()


async def test_a_client_that_answers_stays(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    client.send("pong", pb.CommandPong())
    client.send("ping", pb.CommandPing())

    await client.receive("pong")


async def test_unknown_commands_are_refused_and_the_connection_stays(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    client.send_bytes(bytes.fromhex("0000000600000002084b"))  # type 75, of a later protocol
    unknown = await client.receive("error")
    client.send("success", pb.CommandSuccess(request_id=1))  # only servers send this command
    reverse = await client.receive("error")
    client.send("ping", pb.CommandPing())
    await client.receive("pong")

    assert unknown.error == pb.UnsupportedVersionError
    assert reverse.error == pb.NotAllowedError


async def test_transaction_commands_are_refused_with_their_own_responses(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    coordinator = await client.ask("tc_client_connect_request", pb.TxnRequest())
    names = ("new_txn", "add_partition_to_txn", "add_subscription_to_txn", "end_txn")
    answers = [await client.ask(name, pb.TxnRequest()) for name in names]

    assert isinstance(coordinator, pb.CommandTcClientConnectResponse)
    assert [answer.error for answer in (coordinator, *answers)] == [pb.NotAllowedError] * 5
    assert [answer.request_id for answer in answers] == [2, 3, 4, 5]


async def metadata_of(node: PulsarNode, topic: str, **options: bool) -> pb.CommandPartitionedTopicMetadataResponse:
    client = await node.client()
    answer = await client.ask("partitioned_metadata", pb.CommandPartitionedTopicMetadata(topic=topic, **options))
    assert isinstance(answer, pb.CommandPartitionedTopicMetadataResponse)
    return answer


async def test_partition_counts_are_those_of_streams(pulsar: PulsarNode) -> None:
    await pulsar.create("one")
    await pulsar.create("one-part", pulsar_partitioned="true")
    await pulsar.create("three", 3)

    counts = [
        (await metadata_of(pulsar, topic)).partitions
        for topic in ("one", "one-part", "three", "three-partition-1", "none")
    ]

    assert counts == [0, 1, 3, 0, 0]


async def test_a_topic_that_must_not_be_created_is_not_found(pulsar: PulsarNode) -> None:
    answer = await metadata_of(pulsar, "none", metadata_auto_creation_enabled=False)

    assert (answer.response, answer.error) == (pb.CommandPartitionedTopicMetadataResponse.Failed, pb.TopicNotFound)


async def test_a_topic_is_created_with_partitions_where_that_is_set(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(auto_create_partition_count=2)))[0]

    assert (await metadata_of(node, "new")).partitions == 2
    assert node.streams.catalog.peek("new") is not None


async def test_bad_names_are_refused(pulsar: PulsarNode) -> None:
    bad = await metadata_of(pulsar, "non-persistent://public/default/t")
    long = await metadata_of(pulsar, "x" * 250)

    assert (bad.error, long.error) == (pb.InvalidTopicName, pb.InvalidTopicName)


async def test_lookups_of_a_topic_name_the_same_server_everywhere(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    topics = [f"t{number}" for number in range(20)]

    answers = [
        [await client.ask("lookup", pb.CommandLookupTopic(topic=topic)) for topic in topics] for client in clients
    ]

    urls = [[answer.broker_service_url for answer in lookups] for lookups in answers]
    assert urls[0] == urls[1]
    assert set(urls[0]) == {node.url for node in cluster.nodes}
    assert all(answer.response == pb.CommandLookupTopicResponse.Connect for answer in answers[0])


async def test_a_lookup_names_the_server_that_dispatches_the_topic(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    clients = [await node.client() for node in cluster.nodes]
    topics = [f"t{number}" for number in range(8)]
    for number, topic in enumerate(topics):  # half of them for addresses to which no client is sent
        assert isinstance(await clients[number % 2].subscribe(topic, consumer_id=number), pb.CommandSuccess)

    urls = [(await clients[0].ask("lookup", pb.CommandLookupTopic(topic=topic))).broker_service_url for topic in topics]

    assert urls == [cluster[number % 2].url for number in range(8)]


async def test_a_partitioned_topic_can_be_looked_up_as_a_whole(pulsar: PulsarNode) -> None:
    await pulsar.create("t", 3)
    client = await pulsar.client()

    answer = await client.ask("lookup", pb.CommandLookupTopic(topic="t"))

    assert answer.broker_service_url == pulsar.url


async def test_a_lookup_does_not_name_a_draining_server(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[1].member.drain()
    await cluster[0].member.refresh()
    client = await cluster[0].client()

    urls = {(await client.ask("lookup", pb.CommandLookupTopic(topic=f"t{n}"))).broker_service_url for n in range(20)}

    assert urls == {cluster[0].url}


async def test_topics_of_a_namespace_are_listed_one_by_one(pulsar: PulsarNode) -> None:
    for name, count in (("b", 1), ("a", 2), ("acme..prod..t", 1), ("not..ours", 1)):
        await pulsar.create(name, count)
    client = await pulsar.client()

    def ask(namespace: str, **options: str) -> Message:
        return pb.CommandGetTopicsOfNamespace(namespace=namespace, **options)  # type: ignore[arg-type]

    default = await client.ask("get_topics_of_namespace", ask("public/default"))
    other = await client.ask("get_topics_of_namespace", ask("acme/prod"))
    again = await client.ask("get_topics_of_namespace", ask("acme/prod", topics_hash=other.topics_hash))
    bad = await client.ask("get_topics_of_namespace", ask("nonsense"))

    prefix = "persistent://public/default/"
    assert list(default.topics) == [prefix + "a-partition-0", prefix + "a-partition-1", prefix + "b"]
    assert list(other.topics) == ["persistent://acme/prod/t"]
    assert (list(again.topics), again.changed) == ([], False)
    assert bad.error == pb.NotAllowedError


def test_hashes_of_topic_lists() -> None:
    assert topic_lists.hash_of([]) == "00000000"
    assert topic_lists.hash_of(["b", "a"]) == topic_lists.hash_of(["a", "b"]) != topic_lists.hash_of(["a"])


async def test_a_watched_list_follows_the_catalog(pulsar: PulsarNode) -> None:
    await pulsar.create("orders")
    client = await pulsar.client()
    request = pb.CommandWatchTopicList(
        watcher_id=1, namespace="public/default", topics_pattern="persistent://public/default/or.*"
    )

    found = await client.ask("watch_topic_list", request)
    await pulsar.create("other")
    await pulsar.create("origins", 2)
    created = await client.receive("watch_topic_update")
    await pulsar.streams.catalog.delete((await pulsar.streams.catalog.resolve("orders")).stream)
    deleted = await client.receive("watch_topic_update")
    client.send("watch_topic_list_close", pb.CommandWatchTopicListClose(request_id=9, watcher_id=1))
    await client.receive("success")
    await pulsar.create("oracles")
    client.send("ping", pb.CommandPing())
    await client.receive("pong")

    prefix = "persistent://public/default/"
    assert list(found.topic) == [prefix + "orders"]
    assert list(created.new_topics) == [prefix + "origins-partition-0", prefix + "origins-partition-1"]
    assert list(deleted.deleted_topics) == [prefix + "orders"]
    assert deleted.topics_hash == topic_lists.hash_of(created.new_topics)


async def test_a_pattern_that_does_not_parse_is_refused(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    for pattern in ("(", "a" * 20_000):
        request = pb.CommandWatchTopicList(watcher_id=1, namespace="public/default", topics_pattern=pattern)
        assert (await client.ask("watch_topic_list", request)).error == pb.NotAllowedError


async def test_topics_have_no_schema_without_one(pulsar: PulsarNode) -> None:
    await pulsar.create("t")
    client = await pulsar.client()

    none = await client.ask("get_schema", pb.CommandGetSchema(topic="t"))
    no_schema = pb.Schema(name="", type=pb.Schema.NoSchema)
    made = await client.ask("get_or_create_schema", pb.CommandGetOrCreateSchema(topic="t", schema=no_schema))

    assert none.error_code == pb.TopicNotFound
    assert (made.schema_version, made.HasField("error_code")) == (b"", False)
