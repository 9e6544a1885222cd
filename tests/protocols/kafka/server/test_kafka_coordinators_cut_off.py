"""Servers on PostgreSQL, one of which the database does not answer: its FindCoordinator is a hint, and groups and transactions go on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import coordinators
from fixtures.kafka_server import Cluster, Make
from fixtures.postgresql_proxy import Proxy
from fixtures.waiting import WAIT_S
from protocols.kafka.server.test_kafka_consumer_groups import Member

NAMES = [f"g{number}" for number in range(300)]


@pytest.fixture
async def proxy(postgresql_url: str) -> AsyncIterator[Proxy]:
    """What is between the second server and the database."""
    proxy = Proxy(postgresql_url)
    yield proxy
    await proxy.stop()


@pytest.fixture
async def cluster(postgresql_url: str, proxy: Proxy, kafka_cluster: Make) -> AsyncIterator[Cluster]:
    """Two servers; the second one reaches the database through the proxy."""
    cluster = await kafka_cluster(1, metadata_url=postgresql_url)
    cluster.metadata_url = await proxy.start()
    await cluster.add()
    yield cluster
    proxy.passes.set()  # the second server ends as it does on a database that answers


async def found_by(cluster: Cluster, index: int, names: list[str], key_type: int = 0) -> set[tuple[int, int]]:
    """What a server answers to one request: error codes and servers."""
    request = m.FindCoordinatorRequest(coordinator_keys=names, key_type=key_type)
    answer = await (await cluster[index].client()).ask(request, 6)
    return {(item.error_code, item.node_id) for item in answer.coordinators}


async def test_many_groups_are_found_at_once_although_the_database_hangs(
    cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, cut_off = (node.member.node_id for node in cluster.nodes)
    proxy.passes.clear()

    with monkeypatch.context() as patch:
        patch.setattr(coordinators, "LOOK_UP_MS", 300)
        async with asyncio.timeout(WAIT_S):  # with a time limit per group, two minutes and more
            assert await found_by(cluster, 1, NAMES) == {(0, cut_off)}
    assert await found_by(cluster, 0, NAMES) == {(0, healthy), (0, cut_off)}
    proxy.passes.set()

    assert await found_by(cluster, 1, NAMES) == {(0, healthy), (0, cut_off)}


async def test_a_server_that_is_cut_off_names_itself_and_does_not_take_the_group_of_another(
    cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster[0].create("t")
    clients = [await node.client() for node in cluster.nodes]
    assert (await Member(clients[0], "g").join("t")).error_code == 0
    proxy.passes.clear()

    with monkeypatch.context() as patch:
        patch.setattr(coordinators, "LOOK_UP_MS", 300)
        assert await found_by(cluster, 1, ["g"]) == {(0, cluster[1].member.node_id)}
        asked = asyncio.create_task(Member(clients[1], "g").join("t"))
        await found_by(cluster, 1, ["g"])  # the join is under way
    proxy.passes.set()

    assert (await asked).error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert cluster[0].streams.coordinator.has("g")
    assert not cluster[1].streams.coordinator.has("g")
    assert await found_by(cluster, 1, ["g"]) == {(0, cluster[0].member.node_id)}
