"""Rights in every command of Pulsar's protocol: nothing without a right, and everything with exactly the rights that the table names."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.metadata.model import Stream
from bearlake.protocols.pulsar import handlers
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.protocols.pulsar.rights import NEEDED
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.access.control import AccessSettings
from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import Operation, Principal, Resource
from fixtures.pulsar_http import filled
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.rights import EVERY, OnlyRights, all_but

COMMANDS = sorted(NEEDED)
SECURED = [name for name in COMMANDS if NEEDED[name]]
TRANSACTIONS = {name for name in COMMANDS if "txn" in name or "tc_client" in name}
NAMESPACE = "public/default"
TEXT = pb.Schema(name="t", schema_data=b"", type=pb.Schema.String, properties=[KeyValue(key="k", value="v")])
SILENT = {"pong", "auth_response"}
NAMING = ("partitioned_metadata", "lookup", "producer", "subscribe", "get_schema", "get_or_create_schema")
"""The commands that name a topic."""
WITH_CONSUMER = (
    "flow",
    "ack",
    "redeliver_unacknowledged_messages",
    "seek",
    "unsubscribe",
    "consumer_stats",
    "get_last_message_id",
    "close_consumer",
)
"""The commands that name a consumer."""
_numbers = count()


def request_of(name: str, topic: str, message_id: pb.MessageIdData) -> Any:
    bodies: Mapping[str, Any] = {
        "partitioned_metadata": pb.CommandPartitionedTopicMetadata(topic=topic),
        "lookup": pb.CommandLookupTopic(topic=topic),
        "get_topics_of_namespace": pb.CommandGetTopicsOfNamespace(namespace=NAMESPACE),
        "watch_topic_list": pb.CommandWatchTopicList(watcher_id=1, namespace=NAMESPACE, topics_pattern=".*"),
        "watch_topic_list_close": pb.CommandWatchTopicListClose(watcher_id=1),
        "producer": pb.CommandProducer(topic=topic, producer_id=9),
        "close_producer": pb.CommandCloseProducer(producer_id=1),
        "subscribe": pb.CommandSubscribe(topic=topic, subscription="new", consumer_id=9),
        "flow": pb.CommandFlow(consumer_id=1, message_permits=10),
        "ack": pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id], request_id=7),
        "redeliver_unacknowledged_messages": pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1),
        "seek": pb.CommandSeek(consumer_id=1, message_publish_time=0),
        "unsubscribe": pb.CommandUnsubscribe(consumer_id=1),
        "consumer_stats": pb.CommandConsumerStats(consumer_id=1),
        "get_last_message_id": pb.CommandGetLastMessageId(consumer_id=1),
        "close_consumer": pb.CommandCloseConsumer(consumer_id=1),
        "get_schema": pb.CommandGetSchema(topic=topic),
        "get_or_create_schema": pb.CommandGetOrCreateSchema(topic=topic, schema=TEXT),
    }
    return bodies[name] if name in bodies else type(getattr(pb.BaseCommand(), name))()


@pytest.fixture
async def node(pulsar: PulsarNode) -> PulsarNode:
    """A server with a topic `t` with a schema and three messages, and a partitioned topic `p`."""
    client = await filled(pulsar, "t", 3)
    made = await client.ask("get_or_create_schema", pb.CommandGetOrCreateSchema(topic="t", schema=TEXT))
    assert made.schema_version
    await pulsar.create("p", 2)
    return pulsar


async def ready(node: PulsarNode, name: str) -> tuple[PulsarClient, pb.MessageIdData]:
    """A client that can send the command: with a producer, a consumer with one message, or a watched list."""
    node.streams.authorizer = OnlyRights(EVERY)
    client, message_id = await node.client(), pb.MessageIdData(ledger_id=0, entry_id=0)
    if name in ("send", "close_producer"):
        await client.produce("t")
    if name == "watch_topic_list_close":
        await client.ask("watch_topic_list", request_of("watch_topic_list", "t", message_id))
    if name in WITH_CONSUMER:
        await client.subscribe("t", f"s{next(_numbers)}")
    if name in ("ack", "redeliver_unacknowledged_messages"):
        client.flow(1)
        message_id = (await client.receive_message())[0].message_id
    return client, message_id


async def answer(node: PulsarNode, name: str, rights: OnlyRights, topic: str = "") -> Any:
    """Send a command with these rights; its answer. `topic`: by default one without a schema if the command makes one, else `t`."""
    topic = topic or ("p-partition-0" if name == "get_or_create_schema" else "t")
    if name == "connect":
        node.streams.authorizer = rights
        return (await node.client()).connected
    client, message_id = await ready(node, name)
    node.streams.authorizer = rights
    node.streams.catalog.version += 1  # clients share watched lists until streams or access rules change
    if name == "send":
        client.send_message(b"v", next(_numbers))
        return await client.receive()
    body = request_of(name, topic, message_id)
    if name in SILENT:
        client.send(name, body)
        return await client.ask("ping", pb.CommandPing())
    found = await client.ask(name, body)
    while name == "seek" and isinstance(found, pb.CommandCloseConsumer):  # the consumers of the subscription
        found = await client.receive()
    if name in ("producer", "subscribe"):
        client.writer.close()
    return found


def error_in(found: Any) -> int | None:
    """The number of the error in an answer."""
    fields = found.DESCRIPTOR.fields_by_name
    for field in ("error", "error_code"):
        if field in fields and found.HasField(field):
            return int(getattr(found, field))
    return None


def is_refused(name: str, found: Any) -> bool:
    """Whether an answer is a refusal for lack of rights: an error, a closed producer or consumer, or an empty list."""
    if name in ("send", "flow", "redeliver_unacknowledged_messages"):
        return isinstance(found, pb.CommandCloseProducer | pb.CommandCloseConsumer)
    if name == "get_topics_of_namespace":
        return not found.topics
    if name == "watch_topic_list":
        return not found.topic
    return error_in(found) == pb.AuthorizationError


def test_the_table_of_rights_has_every_command() -> None:
    assert set(NEEDED) == handlers.NAMES


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_is_refused_without_any_right(node: PulsarNode, name: str) -> None:
    assert is_refused(name, await answer(node, name, OnlyRights([]))) is bool(NEEDED[name])


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_needs_exactly_the_rights_of_the_table(node: PulsarNode, name: str) -> None:
    for right in NEEDED[name]:
        assert is_refused(name, await answer(node, name, all_but(right))), right
    found = await answer(node, name, OnlyRights(NEEDED[name]))
    assert not is_refused(name, found)
    assert error_in(found) == (pb.NotAllowedError if name in TRANSACTIONS else None), found


@pytest.mark.parametrize("name", NAMING)
async def test_a_refusal_does_not_reveal_whether_a_topic_exists(node: PulsarNode, name: str) -> None:
    for topic in ("t", "p", "absent", "p-partition-1", "p-partition-7", "t-partition-1", "absent-partition-0"):
        found = await answer(node, name, OnlyRights([]), topic)
        assert error_in(found) == pb.AuthorizationError, topic
        assert f"topic persistent://public/default/{topic}" in str(found)


@pytest.mark.parametrize("name", NAMING)
async def test_a_refusal_does_not_reveal_whether_a_topic_exists_on_a_server_that_creates_none(
    pulsar_cluster: Make, name: str
) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(auto_create_streams=False)))[0]
    await node.create("t")
    errors = [error_in(await answer(node, name, OnlyRights([]), topic)) for topic in ("t", "absent")]

    assert errors == [pb.AuthorizationError, pb.AuthorizationError]


@pytest.mark.parametrize("name", NAMING)
async def test_a_refusal_needs_no_answer_of_the_metadata_store(
    node: PulsarNode, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers ask the store about missing topics only: the time or the absence of its answer would reveal that a topic is missing."""

    async def get(name: str) -> Stream:
        raise Unavailable(f"the store is down, and was asked for {name}")

    monkeypatch.setattr(node.streams.metadata.streams, "get", get)
    for topic in ("t", "absent", "p-partition-1", "absent-partition-0"):
        assert error_in(await answer(node, name, OnlyRights([]), topic)) == pb.AuthorizationError, topic


