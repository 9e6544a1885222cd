"""A reset moves each partition at the server that dispatches it: some may move and others not, and answer and audit log name both."""

import asyncio
import logging

import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import dispatch_lease
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.moving import goal_of, move_each
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.groups.shares import ShareCoordinator
from fixtures.rest_server import RestNode

JSON = {"Content-Type": "application/json"}


async def write(node: RestNode, topic: str, partition: int, count: int) -> None:
    body = {"partition_id": partition, "value": {"type": "STRING", "data": "v"}}
    for _ in range(count):
        path = f"/v3/clusters/{node.member.cluster_id}/topics/{topic}/records"
        assert (await node.post(path, body, headers=JSON)).status == 200


async def subscribe(node: RestNode, topic: str, name: str) -> None:
    cursors = node.streams.metadata.cursors
    for partition in (await node.streams.catalog.resolve(topic)).partitions():
        count = await cursors.deletion_count(partition)
        await cursors.create(partition, name, mark_delete=0, properties={}, after=count)


async def dispatch_elsewhere(node: RestNode, topic: str, index: int) -> None:
    """Let a server that answers nobody dispatch the partition."""
    endpoints = {"rest": "127.0.0.1:1", "admin": "127.0.0.1:1"}
    silent = ServerSettings(name="silent", timeout_ms=600_000)
    member = await RegisteredServer.join(node.metadata.servers, silent, endpoints)
    partition = (await node.streams.catalog.resolve(topic)).partition(index)
    await node.metadata.leases.acquire(dispatch_lease(partition), member.server)
    await node.member.refresh()


async def positions(node: RestNode, topic: str) -> list[int]:
    path = f"/v3/clusters/{node.member.cluster_id}/topics/{topic}/subscriptions/sub/lags"
    return [row["current_offset"] for row in (await node.get(path)).body["data"]]


async def test_a_partition_that_cannot_move_is_named_with_those_that_have(
    rest: RestNode, caplog: pytest.LogCaptureFixture
) -> None:
    await rest.create("t", 3)
    for index in range(3):
        await write(rest, "t", index, 4)
    await subscribe(rest, "t", "sub")
    await dispatch_elsewhere(rest, "t", 1)
    path = f"/v3/clusters/{rest.member.cluster_id}/topics/t/subscriptions/sub/offsets:reset"

    with caplog.at_level(logging.INFO, logger="bearlake.audit"):
        answer = await rest.post(path, {"to": "offset", "offset": 2}, headers=JSON)

    assert answer.status == 503
    assert "moved partitions 0, 2, not partition 1: " in answer.body["message"]
    assert await positions(rest, "t") == [2, 0, 2]
    (line,) = [vars(record) for record in caplog.records if record.name == "bearlake.audit"]
    assert (line["outcome"], line["detail"]) == ("unknown", "reset to offset 2; moved partitions 0, 2")


async def test_a_share_groups_partitions_that_have_moved_are_named_too(
    rest: RestNode, caplog: pytest.LogCaptureFixture
) -> None:
    await rest.create("t", 2)
    for index in range(2):
        await write(rest, "t", index, 4)
    await dispatch_elsewhere(rest, "t", 1)
    number = (await rest.streams.catalog.resolve("t")).stream.number
    coordinator = ShareCoordinator(rest.streams.metadata, rest.streams.coordinator.ownership)
    await coordinator.note_streams("s", {number: 2})
    path = f"/v3/clusters/{rest.member.cluster_id}/share-groups/s/offsets:reset"

    with caplog.at_level(logging.INFO, logger="bearlake.audit"):
        answer = await rest.post(path, {"topic_name": "t", "to": "timestamp", "timestamp_ms": 5}, headers=JSON)

    assert answer.status == 503
    assert "moved partition 0, not partition 1: " in answer.body["message"]
    (line,) = [vars(record) for record in caplog.records if record.name == "bearlake.audit"]
    assert line["detail"] == "share group offsets of t to time 5; moved partition 0"


async def test_after_a_failure_moves_under_way_end_and_no_others_begin() -> None:
    begun: list[int] = []
    ended: list[int] = []
    targets = {PartitionKey(index): 7 for index in range(40)}

    async def move(key: PartitionKey, offset: int) -> None:
        begun.append(int(key))
        if key == 3:
            raise Unavailable("it moves")
        await asyncio.sleep(0)
        ended.append(int(key))

    noted: list[str] = []
    with pytest.raises(Unavailable, match=r"moved partitions 0-2, 4-15, not partitions 3, 16-39: it moves; a repeat"):
        await move_each(targets, move, noted)

    assert begun == list(range(16))
    assert ended == [*range(3), *range(4, 16)]
    assert noted == ["moved partitions 0-2, 4-15"]


async def test_a_subscription_that_is_gone_in_some_partitions_is_not_found_there() -> None:
    async def move(key: PartitionKey, offset: int) -> None:
        if key == 1:
            raise NotFound("no subscription 'sub'")

    with pytest.raises(NotFound, match="moved partition 0, not partition 1: no subscription 'sub'"):
        await move_each({PartitionKey(0): 1, PartitionKey(1): 1}, move, [])


@pytest.mark.parametrize(
    ("asked", "goal"),
    [
        (models.SubscriptionReset(to="earliest"), "to earliest"),
        (models.SubscriptionReset(to="offset", offset=5, partition_ids=[4, 0, 1, 2]), "to offset 5, partitions 0-2, 4"),
        (models.ShareReset(topic_name="t", to="timestamp", timestamp_ms=12), "to time 12"),
        (models.Reset(topic_name="t", to="shift", shift=-3, partition_ids=[9]), "by -3 records, partition 9"),
    ],
)
def test_the_audit_log_says_where_a_reset_moves_offsets(
    asked: models.Reset | models.ShareReset | models.SubscriptionReset, goal: str
) -> None:
    assert goal_of(asked) == goal
