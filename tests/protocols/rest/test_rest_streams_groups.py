"""The v3 API shows streams groups (KIP-1071) with their members and lag, and resets their offsets while they have no members."""

from typing import Any

import pytest

from bearlake.metadata.group_values import CommittedOffset
from bearlake.streams.groups.consumer.model import LEAVES
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.streams_groups import StreamsCoordinator
from bearlake.streams.groups.tasks.model import StreamsAnswer, StreamsHeartbeat, Tasks
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from bearlake.streams.service import StreamsSettings
from fixtures.rest_server import Answer, MakeServers, RestNode
from fixtures.streams_groups import stateful

JSON = {"Content-Type": "application/json"}
SETTINGS = StreamsSettings(
    groups=GroupSettings(streams=StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
)


@pytest.fixture
async def rest(rest_servers: MakeServers) -> RestNode:
    return (await rest_servers(1, writing=SETTINGS))[0]


async def beat(node: RestNode, epoch: int, **fields: Any) -> StreamsAnswer:
    """Beat as the member `one` of the streams group `words`, which reads `t`."""
    joining: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "topology": stateful("t"), "process_id": "p"}
    options = (joining if epoch == 0 else {}) | {"owned": Tasks()} | fields
    asked = StreamsHeartbeat(member_id="one", epoch=epoch, client_id="client", client_host="/127.0.0.1", **options)
    return await StreamsCoordinator(node.streams.coordinator.ownership).beat("words", asked)


def path(node: RestNode, below: str = "") -> str:
    return f"/v3/clusters/{node.member.cluster_id}/consumer-groups{below}"


async def reset(node: RestNode, **body: Any) -> Answer:
    return await node.post(path(node, "/words/offsets:reset"), {"topic_name": "t", **body}, headers=JSON)


async def scene(node: RestNode) -> int:
    """Two partitions with five records each, and a streams group that has committed offset 3 of both; returns its member's epoch."""
    await node.create("t", 2)
    for partition in (0, 1):
        for _ in range(5):
            body = {"partition_id": partition, "value": {"type": "STRING", "data": "v"}}
            topic = f"/v3/clusters/{node.member.cluster_id}/topics/t/records"
            assert (await node.post(topic, body, headers=JSON)).status == 200
    view = await node.streams.catalog.find("t")
    answer = await beat(node, 0)
    assert answer.tasks is not None
    offsets = dict.fromkeys(view.partitions(), CommittedOffset(offset=3))
    await node.streams.coordinator.commit(
        MemberRef(group="words", member_id="one", generation=answer.epoch), offsets, knows_epochs=True
    )
    return answer.epoch


async def test_streams_groups_have_their_type_members_and_lag(rest: RestNode) -> None:
    await scene(rest)

    (listed,) = (await rest.get(path(rest))).body["data"]
    (member,) = (await rest.get(path(rest, "/words/consumers"))).body["data"]
    lags = (await rest.get(path(rest, "/words/lags"))).body["data"]

    assert (listed["type"], listed["is_simple"], listed["partition_assignor"]) == ("STREAMS", False, "sticky")
    assert (member["consumer_id"], member["client_id"]) == ("one", "client")
    assert [(row["partition_id"], row["lag"], row["consumer_id"], row["client_id"]) for row in lags] == [
        (0, 2, "one", "client"),
        (1, 2, "one", "client"),
    ]


async def test_offsets_of_a_streams_group_move_when_it_has_no_members(rest: RestNode) -> None:
    epoch = await scene(rest)

    assert (await reset(rest, to="earliest")).status == 409
    await beat(rest, LEAVES)
    assert epoch > 0
    assert (await reset(rest, to="earliest")).status == 200

    lags = (await rest.get(path(rest, "/words/lags"))).body["data"]
    assert [(row["current_offset"], row["lag"], row["consumer_id"]) for row in lags] == [(0, 5, ""), (0, 5, "")]
    assert (await rest.get(path(rest, "/words"))).body["state"] == "EMPTY"


async def test_a_server_that_does_not_coordinate_the_group_shows_the_same(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(2, writing=SETTINGS)
    await scene(nodes[0])

    shown = [(await node.get(path(node, "/words/lags"))).body["data"] for node in nodes]

    assert [[row["consumer_id"] for row in rows] for rows in shown] == [["one", "one"]] * 2


@pytest.mark.parametrize("below", ["/words", "/words/consumers", "/words/lags"])
async def test_a_group_that_is_gone_is_not_found(rest: RestNode, below: str) -> None:
    assert (await rest.get(path(rest, below))).status == 404