class OnlyStream(OnlyRights):
    """Allows everything on one stream, and nothing else."""

    def __init__(self, stream: str) -> None:
        super().__init__(EVERY)
        self._stream = stream

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return kind is not Resource.STREAM or name == self._stream


@pytest.mark.parametrize("name", NAMING)
async def test_a_right_on_one_meaning_of_a_name_does_not_reveal_whether_the_other_exists(
    pulsar_cluster: Make, name: str
) -> None:
    """`p-partition-1` is a partition of stream `p`, or a stream of that name."""
    node = (await pulsar_cluster(1, settings=PulsarSettings(auto_create_streams=False)))[0]
    missing = [await answer(node, name, OnlyStream(f"{topic}-partition-1"), f"{topic}-partition-1") for topic in "pq"]
    await node.create("p", 2)
    await node.create("q-partition-1")

    assert str(await answer(node, name, OnlyStream("p-partition-1"), "p-partition-1")) == str(missing[0])
    hidden = await answer(node, name, OnlyStream("q"), "q-partition-1")
    assert error_in(hidden) == error_in(missing[1]) == pb.TopicNotFound


@pytest.mark.parametrize("name", ["producer", "subscribe"])
async def test_a_topic_that_the_caller_may_not_use_is_not_created(pulsar: PulsarNode, name: str) -> None:
    rights = OnlyRights(on(Resource.STREAM, Operation.CREATE, Operation.DESCRIBE))
    assert error_in(await answer(pulsar, name, rights, "new")) == pb.AuthorizationError
    with pytest.raises(NotFound):
        await pulsar.streams.catalog.resolve("new")


