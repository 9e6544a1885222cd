"""The v3 API shows Pulsar subscriptions: those of all topics, and where one of them is, without what was acknowledged out of order."""

from urllib.parse import quote

from bearlake.metadata.subscriptions import CursorSave, CursorUpdate, dispatch_lease, pack_ranges
from fixtures.rest_server import RestNode
from fixtures.share_groups import begin_share_group

JSON = {"Content-Type": "application/json"}


async def subscribe(node: RestNode, topic: str, name: str, mark_delete: int = 0) -> None:
    """Create a subscription in each partition of the topic."""
    cursors = node.streams.metadata.cursors
    for partition in (await node.streams.catalog.resolve(topic)).partitions():
        count = await cursors.deletion_count(partition)
        await cursors.create(partition, name, mark_delete=mark_delete, properties={}, after=count)


async def write(node: RestNode, topic: str, partition: int, count: int) -> None:
    body = {"partition_id": partition, "value": {"type": "STRING", "data": "v"}}
    path = f"/v3/clusters/{node.member.cluster_id}/topics/{topic}/records"
    for _ in range(count):
        assert (await node.post(path, body, headers=JSON)).status == 200


async def test_subscriptions_of_all_topics_are_listed_without_share_groups(rest: RestNode) -> None:
    for topic in ("a", "b", "c"):
        await rest.create(topic, 2)
    await subscribe(rest, "a", "one")
    await subscribe(rest, "a", "two")
    await subscribe(rest, "c", "one")
    await begin_share_group(rest.streams, "s", "b", 0)

    found = (await rest.get(f"/v3/clusters/{rest.member.cluster_id}/subscriptions")).body["data"]

    shown = sorted((row["topic_name"], row["subscription_name"]) for row in found)
    assert shown == [("a", "one"), ("a", "two"), ("c", "one")]
    lags = {row["lags"]["related"].partition("/v3/")[2] for row in found}
    for path in lags:
        assert (await rest.get(f"/v3/{path}")).status == 200


async def test_the_lag_leaves_out_what_was_acknowledged_above_the_position(rest: RestNode) -> None:
    await rest.create("t", 2)
    await write(rest, "t", 0, 6)
    await write(rest, "t", 1, 2)
    await subscribe(rest, "t", "sub")
    partition = (await rest.streams.catalog.resolve("t")).partition(0)
    metadata, server = rest.streams.metadata, rest.member.server
    lease = await metadata.leases.acquire(dispatch_lease(partition), server)
    (cursor,) = await metadata.cursors.load(partition)
    update = CursorUpdate("sub", 1, pack_ranges(1, [(3, 5)]), 1, None, cursor.generation)
    assert not (await metadata.cursors.save([CursorSave(partition, [update], lease)])).unsaved

    path = f"/v3/clusters/{rest.member.cluster_id}/topics/t/subscriptions"
    found = (await rest.get(f"{path}/sub/lags")).body["data"]

    shown = [(row["partition_id"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in found]
    assert shown == [(0, 1, 6, 3), (1, 0, 2, 2)]
    assert (await rest.get(f"{path}/other/lags")).status == 404


async def test_a_reset_moves_the_named_partitions_after_a_preview(rest: RestNode) -> None:
    await rest.create("t", 2)
    await write(rest, "t", 0, 6)
    await write(rest, "t", 1, 3)
    await subscribe(rest, "t", "sub", 1)
    base = f"/v3/clusters/{rest.member.cluster_id}/topics/t/subscriptions"

    async def reset(**asked: object) -> list[tuple[int, int, int, int]]:
        answer = await rest.post(f"{base}/sub/offsets:reset", asked, headers=JSON)
        assert answer.status == 200, answer.body
        return [
            (row["partition_id"], row["current_offset"], row["new_offset"], row["new_lag"])
            for row in answer.body["data"]
        ]

    async def positions() -> list[int]:
        return [row["current_offset"] for row in (await rest.get(f"{base}/sub/lags")).body["data"]]

    assert await reset(to="offset", offset=4, validate_only=True) == [(0, 1, 4, 2), (1, 1, 3, 0)]
    assert await positions() == [1, 1]
    assert await reset(to="offset", offset=4, partition_ids=[0]) == [(0, 1, 4, 2)]
    assert await positions() == [4, 1]
    assert await reset(to="latest") == [(0, 4, 6, 0), (1, 1, 3, 0)]
    assert await reset(to="timestamp", timestamp_ms=0, partition_ids=[1]) == [(1, 3, 0, 3)]
    assert await reset(to="earliest") == [(0, 6, 0, 6), (1, 0, 0, 3)]
    assert await positions() == [0, 0]
    for path, asked, status in (
        (f"{base}/absent/offsets:reset", {"to": "latest"}, 404),
        (f"{base}/sub/offsets:reset", {"to": "latest", "partition_ids": [7]}, 404),
        (f"{base}/sub/offsets:reset", {"to": "offset"}, 400),
        (f"{base}/sub/offsets:reset", {"to": "shift", "shift": 1}, 400),
    ):
        assert (await rest.post(path, asked, headers=JSON)).status == status, path


async def test_a_share_group_is_no_subscription_that_can_be_reset(rest: RestNode) -> None:
    await rest.create("t", 1)
    await begin_share_group(rest.streams, "s", "t", 0)
    partition = (await rest.streams.catalog.resolve("t")).partition(0)
    (cursor,) = await rest.streams.metadata.cursors.load(partition)
    path = f"/v3/clusters/{rest.member.cluster_id}/topics/t/subscriptions/{quote(cursor.name, safe='')}/offsets:reset"

    assert (await rest.post(path, {"to": "latest"}, headers=JSON)).status == 404
