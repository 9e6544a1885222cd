"""Topics in the lists that clients watch: equal watchers share a list, and all lists together are bounded."""

import pytest

from bearlake.errors import Overloaded
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.pulsar.watched import NOTHING, TopicList, WatchedLists
from bearlake.streams.principal import Principal
from bearlake.telemetry import metrics
from fixtures.held import held_at_most
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.waiting import until
from fixtures.waiting_lists import count_of_waiting

_WHO, _OTHER = Principal("User", "who"), Principal("User", "other")


def watch(watcher_id: int, pattern: str = ".*") -> pb.CommandWatchTopicList:
    return pb.CommandWatchTopicList(
        request_id=77, watcher_id=watcher_id, namespace="public/default", topics_pattern=pattern
    )


async def fill(node: PulsarNode, count: int) -> None:
    for number in range(count):
        await node.create(f"t{number}")


def name_count(node: PulsarNode) -> int:
    return node.server.context.watchers.name_count


async def names_after(client: PulsarClient) -> list[str]:
    update = await client.receive("watch_topic_update")
    return list(update.new_topics)


async def test_watchers_of_one_pattern_share_a_list_and_others_do_not(pulsar: PulsarNode) -> None:
    await fill(pulsar, 3)
    clients = [await pulsar.client() for _ in range(4)]

    for client in clients[:3]:
        assert len((await client.ask("watch_topic_list", watch(1))).topic) == 3
    assert name_count(pulsar) == 3
    assert len((await clients[3].ask("watch_topic_list", watch(1, ".*t0"))).topic) == 1
    assert name_count(pulsar) == 4
    await pulsar.create("t3")
    for client in clients[:3]:
        assert await names_after(client) == ["persistent://public/default/t3"]
    await until(lambda: name_count(pulsar) == 5)

    for client in clients[:2]:
        client.writer.close()
    await clients[2].ask("watch_topic_list_close", pb.CommandWatchTopicListClose(watcher_id=1))
    await until(lambda: name_count(pulsar) == 1)


async def test_a_list_beyond_the_limit_is_refused_and_its_connection_goes_on(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(watched_names_max=10)))[0]
    await fill(node, 3)
    client = await node.client()
    await client.ask("watch_topic_list", watch(1))

    refused = await client.ask("watch_topic_list", watch(2, "public/default/.*"))
    again = await (await node.client()).ask("watch_topic_list", watch(1))

    assert refused.error == pb.TooManyRequests
    assert "pulsar.watched_names_max" in refused.message
    assert len(again.topic) == 3  # the list that is there
    assert name_count(node) == 3
    assert len(node.server.context.watchers) == 2
    assert (
        await client.ask("get_topics_of_namespace", pb.CommandGetTopicsOfNamespace(namespace="public/default"))
    ).topics


async def test_a_list_that_grows_beyond_the_limit_ends_its_connection_and_no_other(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(watched_names_max=10)))[0]
    await fill(node, 3)
    small, large = await node.client(), await node.client()
    await small.ask("watch_topic_list", watch(1, ".*/t0"))
    await large.ask("watch_topic_list", watch(1))
    closed = metrics.PULSAR_CONNECTIONS_REFUSED.labels("watched_names")
    before = closed.value

    await fill_more(node)

    await until(lambda: closed.value == before + 1)
    await until(lambda: len(node.server.context.watchers) == 1)
    small.send("ping", pb.CommandPing())
    await small.receive("pong")
    assert name_count(node) == 1


async def test_a_shared_list_that_changes_counts_once_so_nobody_is_disconnected(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(watched_names_max=10)))[0]
    await fill(node, 4)
    clients = [await node.client() for _ in range(3)]
    for client in clients:
        await client.ask("watch_topic_list", watch(1))
    closed = metrics.PULSAR_CONNECTIONS_REFUSED.labels("watched_names")
    before = closed.value

    await node.create("t4")

    for client in clients:
        assert await names_after(client) == ["persistent://public/default/t4"]
    assert closed.value == before
    assert name_count(node) == 5


async def test_a_pattern_that_needs_much_memory_is_refused_and_does_not_hold_the_loop(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.ask("watch_topic_list", watch(1))

    async with held_at_most():
        refused = await client.ask("watch_topic_list", watch(2, r"\pL" * 400))

    assert refused.error == pb.NotAllowedError
    assert "pattern" in refused.message
    assert len(pulsar.server.context.watchers) == 1


async def fill_more(node: PulsarNode) -> None:
    for number in range(3, 8):
        await node.create(f"t{number}")


async def test_a_watcher_that_is_closed_while_it_waits_for_its_list_stays_closed(pulsar: PulsarNode) -> None:
    await fill(pulsar, 1)
    client = await pulsar.client()
    catalog, watchers = pulsar.streams.catalog, pulsar.server.context.watchers
    async with catalog.listing(_WHO, 10**9), catalog.listing(_OTHER, 10**9):
        client.send("watch_topic_list", watch(1))
        await until(lambda: count_of_waiting(catalog) == 1)
        client.writer.close()
        await until(lambda: not len(pulsar.server.connections))
    await until(lambda: not count_of_waiting(catalog))

    assert len(watchers) == 0
    assert watchers.name_count == 0


async def test_an_update_does_not_wait_for_a_watcher_that_waits_for_its_list(pulsar: PulsarNode) -> None:
    await fill(pulsar, 1)
    first, second = await pulsar.client(), await pulsar.client()
    await first.ask("watch_topic_list", watch(1))
    catalog = pulsar.streams.catalog
    async with catalog.listing(_WHO, 10**9), catalog.listing(_OTHER, 10**9):
        second.send("watch_topic_list", watch(1, ".*x"))
        await until(lambda: count_of_waiting(catalog) == 1)
        await pulsar.create("t9")

        assert await names_after(first) == ["persistent://public/default/t9"]
    assert list((await second.receive("watch_topic_list_success")).topic) == []


def of(owner: str, count: int, key: str = "k") -> TopicList:
    return TopicList([f"{owner}{at}" for at in range(count)], owner, (owner, key), (1, 1))


def test_one_client_has_half_of_all_names() -> None:
    lists = WatchedLists(10)
    first, second = of("a", 5, "1"), of("a", 1, "2")

    lists.replace(NOTHING, first)
    with pytest.raises(Overloaded):
        lists.replace(NOTHING, second)
    lists.replace(NOTHING, of("b", 5))
    with pytest.raises(Overloaded):
        lists.replace(NOTHING, of("c", 1))
    assert lists.name_count == 10
    lists.replace(first, second)

    assert lists.name_count == 6
    assert lists.find(first.audience, first.version) is None
    assert lists.find(second.audience, second.version) is second


def test_a_list_is_forgotten_with_its_last_watcher() -> None:
    lists = WatchedLists(10)
    shared = of("a", 4)
    for _ in range(3):
        lists.replace(NOTHING, shared)
    lists.replace(shared, shared)

    for left in (2, 1, 0):
        assert lists.name_count == 4
        lists.replace(shared, NOTHING)
        assert shared.user_count == left

    assert lists.name_count == 0
    assert lists.find(shared.audience, shared.version) is None