@pytest.mark.parametrize(
    ("name", "operation"),
    [("producer", Operation.WRITE), ("subscribe", Operation.READ), ("partitioned_metadata", Operation.DESCRIBE)],
)
async def test_a_topic_is_created_with_the_right_to_create_it(
    pulsar_cluster: Make, name: str, operation: Operation
) -> None:
    count = 0 if name != "partitioned_metadata" else 2
    node = (await pulsar_cluster(1, settings=PulsarSettings(auto_create_partition_count=count)))[0]
    needed = on(Resource.STREAM, operation, Operation.CREATE, Operation.DESCRIBE)
    for right in needed[:2]:
        assert error_in(await answer(node, name, all_but(right), "new")) == pb.AuthorizationError
    with pytest.raises(NotFound):
        await node.streams.catalog.resolve("new")
    assert error_in(await answer(node, name, OnlyRights(needed), "new")) is None
    await node.streams.catalog.resolve("new")


async def test_an_idle_client_loses_what_it_may_not_have_any_more(pulsar_cluster: Make) -> None:
    """Otherwise it would keep others from exclusive access and from an exclusive subscription."""
    node = (await pulsar_cluster(1, access=AccessSettings(allow_if_no_rule=False)))[0]
    await node.create("t")
    allowed = [rule_of(operation) for operation in (Operation.READ, Operation.WRITE)]
    await node.streams.access.create(allowed)
    producing, consuming, watching = [await node.client() for _ in range(3)]
    assert (await producing.produce("t", producer_access_mode=pb.Exclusive)).producer_ready
    assert isinstance(await consuming.subscribe("t"), pb.CommandSuccess)
    request = pb.CommandWatchTopicList(watcher_id=1, namespace=NAMESPACE, topics_pattern=".*")
    assert (await watching.ask("watch_topic_list", request)).topic == ["persistent://public/default/t"]

    await node.streams.access.replace(allowed, ())
    assert isinstance(await producing.receive(), pb.CommandCloseProducer)
    assert isinstance(await consuming.receive(), pb.CommandCloseConsumer)
    assert (await watching.receive("watch_topic_update")).deleted_topics == ["persistent://public/default/t"]

    await node.streams.access.create(allowed)
    assert (await watching.receive("watch_topic_update")).new_topics == ["persistent://public/default/t"]
    assert (await producing.produce("t", producer_access_mode=pb.Exclusive)).producer_ready


