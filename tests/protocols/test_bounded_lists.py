"""Every list of all streams, of their partitions or of tables counts in the room for lists, and waits for it (decisions 242, 257)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.catalog import Catalog
from bearlake.streams.long_lists import NAME_COUNT_MAX
from bearlake.streams.principal import ANONYMOUS, Principal
from fixtures.catalog_server import catalog_server
from fixtures.kafka_server import Node
from fixtures.pulsar_http import ask
from fixtures.pulsar_server import PulsarNode
from fixtures.waiting import until
from fixtures.waiting_lists import count_of_waiting

SHARE = NAME_COUNT_MAX // 2


@asynccontextmanager
async def no_room(catalog: Catalog) -> AsyncIterator[None]:
    """Two clients make lists as long as they may, until the block ends."""
    async with AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(catalog.listing(Principal("User", name), SHARE))
        yield


async def waits(catalog: Catalog, request: Callable[[], Awaitable[Any]]) -> Any:
    """Return the answer, after the request has waited for room."""
    async with no_room(catalog):
        asking = asyncio.ensure_future(request())
        await until(lambda: count_of_waiting(catalog) == 1)
        assert not asking.done()
    return await asking


def sizes_of(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the lists that are made from now on."""
    found: list[int] = []
    making = catalog._lists.making  # noqa: SLF001 - what the test is about

    def counted(who: Principal, size: int) -> Any:
        found.append(size)
        return making(who, size)

    monkeypatch.setattr(catalog._lists, "making", counted)  # noqa: SLF001
    return found


HTTP = [
    "/admin/v2/tenants",
    "/admin/v2/namespaces/public",
    "/admin/v2/namespaces/public/default/topics",
    "/admin/v2/persistent/public/default",
    "/admin/v2/persistent/public/default/partitioned",
]
DELETIONS = ["/admin/v2/tenants/public", "/admin/v2/namespaces/public/default"]


@pytest.mark.parametrize("path", HTTP)
async def test_a_list_of_pulsars_http_api_waits(pulsar: PulsarNode, session: aiohttp.ClientSession, path: str) -> None:
    await pulsar.create("t", 2)

    status, found = await waits(pulsar.streams.catalog, lambda: ask(session, pulsar, "GET", path))

    assert status == 200
    assert found
    assert found == sorted(found)


@pytest.mark.parametrize("path", DELETIONS)
async def test_a_deletion_that_looks_at_all_streams_waits(
    pulsar: PulsarNode, session: aiohttp.ClientSession, path: str
) -> None:
    await pulsar.create("t")

    status, _ = await waits(pulsar.streams.catalog, lambda: ask(session, pulsar, "DELETE", path))

    assert status == 409


async def test_a_list_of_pulsars_protocol_waits(pulsar: PulsarNode) -> None:
    await pulsar.create("t")
    client = await pulsar.client()
    asked = pb.CommandGetTopicsOfNamespace(namespace="public/default")
    watched = pb.CommandWatchTopicList(watcher_id=1, namespace="public/default", topics_pattern=".*")

    names = await waits(pulsar.streams.catalog, lambda: client.ask("get_topics_of_namespace", asked))
    first = await waits(pulsar.streams.catalog, lambda: client.ask("watch_topic_list", watched))

    assert list(names.topics) == list(first.topic) == ["persistent://public/default/t"]


async def test_lists_of_partitions_count_for_the_partitions(
    pulsar: PulsarNode, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pulsar.create("t", 1_000)
    client = await pulsar.client()
    sizes = sizes_of(pulsar.streams.catalog, monkeypatch)

    for path in HTTP:
        await ask(session, pulsar, "GET", path)
    await client.ask("get_topics_of_namespace", pb.CommandGetTopicsOfNamespace(namespace="public/default"))
    await client.ask(
        "watch_topic_list",
        pb.CommandWatchTopicList(watcher_id=1, namespace="public/default", topics_pattern=".*"),
    )

    assert sizes == [1, 1, 1_000, 1_000, 1, 1_000, 1_000]


async def test_kafkas_lists_of_partitions_count_for_the_partitions(
    kafka: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kafka.streams.create(ANONYMOUS, "t", 2_500, {})
    await kafka.streams.create(ANONYMOUS, "small", 3, {})
    client = await kafka.client()
    sizes = sizes_of(kafka.streams.catalog, monkeypatch)
    named = [m.MetadataRequest.Topic(name=name) for name in ("small", "t")]

    everything = await client.ask(m.MetadataRequest(topics=None), 12)
    small = await client.ask(m.MetadataRequest(topics=named[:1]), 12)
    both = await client.ask(m.MetadataRequest(topics=named), 12)
    log_dirs = await client.ask(m.DescribeLogDirsRequest(topics=None), 4)
    two_partitions = [m.DescribeLogDirsRequest.Topic(topic="t", partitions=[0, 1])]
    await client.ask(m.DescribeLogDirsRequest(topics=two_partitions), 4)

    assert [len(topic.partitions) for topic in everything.topics if topic.name == "t"] == [2_500]
    assert [len(topic.partitions) for topic in small.topics] == [3]
    assert sorted(len(topic.partitions) for topic in both.topics) == [3, 2_500]
    assert len(log_dirs.results[0].topics) >= 2
    assert sizes == [2_503, 2_505, 2_503, 2]  # a short list of named topics does not count


async def test_a_page_of_partitions_counts_for_its_size_and_needs_no_list_of_all_names(
    kafka: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await kafka.streams.create(ANONYMOUS, name, 10, {})
    client = await kafka.client()
    sizes = sizes_of(kafka.streams.catalog, monkeypatch)
    seen: list[tuple[str, list[int]]] = []
    cursor: Any = None
    while True:
        request = m.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=7, cursor=cursor)
        page = await client.ask(request, 0)
        seen += [(topic.name, [part.partition_index for part in topic.partitions]) for topic in page.topics]
        if page.next_cursor is None:
            break
        assert sum(len(topic.partitions) for topic in page.topics) == 7
        found = page.next_cursor
        cursor = m.DescribeTopicPartitionsRequest.Cursor(
            topic_name=found.topic_name, partition_index=found.partition_index
        )

    assert [(name, index) for name, part in seen for index in part if name in "abc"] == [
        (name, index) for name in "abc" for index in range(10)
    ]
    assert set(sizes) == {7}


async def test_a_page_of_partitions_waits_for_room(kafka: Node) -> None:
    await kafka.streams.create(ANONYMOUS, "a", 1, {})
    client = await kafka.client()
    request = m.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2_000)

    page = await waits(kafka.streams.catalog, lambda: client.ask(request, 0))

    assert "a" in [topic.name for topic in page.topics]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces",
        "/v1/namespaces/streams/tables",
        "/v1/live/namespaces",
        "/v1/live/namespaces/streams/tables",
    ],
)
async def test_a_list_of_the_iceberg_catalog_waits(tmp_path: Path, path: str) -> None:
    async with catalog_server(tmp_path) as server:
        await server.stream("orders")

        answer = await waits(server.streams, lambda: server.ask("GET", path))

        assert answer.status == 200
