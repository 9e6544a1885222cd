"""Consumers and groups of very many streams: complete answers, in turns of the event loop or in a thread."""

import asyncio
import json
import re
from collections.abc import Collection
from typing import Any

import pytest

from bearlake.index.tail import PartitionTail, TailIndex
from bearlake.metadata.model import CommittedOffset, Located, PartitionBounds, PartitionKey, Stream
from bearlake.metadata.transactions import Isolation
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.rest.proxy.consumer import Consumer
from bearlake.streams.catalog import Catalog
from bearlake.streams.fetch import FetchRange
from bearlake.streams.groups import assignment
from bearlake.streams.offsets import LOOKUPS_AT_ONCE, OffsetQuestion, OffsetSpec
from bearlake.streams.service import Streams
from bearlake.streams.turns import AT_ONCE
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.kafka_server import Node
from fixtures.rest_consumer import Client
from fixtures.rest_server import RestNode
from fixtures.turns import CountingTurns, fill

COUNT = 2_500
MANY = 20_000
LARGE = 100_000


class Listed(list[str]):
    """A list that must not be searched, because that takes as long as it is."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError("searched")


@pytest.mark.parametrize("protocol", assignment.PROTOCOLS)
def test_an_assignment_takes_no_search_of_each_stream_in_each_subscription(protocol: str) -> None:
    names = ["a", "b", "c"]

    found = assignment.assign(protocol, {"one": Listed(names), "two": Listed(["b"])}, dict.fromkeys(names, 2))

    assert sorted(found["one"]) in (["a", "b", "c"], ["a", "c"])
    assert sorted(found["one"].get("b", []) + found["two"]["b"]) == [0, 1]


def offsets_everywhere(streams: Streams, monkeypatch: pytest.MonkeyPatch, offset: int = 3) -> None:
    """Let every group have an offset in every partition, and every stream exist, as a store would answer."""
    everywhere = {PartitionKey(view.first_key): CommittedOffset(offset=offset) for view in streams.catalog.views()}

    async def offsets(
        name: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        return dict(everywhere) if partitions is None else {key: CommittedOffset(offset=offset) for key in partitions}

    async def bounds(partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        return {key: PartitionBounds(0, 10, 10) for key in partitions}

    async def refresh(numbers: Collection[int]) -> list[Stream]:
        return [view.stream for view in map(streams.catalog.peek_number, numbers) if view is not None]

    monkeypatch.setattr(streams.catalog, "refresh", refresh)
    monkeypatch.setattr(type(streams.coordinator), "offsets", lambda groups, *asked: offsets(*asked))
    monkeypatch.setattr(streams, "bounds", bounds)


# -- consumers of REST ----------------------------------------------------------------------------------------------


async def consumer_of(rest: RestNode) -> tuple[Client, Consumer]:
    client = await Client.create(rest)
    (consumer,) = rest.server._proxy.consumers._instances.values()  # noqa: SLF001 - to join when the test says
    return client, consumer


async def test_streams_are_compared_with_a_pattern_in_turns(rest: RestNode) -> None:
    expected = fill(rest.streams.catalog, COUNT)
    client, _ = await consumer_of(rest)
    await rest.post(f"{client.base}/subscription", {"topic_pattern": "many.*"})
    turns = rest.streams.authorizer = CountingTurns()

    body = (await rest.get(f"{client.base}/subscription")).body

    assert body["topics"] == expected
    assert turns.count >= COUNT
    assert turns.most <= AT_ONCE + 10


async def test_a_consumer_of_many_streams_joins_and_moves_without_holding_the_loop(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fill(rest.streams.catalog, MANY)
    _, consumer = await consumer_of(rest)
    offsets_everywhere(rest.streams, monkeypatch)
    await consumer.subscribe([], re.compile("many.*"))

    async with held_at_most(2 * LIMIT_S):
        assert await consumer.await_assignment(60_000)
        positions = {(name, 0): 7 for name in expected}
        await consumer.seek(positions)
        consumer.move(positions)

    assert consumer.assigned == list(positions)


async def test_rights_of_a_consumer_of_many_streams_are_checked_in_turns(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fill(rest.streams.catalog, COUNT)
    client, consumer = await consumer_of(rest)
    consumer.assign([(name, 0) for name in expected])
    turns = rest.streams.authorizer = CountingTurns()

    await rest.post(f"{client.base}/offsets")

    assert turns.count >= COUNT
    assert turns.most <= AT_ONCE + 10


async def test_a_consumer_of_many_partitions_polls_without_holding_the_loop(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fill(rest.streams.catalog, MANY)
    _, consumer = await consumer_of(rest)
    offsets_everywhere(rest.streams, monkeypatch, offset=10)
    bounds_everywhere(rest.streams, monkeypatch)
    consumer.assign([(name, 0) for name in expected])
    consumer.move({(name, 0): 10 for name in expected})

    async with held_at_most(LIMIT_S):
        assert await consumer.records(0, 1 << 20) == []


async def test_the_assignments_of_a_consumer_are_listed_in_turns(rest: RestNode) -> None:
    expected = fill(rest.streams.catalog, LARGE)
    client, consumer = await consumer_of(rest)
    consumer.assign([(name, 0) for name in reversed(expected)])

    async with held_at_most(LIMIT_S), rest.session.get(client.base + "/assignments") as response:
        body = await response.read()

    shown = json.loads(body)["partitions"]
    assert shown == [{"topic": name, "partition": 0} for name in expected]


# -- reads ----------------------------------------------------------------------------------------------------------


def bounds_everywhere(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every partition have the offsets 0 to 10, as a store would answer."""

    async def bounds(partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        return {key: PartitionBounds(0, 10, 10) for key in partitions}

    async def isolation(partitions: Collection[PartitionKey]) -> dict[PartitionKey, Isolation]:
        return {key: Isolation(position=0, start=0, end=10) for key in partitions}

    monkeypatch.setattr(streams.metadata.log, "bounds", bounds)
    monkeypatch.setattr(streams.metadata.transactions, "isolation", isolation)


async def test_a_fetch_over_many_partitions_runs_in_turns(rest: RestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(rest.streams.catalog, COUNT)
    bounds_everywhere(rest.streams, monkeypatch)
    turns, get = CountingTurns(), TailIndex.get

    def counted(index: TailIndex, partition: PartitionKey) -> PartitionTail | None:
        turns.tick()
        return get(index, partition)

    monkeypatch.setattr(TailIndex, "get", counted)
    ranges = [FetchRange(view.first_key, 10, 1000) for view in rest.streams.catalog.views()]

    found = await rest.streams.fetch(ranges, bytes_min=1, bytes_max=1 << 20, wait_ms=0)

    assert [(item.range, item.start, item.end) for item in found] == [(asked, 0, 10) for asked in ranges]
    assert turns.count >= COUNT
    assert turns.most <= 6 * AT_ONCE  # the reader asks for each partition a few times


async def test_offsets_by_time_are_looked_up_some_at_a_time(rest: RestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0

    async def locate(partition: PartitionKey, timestamp: int) -> Located:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return Located(slices=[], bounds=PartitionBounds(0, 10, 10), position=0)

    monkeypatch.setattr(rest.streams.metadata.log, "locate_timestamp", locate)
    bounds_everywhere(rest.streams, monkeypatch)
    questions = [
        OffsetQuestion(PartitionKey(key), timestamp)
        for key in range(COUNT)
        for timestamp in (int(OffsetSpec.LATEST), 5, int(OffsetSpec.EARLIEST))
    ]

    answers = await rest.streams.offsets(questions)

    assert [answer.offset for answer in answers] == [10, -1, 0] * COUNT
    assert most == LOOKUPS_AT_ONCE


# -- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 5, 7, 8, 10])
async def test_kafka_lists_all_offsets_of_a_group_in_turns(
    kafka: Node, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    names = fill(kafka.streams.catalog, COUNT)
    client = await kafka.client()
    offsets_everywhere(kafka.streams, monkeypatch)
    turns = kafka.streams.authorizer = CountingTurns()
    has_many, has_all = version >= 8, version >= 2
    topics = None if has_all else [m.OffsetFetchRequest.Topic(name=name, partition_indexes=[0]) for name in names]
    groups = [m.OffsetFetchRequest.Group(group_id="g", topics=None)] if has_many else []

    answer = await client.ask(m.OffsetFetchRequest(group_id="g", topics=topics, groups=groups), version)

    found = answer.groups[0].topics if has_many else answer.topics
    views = kafka.streams.catalog
    shown = [views.peek_id(topic.topic_id).name if version >= 10 else topic.name for topic in found]  # type: ignore[union-attr]
    assert shown == names
    assert {(item.partition_index, item.committed_offset) for topic in found for item in topic.partitions} == {(0, 3)}
    assert turns.count >= COUNT
    assert turns.most <= AT_ONCE + 10


async def test_kafka_encodes_many_offsets_in_a_thread(kafka: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(kafka.streams.catalog, 3 * MANY)
    client = await kafka.client()
    offsets_everywhere(kafka.streams, monkeypatch)
    request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.Group(group_id="g", topics=None)])
    client.send(request, 8)
    await client.receive_frame()

    async with held_at_most(LIMIT_S):
        client.send(request, 8)
        await client.receive_frame()


async def group_with_offsets_everywhere(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], str, CountingTurns]:
    """Make a group with offsets in all streams; returns the streams, the cluster's id, and what counts turns from now on."""
    expected = fill(rest.streams.catalog, COUNT)
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    client, _ = await consumer_of(rest)
    await rest.post(f"{client.base}/subscription", {"topics": expected[:1]})
    await client.poll(0)
    offsets_everywhere(rest.streams, monkeypatch)
    turns = rest.streams.authorizer = CountingTurns()
    return expected, cluster, turns


@pytest.mark.parametrize("what", ["lags", "lag-summary"])
async def test_rest_lists_the_lags_of_a_group_in_turns(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    expected, cluster, turns = await group_with_offsets_everywhere(rest, monkeypatch)

    body: Any = (await rest.get(f"/v3/clusters/{cluster}/consumer-groups/g/{what}")).body

    if what == "lags":
        assert [(lag["topic_name"], lag["lag"]) for lag in body["data"]] == [(name, 7) for name in expected]
    else:
        assert (body["max_lag"], body["total_lag"], body["max_lag_topic_name"]) == (7, 7 * COUNT, expected[0])
    assert turns.count >= COUNT
    assert turns.most <= AT_ONCE + 10


async def test_one_lag_of_a_group_is_found_without_the_others(rest: RestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, cluster, turns = await group_with_offsets_everywhere(rest, monkeypatch)
    path = f"/v3/clusters/{cluster}/consumer-groups/g/lags"

    found = await rest.get(f"{path}/{expected[9]}/partitions/0")
    missing = [await rest.get(f"{path}/{expected[9]}/partitions/{index}") for index in ("1", "00")]

    assert (found.status, found.body["lag"]) == (200, 7)
    assert [answer.status for answer in missing] == [404, 404]
    assert turns.count < 20


# -- the catalog ----------------------------------------------------------------------------------------------------


async def test_the_catalog_is_loaded_and_refreshed_in_turns(rest: RestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        await rest.streams.catalog.create(f"t{number:03}", 1, {})
    store, turns = rest.streams.metadata.streams, CountingTurns()
    catalog = Catalog(store, 10_000)
    put = Catalog._put  # noqa: SLF001

    def counted(target: Catalog, stream: Any) -> Any:
        if target is catalog:
            turns.tick()
        return put(target, stream)

    monkeypatch.setattr(Catalog, "_put", counted)

    await catalog.load(1_000_000)
    names = list(catalog.names())
    refreshed = await catalog.refresh([view.stream.number for view in catalog.views()])

    assert names == [f"t{number:03}" for number in range(1000)]
    assert [stream.name for stream in refreshed] == names
    assert turns.count == 2000
    assert turns.most <= 3 * AT_ONCE  # the store in memory does not wait between the end of a walk and the next


async def test_a_stream_that_is_deleted_during_a_load_stays_deleted(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that lists the stream was read before its deletion."""
    for name in ("a", "b", "c"):
        await rest.streams.catalog.create(name, 1, {})
    store = rest.streams.metadata.streams
    catalog = Catalog(store, 100)
    await catalog.load(0)
    listing = store.list

    async def late(**options: Any) -> Any:
        page = await listing(**options)
        await catalog.delete((await catalog.find("b")).stream)
        return page

    monkeypatch.setattr(store, "list", late)

    await catalog.load(0)

    assert list(catalog.names()) == ["a", "c"]
