"""Lists over very many streams: complete, and in turns of the event loop, so that other clients are served in between."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from bearlake.protocols.grpc.methods import LIST_STREAMS
from bearlake.protocols.grpc.proto import stream_pb2
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams import long_lists
from bearlake.streams.catalog import Catalog
from bearlake.streams.long_lists import NAME_COUNT_MAX
from bearlake.streams.principal import ANONYMOUS, Principal
from bearlake.streams.turns import AT_ONCE, in_turns
from fixtures.grpc_server import GrpcNode
from fixtures.kafka_server import Node
from fixtures.pulsar_http import ask
from fixtures.pulsar_server import PulsarNode
from fixtures.rest_server import RestNode
from fixtures.turns import CountingTurns, fill
from fixtures.waiting import until
from fixtures.waiting_lists import count_of_waiting

COUNT = 2_500


def checked(turns: CountingTurns, found: Sequence[Any], expected: Sequence[Any], most: int = AT_ONCE + 10) -> None:
    """`most`: rights in one turn, including those on resources that the request itself names."""
    assert list(found) == list(expected)
    assert turns.count >= COUNT
    assert turns.most <= most


async def test_a_walk_gives_every_item_once_in_its_order() -> None:
    parts = [list(part) async for part in in_turns(range(7), 3)]

    assert parts == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part async for part in in_turns([])] == []


KAFKA: dict[str, tuple[Any, int, Callable[[Any], list[str]]]] = {
    "metadata": (m.MetadataRequest(topics=None), 12, lambda a: sorted(topic.name for topic in a.topics)),
    "configs": (
        m.ListConfigResourcesRequest(resource_types=[2]),
        1,
        lambda a: [found.resource_name for found in a.config_resources],
    ),
    "sizes": (m.DescribeLogDirsRequest(topics=None), 4, lambda a: [topic.name for topic in a.results[0].topics]),
    "partitions": (
        m.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000),
        0,
        lambda a: [topic.name for topic in a.topics],
    ),
}


@pytest.mark.parametrize("what", KAFKA)
async def test_kafka_lists_streams_in_turns(kafka: Node, what: str) -> None:
    request, version, names_in = KAFKA[what]
    expected = sorted([*fill(kafka.streams.catalog, COUNT), "__consumer_offsets"])
    client = await kafka.client()
    turns = kafka.streams.authorizer = CountingTurns()

    answer = await client.ask(request, version)

    if what == "partitions":  # two rights of each stream; no wait between the end of a walk and the next
        checked(turns, names_in(answer), expected[:2000], 3 * AT_ONCE)
    else:
        checked(turns, names_in(answer), expected)


@pytest.mark.parametrize("path", ["/topics", "/v3/clusters/{cluster}/topics"])
async def test_rest_lists_streams_in_turns(rest: RestNode, path: str) -> None:
    expected = fill(rest.streams.catalog, COUNT)
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    turns = rest.streams.authorizer = CountingTurns()

    body = (await rest.get(path.format(cluster=cluster))).body

    checked(turns, body if path == "/topics" else [topic["topic_name"] for topic in body["data"]], expected)


async def test_grpc_lists_streams_in_turns_until_its_page_is_full(grpc_node: GrpcNode) -> None:
    expected = fill(grpc_node.streams.catalog, COUNT)
    turns = grpc_node.streams.authorizer = CountingTurns()
    found: list[str] = []
    request = stream_pb2.ListStreamsRequest(prefix="many..")
    while True:
        page = await grpc_node.call(LIST_STREAMS, request)
        found += [stream.name for stream in page.streams]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token

    checked(turns, found, expected)
    assert not (await grpc_node.call(LIST_STREAMS, stream_pb2.ListStreamsRequest(prefix="none"))).streams


def topics(streams: Sequence[str]) -> list[str]:
    return [str(names.topic_of(stream)) for stream in streams]


HTTP = {
    "tenants": ("/admin/v2/tenants", lambda streams: ["many", "public"]),
    "namespaces": ("/admin/v2/namespaces/many", lambda streams: ["many/streams"]),
    "topics": ("/admin/v2/namespaces/many/streams/topics", topics),
    "persistent": ("/admin/v2/persistent/many/streams", topics),
    "partitioned": ("/admin/v2/persistent/many/streams/partitioned", lambda streams: []),
}


@pytest.mark.parametrize("what", HTTP)
async def test_pulsar_lists_over_http_are_made_in_turns(
    pulsar: PulsarNode, session: aiohttp.ClientSession, what: str
) -> None:
    path, expected = HTTP[what]
    streams = fill(pulsar.streams.catalog, COUNT)
    turns = pulsar.streams.authorizer = CountingTurns()

    status, body = await ask(session, pulsar, "GET", path)

    assert status == 200
    checked(turns, body, expected(streams))


@pytest.mark.parametrize("path", ["/admin/v2/tenants/many", "/admin/v2/namespaces/many/streams"])
async def test_a_namespace_or_tenant_with_many_topics_is_not_deleted(
    pulsar: PulsarNode, session: aiohttp.ClientSession, path: str
) -> None:
    fill(pulsar.streams.catalog, COUNT)
    turns = pulsar.streams.authorizer = CountingTurns()

    status, _ = await ask(session, pulsar, "DELETE", path)

    checked(turns, [status], [409])


@pytest.mark.parametrize("what", ["get_topics_of_namespace", "watch_topic_list"])
async def test_pulsar_lists_are_made_in_turns(pulsar: PulsarNode, what: str) -> None:
    streams = fill(pulsar.streams.catalog, COUNT)
    client = await pulsar.client()
    turns = pulsar.streams.authorizer = CountingTurns()
    requests = {
        "get_topics_of_namespace": pb.CommandGetTopicsOfNamespace(namespace="many/streams"),
        "watch_topic_list": pb.CommandWatchTopicList(watcher_id=1, namespace="many/streams", topics_pattern=".*"),
    }

    answer = await client.ask(what, requests[what])

    checked(turns, answer.topics if what == "get_topics_of_namespace" else answer.topic, topics(streams))


async def test_watched_lists_are_updated_in_turns_and_equal_callers_share_theirs(pulsar: PulsarNode) -> None:
    fill(pulsar.streams.catalog, COUNT)
    clients = [await pulsar.client() for _ in range(3)]
    request = pb.CommandWatchTopicList(watcher_id=1, namespace="many/streams", topics_pattern=".*")
    for client in clients:
        await client.ask("watch_topic_list", request)
    turns = pulsar.streams.authorizer = CountingTurns()

    await pulsar.create("many..streams..new")

    for client in clients:
        update = await client.receive("watch_topic_update")
        assert list(update.new_topics) == ["persistent://many/streams/new"]
    assert COUNT <= turns.count <= COUNT + 10
    assert turns.most <= AT_ONCE


async def test_a_change_of_a_namespace_looks_at_its_streams_in_turns(
    pulsar: PulsarNode, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pulsar.streams.catalog, COUNT)
    turns = CountingTurns()
    peek = Catalog.peek

    def counted(catalog: Catalog, name: str) -> Any:
        turns.tick()
        return peek(catalog, name)

    monkeypatch.setattr(Catalog, "peek", counted)
    namespaces = pulsar.server.context.topics.namespaces
    await namespaces.change(ANONYMOUS, "many/streams", {}, ["retention.ms"])

    assert turns.count >= 2 * COUNT
    assert turns.most <= 2 * AT_ONCE  # the store in memory does not wait between the end of a walk and the next


NAMESPACES: list[tuple[str, Callable[[str], bool]]] = [
    ("acme/prod", lambda stream: stream.startswith("acme..prod..") and stream != "acme..prod...3dx..t"),
    ("acme/prod=x", lambda stream: stream == "acme..prod...3dx..t"),
    ("public/default", lambda stream: stream in ("plain", "a.b", "public..default..my...20topic")),
]


@pytest.mark.parametrize(("namespace", "belongs"), NAMESPACES)
async def test_the_streams_of_a_namespace_are_found_without_parsing_all_names(
    namespace: str, belongs: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = ["acme..prod..t", "acme..prod...3dx..t", "acme..production..t", "acme..t", "plain", "a.b"]
    streams += ["public..default..my...20topic", "public..default..plain", "other..prod..t", "..", "a..b..c..d"]
    parsed: list[str] = []
    topic_of = names.topic_of
    monkeypatch.setattr(names, "topic_of", lambda stream: parsed.append(stream) or topic_of(stream))

    topic_in = names.topics_in(namespace)
    found = [stream for stream in streams if topic_in(stream) is not None]

    assert found == [stream for stream in streams if belongs(stream)]
    assert "other..prod..t" not in parsed
    assert "acme..production..t" not in parsed


async def test_names_are_shared_until_a_stream_comes_or_goes(kafka: Node) -> None:
    catalog, topics_of_kafka = kafka.streams.catalog, kafka.server.context.topics
    filled = fill(catalog, 20, "b.")
    first = catalog.names()
    assert catalog.names() is first
    assert topics_of_kafka.names() is topics_of_kafka.names()
    gone = catalog.peek(filled[7])
    assert gone is not None
    await catalog.create("a", 1, {})
    catalog._drop(gone.stream)  # noqa: SLF001 - as the follower does
    await catalog.create("c", 1, {})

    assert list(first) == filled
    assert list(catalog.names()) == ["a", *filled[:7], *filled[8:], "c"]
    assert list(topics_of_kafka.names()) == ["__consumer_offsets", *catalog.names()]


async def test_a_list_of_all_streams_waits_for_room(rest: RestNode) -> None:
    catalog = rest.streams.catalog
    expected = fill(catalog, COUNT)
    async with AsyncExitStack() as stack:
        for who in (Principal("User", "a"), Principal("User", "b")):
            await stack.enter_async_context(catalog._lists.making(who, NAME_COUNT_MAX))  # noqa: SLF001
        turns = rest.streams.authorizer = CountingTurns()
        asking = asyncio.create_task(rest.get("/topics"))
        await until(lambda: count_of_waiting(catalog) == 1)
        assert turns.count == 0

    assert (await asking).body == expected


async def test_a_list_that_waits_too_long_is_refused(
    kafka: Node, rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_lists, "WAIT_S", 0)
    async with AsyncExitStack() as stack:
        for streams in (kafka.streams, rest.streams):
            for who in (Principal("User", "a"), Principal("User", "b")):
                await stack.enter_async_context(streams.catalog._lists.making(who, NAME_COUNT_MAX))  # noqa: SLF001
        client = await kafka.client()

        assert (await rest.get("/topics")).status == 503
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.ask(m.MetadataRequest(topics=None), 12)