def rule_of(operation: Operation) -> AccessRule:
    literal, allow = PatternKind.LITERAL, Permission.ALLOW
    return AccessRule(Resource.STREAM, "t", literal, "User:ANONYMOUS", "*", operation, allow)


async def test_a_producer_without_the_right_to_read_creates_no_subscription(node: PulsarNode) -> None:
    read = Right(Operation.READ, Resource.STREAM)
    client = await node.client()
    node.streams.authorizer = all_but(read)
    refused = await client.produce("t", initial_subscription_name="s")
    assert error_in(refused) == pb.AuthorizationError
    node.streams.authorizer = OnlyRights([*NEEDED["producer"], read])
    assert error_in(await client.produce("t", initial_subscription_name="s")) is None


async def test_a_producer_with_a_schema_needs_the_rights_on_its_subject(node: PulsarNode) -> None:
    needed = NEEDED["get_or_create_schema"]
    client = await node.client()
    for right in needed:
        node.streams.authorizer = all_but(right)
        assert error_in(await client.produce("p-partition-0", schema=TEXT)) == pb.AuthorizationError, right
    node.streams.authorizer = OnlyRights(needed)
    assert error_in(await client.produce("p-partition-0", schema=TEXT)) is None


async def test_a_consumer_with_a_schema_needs_the_right_to_read_its_subject(node: PulsarNode) -> None:
    schema = Right(Operation.READ, Resource.SUBJECT)
    client = await node.client()
    node.streams.authorizer = all_but(schema)
    assert error_in(await client.subscribe("t", schema=TEXT)) == pb.AuthorizationError
    node.streams.authorizer = OnlyRights([*NEEDED["subscribe"], schema])
    assert error_in(await client.subscribe("t", schema=TEXT)) is None


async def test_a_producer_that_waits_for_exclusive_access_gets_none_without_its_right(node: PulsarNode) -> None:
    topic, wait = "p-partition-0", pb.WaitForExclusive
    holder, waiting, other = [await node.client() for _ in range(3)]
    assert (await holder.produce(topic, producer_access_mode=wait, producer_name="holder")).producer_ready
    assert not (await waiting.produce(topic, producer_access_mode=wait, producer_name="waiting")).producer_ready
    node.streams.authorizer = all_but(Right(Operation.WRITE, Resource.STREAM))
    await holder.ask("close_producer", pb.CommandCloseProducer(producer_id=1))
    assert error_in(await waiting.receive()) == pb.AuthorizationError

    node.streams.authorizer = OnlyRights(EVERY)
    assert (await other.produce(topic, producer_access_mode=pb.Exclusive, producer_name="other")).producer_ready


async def test_a_producer_that_waited_creates_no_subscription_without_the_right_to_read(node: PulsarNode) -> None:
    topic, wait = "p-partition-0", pb.WaitForExclusive
    holder, waiting = [await node.client() for _ in range(2)]
    assert (await holder.produce(topic, producer_access_mode=wait, producer_name="holder")).producer_ready
    opened = await waiting.produce(
        topic, producer_access_mode=wait, producer_name="waiting", initial_subscription_name="s"
    )
    assert not opened.producer_ready
    node.streams.authorizer = all_but(Right(Operation.READ, Resource.STREAM))
    await holder.ask("close_producer", pb.CommandCloseProducer(producer_id=1))

    assert error_in(await waiting.receive()) == pb.AuthorizationError
    partition = (await node.streams.catalog.find("p")).partition(0)
    assert "s" not in await node.streams.subscriptions.names(partition)
