"""The v3 API resets a group's offsets: where to, the preview, the rule about members. Source: KIP-122."""

from typing import Any

import pytest

from bearlake.metadata.model import CommittedOffset
from bearlake.streams.groups.model import MemberRef
from fixtures.rest_server import Answer, RestNode

JSON = {"Content-Type": "application/json"}


async def reset(rest: RestNode, **body: Any) -> Answer:
    path = f"/v3/clusters/{rest.member.cluster_id}/consumer-groups/g/offsets:reset"
    return await rest.post(path, {"topic_name": "t", **body}, headers=JSON)


async def committed(rest: RestNode) -> list[int | None]:
    view = rest.streams.catalog.peek("t")
    assert view is not None
    found = await rest.streams.groups.offsets("g")
    return [found[key].offset if key in found else None for key in view.partitions()]


@pytest.fixture
async def node(rest: RestNode) -> RestNode:
    """Two partitions with five records each, written on five days, and a group that has committed offset 3 of the first."""
    await rest.create("t", 2)
    path = f"/v3/clusters/{rest.member.cluster_id}/topics/t/records"
    for partition in (0, 1):
        for day in range(1, 6):
            body = {
                "partition_id": partition,
                "value": {"type": "STRING", "data": "v"},
                "timestamp": f"2026-01-0{day}T00:00:00Z",
            }
            assert (await rest.post(path, body, headers=JSON)).status == 200
    view = rest.streams.catalog.peek("t")
    assert view is not None
    await rest.streams.groups.commit(MemberRef(group="g"), {view.partition(0): CommittedOffset(offset=3)})
    return rest


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [5, 5]),
        ({"to": "offset", "offset": 4}, [4, 4]),
        ({"to": "offset", "offset": 400}, [5, 5]),
        ({"to": "shift", "shift": -2}, [1, None]),
        ({"to": "shift", "shift": -20}, [0, None]),
        ({"to": "shift", "shift": 20}, [5, None]),
        ({"to": "timestamp", "timestamp_ms": 1_767_312_000_000}, [1, 1]),
        ({"to": "timestamp", "timestamp_ms": 4_000_000_000_000}, [5, 5]),
        ({"to": "earliest", "partition_ids": [1]}, [3, 0]),
    ],
)
async def test_offsets_move_to(node: RestNode, body: dict[str, Any], expected: list[int | None]) -> None:
    answer = await reset(node, **body)

    assert answer.status == 200, answer.body
    assert await committed(node) == expected


async def test_a_reset_is_in_the_audit_log_and_a_preview_is_not(
    node: RestNode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="bearlake.audit"):
        for is_preview in (True, False):
            assert (await reset(node, to="earliest", validate_only=is_preview)).status == 200

    lines = [vars(record) for record in caplog.records if record.name == "bearlake.audit"]
    assert [(line["operation"], line["resource"], line["outcome"], line["detail"]) for line in lines] == [
        ("Alter", "Group:g", "done", "offsets of t to earliest")
    ]


async def test_a_preview_shows_what_would_move_and_moves_nothing(node: RestNode) -> None:
    answer = await reset(node, to="earliest", validate_only=True)

    assert answer.body["data"] == [
        {
            "consumer_group_id": "g",
            "topic_name": "t",
            "partition_id": partition,
            "current_offset": current,
            "new_offset": 0,
            "start_offset": 0,
            "log_end_offset": 5,
            "current_lag": lag,
            "new_lag": 5,
        }
        for partition, current, lag in ((0, 3, 2), (1, None, None))
    ]
    assert await committed(node) == [3, None]


async def test_a_group_with_members_keeps_its_offsets(node: RestNode) -> None:
    member = "/consumers/g/instances/i"
    assert (await node.post("/consumers/g", {"name": "i"})).status == 200
    assert (await node.post(f"{member}/subscription", {"topics": ["t"]})).status == 204
    assert (await node.get(f"{member}/records?timeout=1")).status == 200
    while not (await node.get(f"{member}/assignments")).body["partitions"]:
        pass
    before = await committed(node)
    refused = await reset(node, to="earliest")
    assert (await node.delete(member)).status == 204
    done = await reset(node, to="earliest")

    assert (refused.status, "has members" in refused.body["message"]) == (409, True)
    assert before[0] == 3
    assert done.status == 200


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"to": "offset"}, 400, "offset"),
        ({"to": "shift"}, 400, "shift"),
        ({"to": "timestamp"}, 400, "timestamp_ms"),
        ({"to": "somewhere"}, 400, "to"),
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
    assert await committed(node) == [3, None]


async def test_a_group_that_nobody_has_used_is_not_made(rest: RestNode) -> None:
    await rest.create("t")

    assert (await reset(rest, to="earliest")).status == 404
    assert await rest.streams.groups.all() == []
