"""Parses requests: topics with their partitions, numbers, positions, bodies."""

from typing import Any
from urllib.parse import quote

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.protocols.pulsar import message_ids, names
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.http.problems import Problem, not_served
from bearlake.protocols.pulsar.names import TopicName
from bearlake.protocols.pulsar.proto.commands_pb2 import MessageIdData
from bearlake.protocols.pulsar.topics import Topic, is_partitioned, parse
from bearlake.records.json_values import TooManyValues, check_values, loads
from bearlake.serving.http.login import principal_of
from bearlake.streams.principal import Operation
from bearlake.streams.subscriptions.model import EARLIEST, LATEST

VALUE_COUNT_MAX = 20_000
"""JSON values of a body: properties of a schema or subscription, policies. They are parsed on the event loop, in 5 ms."""
_INT64_MAX = (1 << 63) - 1
_TOPIC_SEGMENTS = 7  # segments of "/admin/v2/persistent/tenant/namespace/topic"


def namespace_of(request: web.Request) -> str:
    """`tenant/namespace` in the path. Raises `Invalid`."""
    return names.check_namespace(f"{request.match_info['tenant']}/{request.match_info['namespace']}")


def name_of(request: web.Request) -> TopicName:
    """The topic name in the path. Raises `Refused` (InvalidTopicName), `Problem` (501) for a topic that is not persistent."""
    if request.match_info.get("domain", "persistent") != "persistent":
        raise not_served("topics that are not persistent")
    return parse(f"persistent://{namespace_of(request)}/{request.match_info['topic']}")


async def topic_of(context: PulsarContext, request: web.Request, operation: Operation) -> Topic:
    """The topic in the path; for a partitioned topic, the first partition. Raises `Problem` (404), `Denied`, `Refused`, `Unavailable`."""
    name = name_of(request)
    topic = await context.topics.find(principal_of(request), str(name), operation)
    if topic is None:
        raise Problem(404, f"Topic {name} not found")
    return topic


def path_of(name: TopicName) -> str:
    """The path of a topic's routes, encoded for a URL."""
    return f"/admin/v2/persistent/{name.namespace}/{quote(name.local, safe='')}"


def below_topic(request: web.Request) -> str:
    """The part of a request's URL after the topic, with the query, unchanged."""
    return "/" + request.rel_url.raw_path_qs.split("/", _TOPIC_SEGMENTS)[_TOPIC_SEGMENTS]


async def bounds_of(context: PulsarContext, partition: PartitionKey) -> PartitionBounds:
    """The current start and end offset of a partition. Raises `Problem` (404), `Unavailable`."""
    bounds = (await context.streams.bounds([partition])).get(partition)
    if bounds is None:
        raise Problem(404, "Topic not found: it has been deleted")
    return bounds


def names_whole(topic: Topic) -> bool:
    """Whether the path names a partitioned topic, not one of its partitions."""
    return topic.names_whole


def partitions_of(topic: Topic) -> list[PartitionKey]:
    """The partitions that the path refers to: all partitions of a partitioned topic, else one."""
    return topic.view.partitions() if names_whole(topic) else [topic.partition]


def topics_of(topic: Topic) -> list[Topic]:
    """The partitions that the path refers to, as topics."""
    if not names_whole(topic):
        return [topic]
    return [
        Topic(topic.name.partition(index), topic.view, index, is_partitioned=True)
        for index in range(topic.view.partition_count)
    ]


def one_partition(topic: Topic) -> PartitionKey:
    """The single partition that the path refers to. Raises `Refused` for a partitioned topic."""
    if names_whole(topic):
        count = topic.view.partition_count
        raise Refused("NotAllowedError", f"topic {topic.name} is partitioned: name one of its {count} partitions")
    return topic.partition


def is_whole_topic(topic: Topic) -> bool:
    """Whether the path names a whole stream, partitioned or not."""
    return names_whole(topic) or not is_partitioned(topic.view)


def number_in(request: web.Request, key: str, number_max: int = _INT64_MAX) -> int:
    """A number from 0 to `number_max` in the path. Raises `Problem` (400)."""
    text = request.match_info[key]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= number_max):
        raise Problem(400, f"{text[:40]!r}: expected a number from 0 to {number_max}")
    return int(text)


def flag(request: web.Request, key: str) -> bool:
    """Whether a query parameter is `true`."""
    return request.query.get(key, "").lower() == "true"


def check_count(text: bytes) -> None:
    """Raise `Problem` (413) for a JSON text of more than `VALUE_COUNT_MAX` values."""
    try:
        check_values("the body", text, VALUE_COUNT_MAX)
    except TooManyValues as error:
        raise Problem(413, str(error)) from error


async def body_of(request: web.Request) -> Any:
    """The JSON value in the body; None if the body is empty (Any: any JSON value). Raises `Problem` (400, 413)."""
    body = await request.read()
    if not body.strip():
        return None
    check_count(body)
    try:
        return loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"Malformed JSON: {str(error)[:100]}") from error


def position_in(value: object, partition: PartitionKey) -> tuple[int, bool]:
    """The offset of a message id in JSON (an object, `earliest` or `latest`), and whether the message itself is excluded.

    Raises `Problem` (400).
    """
    if value is None or value == "latest":
        return LATEST, False
    if value == "earliest":
        return EARLIEST, False
    if not isinstance(value, dict):
        raise Problem(400, "expected a message id: ledgerId, entryId")
    try:
        message = MessageIdData(
            ledger_id=int(value["ledgerId"]) & message_ids.NONE,
            entry_id=int(value["entryId"]) & message_ids.NONE,
            batch_index=int(value.get("batchIndex", -1)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Problem(400, "expected a message id of numbers: ledgerId, entryId") from error
    return message_ids.start_offset(message, partition), value.get("excluded") is True


def partition_count_in(value: object, count_max: int) -> int:
    """The number of partitions in a body. Raises `Problem` (400), `Invalid` (412)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Problem(400, "expected the number of partitions")
    if not 1 <= value <= count_max:
        raise Invalid(f"{value} partitions: expected 1 to {count_max}")
    return value
