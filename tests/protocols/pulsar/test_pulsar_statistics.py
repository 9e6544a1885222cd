"""Statistics and changes of topics through the admin API, for one partition and for all, on one server and on several."""

import aiohttp
import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from fixtures.pulsar_http import Call, ask, filled
from fixtures.pulsar_server import Make, PulsarNode

T = "/admin/v2/persistent/public/default/t"


async def test_a_topics_statistics_name_its_producers_and_consumers(pulsar: PulsarNode, call: Call) -> None:
    await filled(pulsar, "t", 3)
    client = await pulsar.client()
    await client.subscribe("t", consumer_name="reading", metadata=[{"key": "team", "value": "blue"}])
    client.flow(2)
    first, _, _ = await client.receive_message()
    await client.receive_message()
    client.send("ack", pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[first.message_id]))

    status, stats = await call("GET", f"{T}/stats")

    assert status == 200
    assert (stats["msgInCounter"], stats["msgOutCounter"], stats["deduplicationStatus"]) == (3, 2, "Enabled")
    assert stats["storageSize"] > 100
    (publisher,) = stats["publishers"]
    assert (publisher["producerId"], publisher["accessMode"], publisher["clientVersion"]) == (1, "Shared", "test")
    assert publisher["address"].startswith("127.0.0.1:")
    found = stats["subscriptions"]["s"]
    assert (found["type"], found["msgBacklog"], found["activeConsumerName"]) == ("Exclusive", 2, "reading")
    (consumer,) = found["consumers"]
    assert (consumer["consumerName"], consumer["availablePermits"]) == ("reading", 0)
    assert consumer["metadata"] == {"team": "blue"}
    assert consumer["address"].startswith("127.0.0.1:")
    assert consumer["connectedSince"].startswith("20")


async def test_consumers_of_key_shared_subscriptions_have_slots(pulsar: PulsarNode, call: Call) -> None:
    client = await pulsar.client()
    await client.subscribe("t", sub_type=pb.CommandSubscribe.Key_Shared)

    _, stats = await call("GET", f"{T}/stats")

    assert stats["subscriptions"]["s"]["consumers"][0]["keyHashRanges"] == ["[0, 65535]"]


async def test_reading_statistics_does_not_take_a_partition_over(
    pulsar_cluster: Make, session: aiohttp.ClientSession
) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t")
    await filled(cluster[0], "t", 3)
    await ask(session, cluster[0], "PUT", f"{T}/subscription/s", "earliest")
    await cluster[0].server.drain(1_000)  # no server has the subscription now

    status, stats = await ask(session, cluster[1], "GET", f"{T}/stats")

    assert (status, stats["subscriptions"]["s"]["msgBacklog"], stats["subscriptions"]["s"]["type"]) == (200, 3, "None")
    partition = (await cluster[1].streams.catalog.find("t")).partition(0)
    assert await cluster[1].streams.subscriptions.holder(partition) is None


async def test_statistics_of_a_partitioned_topic_add_up_over_servers(
    pulsar_cluster: Make, session: aiohttp.ClientSession
) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t", 3)
    for index in range(3):
        await filled(cluster[0], f"t-partition-{index}", index + 1)
    for index, node in enumerate(cluster.nodes):
        await (await node.client()).subscribe(f"t-partition-{index}", "s", consumer_name=f"c{index}")

    for node in cluster.nodes:
        status, stats = await ask(session, node, "GET", f"{T}/partitioned-stats")

        assert (status, stats["metadata"], stats["msgInCounter"]) == (200, {"partitions": 3}, 6)
        assert stats["subscriptions"]["s"]["msgBacklog"] == 3
        assert sorted(consumer["consumerName"] for consumer in stats["subscriptions"]["s"]["consumers"]) == ["c0", "c1"]
        parts = [f"persistent://public/default/t-partition-{index}" for index in range(3)]
        assert [stats["partitions"][part]["msgInCounter"] for part in parts] == [1, 2, 3]
        _, internal = await ask(session, node, "GET", f"{T}/partitioned-internalStats")
        assert [internal["partitions"][part]["numberOfEntries"] for part in parts] == [1, 2, 3]
    _, short = await ask(session, cluster[0], "GET", f"{T}/partitioned-stats?perPartition=false")
    assert (short["partitions"], short["msgInCounter"]) == ({}, 6)


async def test_statistics_of_partitions_need_a_partitioned_topic(call: Call) -> None:
    await call("PUT", T)

    for what in ("partitioned-stats", "partitioned-internalStats"):
        assert (await call("GET", f"{T}/{what}"))[0] == 404
        assert (await call("GET", f"/admin/v2/persistent/public/default/missing/{what}"))[0] == 404


async def test_statistics_are_unavailable_if_a_dispatcher_does_not_answer(
    pulsar_cluster: Make, session: aiohttp.ClientSession
) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t", 2)
    await (await cluster[0].client()).subscribe("t-partition-0")
    await cluster[0].http.close()

    status, answer = await ask(session, cluster[1], "GET", f"{T}/partitioned-stats")

    assert status == 503
    assert "did not answer" in answer["reason"]


@pytest.mark.parametrize("place", [0, 1])
async def test_each_dispatcher_executes_requests_for_a_partitioned_topic(
    pulsar_cluster: Make, session: aiohttp.ClientSession, place: int
) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t", 3)
    for index in range(3):
        await filled(cluster[0], f"t-partition-{index}", 2)
    for index, node in enumerate(cluster.nodes):
        await (await node.client()).subscribe(f"t-partition-{index}", "s", consumer_name=f"c{index}")

    async def call(method: str, path: str, *body: object) -> int:
        status, _ = await ask(session, cluster[place], method, f"{T}/{path}", *body, max_redirects=1)
        return status

    async def backlogs(name: str) -> int:
        _, stats = await ask(session, cluster[place], "GET", f"{T}/partitioned-stats")
        return int(stats["subscriptions"][name]["msgBacklog"])

    assert await call("PUT", "subscription/a%20b", "earliest") == 204
    assert await call("PUT", "subscription/a%20b", "earliest") == 409
    assert await backlogs("a b") == 6
    assert await call("POST", "subscription/a%20b/skip_all") == 204
    assert await backlogs("a b") == 0
    assert await call("POST", "subscription/a%20b/resetcursor/0") == 204
    assert await backlogs("a b") == 6
    assert await call("POST", "subscription/a%20b/expireMessages/1") == 204
    assert await backlogs("a b") == 0
    assert await call("DELETE", "subscription/s") == 412  # every server reports the consumers
    assert await call("POST", "subscription/s/skip_all") == 404  # the third partition has none
    assert await call("DELETE", "subscription/a%20b?force=true") == 204
    assert await call("DELETE", "subscription/a%20b") == 404
