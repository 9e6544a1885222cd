"""The v3 API shows share groups, and resets their offsets: where to, the preview, the rule about members. Source: KIP-932."""

from typing import Any

import pytest

from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat
from bearlake.streams.groups.shares import ShareCoordinator
from fixtures.rest_server import Answer, MakeServers, RestNode
from fixtures.share_groups import begin_share_group

JSON = {"Content-Type": "application/json"}


def coordinator_of(node: RestNode) -> ShareCoordinator:
    return ShareCoordinator(node.streams.metadata, node.streams.coordinator.ownership)


async def join(node: RestNode, *topics: str) -> None:
    """Let a member join the share group `s`."""
    beat = Heartbeat(member_id="one", epoch=0, topics=topics, client_id="client", client_host="/127.0.0.1")
    await coordinator_of(node).beat("s", beat)


async def leave(node: RestNode) -> None:
    await coordinator_of(node).beat("s", Heartbeat(member_id="one", epoch=LEAVES))


def path(node: RestNode, below: str = "") -> str:
    return f"/v3/clusters/{node.member.cluster_id}/share-groups{below}"


async def reset(node: RestNode, **body: Any) -> Answer:
    return await node.post(path(node, "/s/offsets:reset"), {"topic_name": "t", **body}, headers=JSON)


async def starts(node: RestNode) -> list[int]:
    found = (await node.get(path(node, "/s/lags"))).body["data"]
    return [row["current_offset"] for row in found]


async def scene(node: RestNode) -> RestNode:
    """Two partitions with five records each, written on five days, and an empty share group at offset 3 of both."""
    await node.create("t", 2)
    for partition in (0, 1):
        for day in range(1, 6):
            body = {
                "partition_id": partition,
                "value": {"type": "STRING", "data": "v"},
                "timestamp": f"2026-01-0{day}T00:00:00Z",
            }
            topic = f"/v3/clusters/{node.member.cluster_id}/topics/t/records"
            assert (await node.post(topic, body, headers=JSON)).status == 200
    await begin_share_group(node.streams, "s", "t", 3)
    return node


@pytest.fixture
async def node(rest: RestNode) -> RestNode:
    return await scene(rest)


async def test_groups_members_and_lags_are_shown(node: RestNode) -> None:
    await join(node, "t")
    (listed,) = (await node.get(path(node))).body["data"]
    (member,) = (await node.get(path(node, "/s/consumers"))).body["data"]
    lags = (await node.get(path(node, "/s/lags"))).body["data"]

    assert (listed["share_group_id"], listed["state"], listed["consumer_count"]) == ("s", "STABLE", 1)
    assert (await node.get(path(node, "/s"))).body == listed
    assert (member["client_id"], member["topic_names"], member["partition_count"]) == ("client", ["t"], 2)
    shown = [(row["partition_id"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in lags]
    assert shown == [(0, 3, 5, 2), (1, 3, 5, 2)]


async def test_a_group_of_another_protocol_is_no_share_group(rest: RestNode) -> None:
    assert (await rest.post("/consumers/g", {"name": "i"})).status == 200

    assert (await rest.get(path(rest))).body["data"] == []
    assert (await rest.get(path(rest, "/g"))).status == 404


@pytest.mark.parametrize("name", ["%00", "absent", "a" * 40_000, "%ED%A0%80"])
async def test_a_name_that_no_group_has_is_not_found(rest: RestNode, name: str) -> None:
    assert (await rest.get(path(rest, f"/{name}"))).status in (400, 404, 414)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [5, 5]),
        ({"to": "offset", "offset": 4}, [4, 4]),
        ({"to": "offset", "offset": 400}, [5, 5]),
        ({"to": "timestamp", "timestamp_ms": 1_767_312_000_000}, [1, 1]),
        ({"to": "timestamp", "timestamp_ms": 4_000_000_000_000}, [5, 5]),
        ({"to": "earliest", "partition_ids": [1]}, [3, 0]),
    ],
)
async def test_offsets_move_to(node: RestNode, body: dict[str, Any], expected: list[int]) -> None:
    preview = await reset(node, **body, validate_only=True)
    before = await starts(node)
    done = await reset(node, **body)

    assert before == [3, 3]
    assert done.status == 200, done.body
    assert await starts(node) == expected
    assert done.body == preview.body
    assert [(row["current_lag"], row["new_lag"]) for row in done.body["data"]] == [
        (2, 5 - row["new_offset"]) for row in done.body["data"]
    ]


async def test_a_group_with_members_keeps_its_offsets(node: RestNode) -> None:
    await join(node, "t")
    refused = await reset(node, to="earliest")
    before = await starts(node)
    await leave(node)
    done = await reset(node, to="earliest")

    assert (refused.status, "has members" in refused.body["message"]) == (409, True)
    assert before == [3, 3]
    assert done.status == 200


async def test_a_server_that_does_not_coordinate_the_group_shows_it_and_heeds_its_members(
    rest_servers: MakeServers,
) -> None:
    first, second = await rest_servers(2)
    await scene(first)
    await second.streams.catalog.catch_up()
    await join(first, "t")
    refused = await reset(second, to="earliest")

    assert refused.status == 409
    assert await starts(second) == [3, 3]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"to": "offset"}, 400, "offset"),
        ({"to": "timestamp"}, 400, "timestamp_ms"),
        ({"to": "shift"}, 400, "to"),
        ({"to": "earliest", "partition_ids": [2]}, 404, "partition 2"),
        ({"to": "earliest", "topic_name": "u"}, 404, "u"),
    ],
)
async def test_a_request_that_names_no_place_is_refused(
    node: RestNode, body: dict[str, Any], status: int, word: str
) -> None:
    answer = await reset(node, **body)

    assert answer.status == status
    assert word in answer.body["message"]


async def test_a_stream_that_the_group_does_not_read_is_refused(node: RestNode) -> None:
    await node.create("u")
    answer = await reset(node, to="earliest", topic_name="u")

    assert (answer.status, "no offsets in topic u" in answer.body["message"]) == (404, True)
