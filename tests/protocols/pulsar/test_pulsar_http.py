"""Pulsar's HTTP API: the requests of clients and `pulsar-admin`, and the text of refusals."""

import asyncio
import io
import json
import re
import struct
from pathlib import Path

import aiohttp
import pytest

from bearlake.kernel import crc32c
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from fixtures.pulsar_http import Call, ask, filled
from fixtures.pulsar_server import Make, PulsarNode, message_bytes

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
BROKEN = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
T = "/admin/v2/persistent/public/default/t"

# -- look-ups ----------------------------------------------------------------------------------------------------------


async def test_a_lookup_names_the_server_of_the_protocol(pulsar: PulsarNode, call: Call):
    status, answer = await call("GET", "/lookup/v2/topic/persistent/public/default/t")

    assert status == 200
    assert answer["brokerUrl"] == pulsar.url
    assert answer["httpUrl"] == pulsar.http_url


async def test_a_lookup_names_the_server_that_dispatches(pulsar_cluster: Make, session: aiohttp.ClientSession):
    cluster = await pulsar_cluster(2)
    for index, name in enumerate(["t0", "t1"]):
        await cluster[index].create(name)
        await (await cluster[index].client()).subscribe(name)

    for node in cluster.nodes:
        for index, name in enumerate(["t0", "t1"]):
            _, answer = await ask(session, node, "GET", f"/lookup/v2/topic/persistent/public/default/{name}")
            assert answer["brokerUrl"] == cluster[index].url


async def test_an_unknown_listener_is_not_ready(call: Call):
    status, answer = await call("GET", "/lookup/v2/topic/persistent/public/default/t?listenerName=outside")

    assert status == 503
    assert "outside" in answer["reason"]


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_topics_are_created_listed_and_deleted(call: Call):
    assert await call("PUT", T) == (204, None)
    assert await call("PUT", "/admin/v2/persistent/acme/prod/p/partitions", 2) == (204, None)

    assert (await call("PUT", T))[0] == 409
    assert await call("GET", "/admin/v2/persistent/public/default") == (200, ["persistent://public/default/t"])
    parts = [f"persistent://acme/prod/p-partition-{index}" for index in range(2)]
    assert await call("GET", "/admin/v2/namespaces/acme/prod/topics") == (200, parts)
    assert await call("GET", "/admin/v2/persistent/acme/prod/partitioned") == (200, ["persistent://acme/prod/p"])
    assert await call("DELETE", T) == (204, None)
    assert (await call("DELETE", "/admin/v2/persistent/acme/prod/p"))[0] == 409
    assert (await call("DELETE", "/admin/v2/persistent/acme/prod/p-partition-0"))[0] == 409
    assert await call("DELETE", "/admin/v2/persistent/acme/prod/p/partitions") == (204, None)
    assert await call("GET", "/admin/v2/persistent/acme/prod") == (200, [])


async def test_a_partitioned_topic_grows_and_never_shrinks(call: Call):
    await call("PUT", f"{T}/partitions", 1)
    assert await call("GET", f"{T}/partitions") == (200, {"partitions": 1})

    assert await call("POST", f"{T}/partitions", 3) == (204, None)

    assert await call("GET", f"{T}/partitions") == (200, {"partitions": 3})
    assert (await call("POST", f"{T}/partitions", 2))[0] == 406
    assert (await call("POST", f"{T}/partitions", 1_000_000))[0] == 412


async def test_a_topic_that_is_not_partitioned_has_no_partitions(call: Call):
    await call("PUT", T)

    assert await call("GET", f"{T}/partitions") == (200, {"partitions": 0})
    assert (await call("POST", f"{T}/partitions", 2))[0] == 409
    assert (await call("GET", "/admin/v2/persistent/public/default/missing/partitions"))[0] == 404


@pytest.mark.parametrize("body", ["{", '"two"', "true", "0", "-1", "1.5", "[]", ""])
async def test_an_invalid_number_of_partitions_is_refused(call: Call, body: str):
    status, answer = await call("PUT", f"{T}/partitions", data=body)

    assert status in (400, 412)
    assert answer["reason"]


async def test_a_topic_with_subscriptions_is_deleted_by_force_only(call: Call):
    await call("PUT", T)
    await call("PUT", f"{T}/subscription/s", "earliest")

    assert (await call("DELETE", T))[0] == 412
    assert await call("DELETE", f"{T}?force=true") == (204, None)


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def backlog(call: Call) -> int:
    _, stats = await call("GET", f"{T}/stats")
    return int(stats["subscriptions"]["s"]["msgBacklog"])


async def test_subscriptions_are_created_skipped_reset_and_deleted(pulsar: PulsarNode, call: Call):
    await filled(pulsar, "t", 5)
    s = f"{T}/subscription/s"
    assert await call("PUT", s, "earliest") == (204, None)
    assert (await call("PUT", s, "earliest"))[0] == 409
    assert await call("GET", f"{T}/subscriptions") == (200, ["s"])
    assert await backlog(call) == 5

    assert await call("POST", f"{s}/skip/2") == (204, None)
    assert await backlog(call) == 3
    assert await call("POST", f"{s}/skip_all") == (204, None)
    assert await backlog(call) == 0
    assert await call("POST", f"{s}/resetcursor/0") == (204, None)
    assert await backlog(call) == 5
    _, last = await call("GET", f"{T}/lastMessageId")
    assert await call("POST", f"{s}/resetcursor", {**last, "entryId": 3}) == (204, None)
    assert await backlog(call) == 2
    assert await call("POST", f"{s}/resetcursor", {**last, "entryId": 3, "excluded": True}) == (204, None)
    assert await backlog(call) == 1

    assert await call("DELETE", s) == (204, None)
    assert await call("GET", f"{T}/subscriptions") == (200, [])
    assert (await call("DELETE", s))[0] == 404
    assert (await call("POST", f"{s}/skip/1"))[0] == 404


async def test_messages_that_wait_for_a_subscription_can_be_peeked(
    pulsar: PulsarNode, call: Call, session: aiohttp.ClientSession
):
    client = await filled(pulsar, "t", 3)
    client.send_message(
        b"last",
        3,
        properties=[{"key": "colour", "value": "blue"}, {"key": "a b", "value": "1\r\n2"}],
        partition_key="k",
    )
    await client.receive("send_receipt")
    await call("PUT", f"{T}/subscription/s", "earliest")
    await call("POST", f"{T}/subscription/s/skip/1")

    found = []
    for position in (1, 2, 3):
        async with session.get(f"{pulsar.http_url}{T}/subscription/s/position/{position}") as response:
            found.append((await response.read(), response.headers["X-Pulsar-Message-ID"].split(":")[1]))

    assert found == [(b"m1", "1"), (b"m2", "2"), (b"last", "3")]
    assert response.headers["X-Pulsar-PROPERTY-colour"] == "blue"
    assert response.headers["X-Pulsar-partition-key"] == "k"
    assert response.headers["X-Pulsar-publish-time"] == "2023-11-14T22:13:20.000Z"
    assert (await call("GET", f"{T}/subscription/s/position/4"))[0] == 404
    assert (await call("GET", f"{T}/subscription/other/position/1"))[0] == 404
    assert await backlog(call) == 3


async def test_an_entry_is_found_by_its_id(pulsar: PulsarNode, call: Call):
    await filled(pulsar, "t", 3)
    _, last = await call("GET", f"{T}/lastMessageId")
    ledger = last["ledgerId"]

    assert await call("GET", f"{T}/ledger/{ledger}/entry/1") == (200, "m1")
    for path in (f"ledger/{ledger}/entry/3", f"ledger/{ledger + 1}/entry/1"):
        assert (await call("GET", f"{T}/{path}"))[0] == 404
    assert (await call("GET", f"{T}/ledger/x/entry/1"))[0] == 400


async def test_a_subscription_with_consumers_is_deleted_by_force_only(pulsar: PulsarNode, call: Call):
    client = await pulsar.client()
    await client.subscribe("t")

    assert (await call("DELETE", f"{T}/subscription/s"))[0] == 412
    _, stats = await call("GET", f"{T}/stats")
    assert stats["subscriptions"]["s"]["type"] == "Exclusive"
    assert len(stats["subscriptions"]["s"]["consumers"]) == 1
    assert await call("DELETE", f"{T}/subscription/s?force=true") == (204, None)


async def test_another_server_than_the_dispatcher_redirects(pulsar_cluster: Make, session: aiohttp.ClientSession):
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t")
    await (await cluster[0].client()).subscribe("t")

    async with session.get(f"{cluster[1].http_url}{T}/stats", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (307, f"{cluster[0].http_url}{T}/stats")
    status, stats = await ask(session, cluster[1], "GET", f"{T}/stats")
    assert (status, list(stats["subscriptions"])) == (200, ["s"])


async def test_subscriptions_of_a_partitioned_topic_are_those_of_all_partitions(call: Call):
    await call("PUT", f"{T}/partitions", 2)
    await call("PUT", f"{T}-partition-1/subscription/s", "latest")

    assert await call("PUT", f"{T}/subscription/s", "latest") == (204, None)

    assert await call("GET", f"{T}-partition-0/subscriptions") == (200, ["s"])
    assert await call("GET", f"{T}/subscriptions") == (200, ["s"])
    assert (await call("GET", f"{T}/stats"))[0] == 405


async def test_the_last_message_and_internal_statistics(pulsar: PulsarNode, call: Call):
    await call("PUT", T)
    _, empty = await call("GET", f"{T}/lastMessageId")
    await filled(pulsar, "t", 3)
    await call("PUT", f"{T}/subscription/s", "earliest")

    _, last = await call("GET", f"{T}/lastMessageId")
    _, stats = await call("GET", f"{T}/internalStats")

    assert (empty["entryId"], last["entryId"], last["partitionIndex"]) == (-1, 2, -1)
    assert stats["lastConfirmedEntry"] == f"{last['ledgerId']}:2"
    assert stats["cursors"]["s"]["markDeletePosition"] == f"{last['ledgerId']}:-1"


# -- schemas -----------------------------------------------------------------------------------------------------------


async def test_schemas_by_http_are_those_of_the_protocol(pulsar: PulsarNode, call: Call):
    await call("PUT", T)
    path = "/admin/v2/schemas/public/default/t"
    body = {"type": "AVRO", "schema": ORDER, "properties": {"owner": "me"}}
    assert (await call("GET", f"{path}/schema"))[0] == 404

    assert await call("POST", f"{path}/schema", body) == (200, {"version": 0})

    for version in ("", "/0"):
        status, found = await call("GET", f"{path}/schema{version}")
        assert (status, found["version"], found["type"], found["properties"]) == (200, 0, "AVRO", {"owner": "me"})
        assert json.loads(found["data"]) == json.loads(ORDER)
    assert await call("POST", f"{path}/version", body) == (200, {"version": 0})
    status, answer = await call("POST", f"{path}/compatibility", body)
    assert (status, answer["compatibility"]) == (200, True)
    broken = {**body, "schema": BROKEN}
    _, answer = await call("POST", f"{path}/compatibility", broken)
    assert not answer["compatibility"]
    assert await call("POST", f"{path}/version", broken) == (200, {"version": -1})
    assert (await call("POST", f"{path}/schema", broken))[0] == 409
    assert (await call("GET", f"{path}/schema/1"))[0] == 404
    client = await pulsar.client()
    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="t"))
    assert answer.schema_version == bytes(8)


async def test_deleted_schemas_are_not_found_by_their_versions(call: Call):
    await call("PUT", T)
    path = "/admin/v2/schemas/public/default/t/schema"
    body = {"type": "AVRO", "schema": ORDER}
    assert (await call("DELETE", path))[0] == 404
    await call("POST", path, body)

    assert await call("DELETE", path) == (200, {"version": 0})

    assert (await call("DELETE", path))[0] == 404
    assert ((await call("GET", path))[0], (await call("GET", f"{path}/0"))[0]) == (404, 404)
    assert await call("DELETE", f"{path}?force=true") == (200, {"version": 0})
    assert (await call("GET", f"{path}/0"))[0] == 404


async def test_a_key_value_schema_is_an_object_of_two(pulsar: PulsarNode, call: Call):
    await call("PUT", T)
    path = "/admin/v2/schemas/public/default/t/schema"
    pair = {"key": json.loads(ORDER), "value": ""}

    status, _ = await call("POST", path, {"type": "KEY_VALUE", "schema": json.dumps(pair)})

    assert status == 200
    _, found = await call("GET", path)
    assert json.loads(found["data"]) == pair
    client = await pulsar.client()
    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="t"))
    key = json.dumps(pair["key"]).encode()
    assert answer.schema.schema_data == len(key).to_bytes(4, "big") + key + bytes(4)


@pytest.mark.parametrize(
    "body", [[], {}, {"type": "NOPE"}, {"type": "AVRO", "schema": 1}, {"type": "KEY_VALUE", "schema": "[]"}]
)
async def test_an_invalid_schema_is_refused(call: Call, body: object):
    await call("PUT", T)

    status, answer = await call("POST", "/admin/v2/schemas/public/default/t/schema", body)

    assert status in (400, 422)
    assert answer["reason"]


# -- cluster, tenants, namespaces ---------------------------------------------------------------------------------------


async def test_the_cluster_and_its_brokers(pulsar: PulsarNode, call: Call):
    _, (cluster,) = await call("GET", "/admin/v2/clusters")

    assert await call("GET", f"/admin/v2/clusters/{cluster}") == (
        200,
        {"serviceUrl": pulsar.http_url, "brokerServiceUrl": pulsar.url},
    )
    assert await call("GET", f"/admin/v2/brokers/{cluster}") == (200, [pulsar.http_url.removeprefix("http://")])
    assert (await call("GET", "/admin/v2/clusters/other"))[0] == 404
    assert await call("GET", "/admin/v2/brokers/health") == (200, "ok")
    assert (await call("GET", "/admin/v2/brokers/version"))[1].startswith("Bearlake ")


async def test_tenants_and_namespaces_are_those_of_topics(call: Call):
    assert await call("PUT", "/admin/v2/tenants/acme", {"adminRoles": [], "allowedClusters": []}) == (204, None)
    assert await call("PUT", "/admin/v2/namespaces/acme/prod", {}) == (204, None)
    assert await call("GET", "/admin/v2/tenants") == (200, ["public"])
    await call("PUT", "/admin/v2/persistent/acme/prod/t")

    assert await call("GET", "/admin/v2/tenants") == (200, ["acme", "public"])
    assert await call("GET", "/admin/v2/namespaces/acme") == (200, ["acme/prod"])
    assert (await call("DELETE", "/admin/v2/namespaces/acme/prod"))[0] == 409
    assert (await call("DELETE", "/admin/v2/tenants/acme"))[0] == 409
    assert (await call("PUT", "/admin/v2/tenants/acme", {"adminRoles": ["me"]}))[0] == 501
    assert (await call("PUT", "/admin/v2/namespaces/acme/x", {"retention_policies": {"a": 1}}))[0] == 501


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", f"{T}/compaction"),
        ("PUT", "/admin/v2/namespaces/public/default/unload"),
        ("GET", "/admin/v3/functions"),
        ("PUT", "/admin/v2/non-persistent/public/default/t"),
        ("GET", "/lookup/v2/topic/non-persistent/public/default/t"),
    ],
)
async def test_unsupported_requests_get_an_explanation(call: Call, method: str, path: str):
    status, answer = await call(method, path)

    assert status == 501
    assert "not supported" in answer["reason"]


@pytest.mark.parametrize(
    "path", ["/admin/v2/persistent/a b/c/t/stats", "/admin/v2/persistent/public/default/%2F/stats"]
)
async def test_an_invalid_name_is_refused(call: Call, path: str):
    status, answer = await call("GET", path)

    assert status == 412
    assert answer["reason"]


async def test_requests_of_other_kinds_are_not_found(call: Call):
    assert (await call("GET", "/"))[0] == 404


async def test_a_body_that_is_too_large_is_refused(call: Call):
    assert (await call("PUT", f"{T}/partitions", data=io.BytesIO(b"1" * (3 << 20))))[0] == 413


async def test_a_draining_server_is_not_healthy(pulsar: PulsarNode, call: Call):
    await pulsar.server.drain(1_000)

    assert (await call("GET", "/admin/v2/brokers/health"))[0] == 503


# -- clients -----------------------------------------------------------------------------------------------------------


def read_what_was_written(url: str, log: Path) -> None:
    pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    from pulsar import schema as schemas

    class Order(schemas.Record):
        id = schemas.Long(required=True)

    logger = pulsar_client.FileLogger(pulsar_client.LoggerLevel.Warn, str(log))
    client = pulsar_client.Client(url, operation_timeout_seconds=20, logger=logger)
    earliest = pulsar_client.InitialPosition.Earliest
    try:
        for topic in ("whole", "acme/prod/parted"):
            producer = client.create_producer(topic, schema=schemas.AvroSchema(Order))
            producer.send(Order(id=7))
            consumer = client.subscribe(topic, "s", schema=schemas.AvroSchema(Order), initial_position=earliest)
            assert consumer.receive(20_000).value().id == 7
        assert client.get_topic_partitions("acme/prod/parted") == [
            f"persistent://acme/prod/parted-partition-{index}" for index in range(2)
        ]
        pattern = client.subscribe(re.compile("persistent://acme/prod/.*"), "all", initial_position=earliest)
        assert pattern.receive(20_000).data()
    finally:
        client.close()


@pytest.mark.integration
async def test_the_python_client_looks_up_topics_and_schemas_by_http(pulsar: PulsarNode, tmp_path: Path, call: Call):
    await call("PUT", "/admin/v2/persistent/acme/prod/parted/partitions", 2)

    await asyncio.to_thread(read_what_was_written, pulsar.http_url, tmp_path / "client.log")


async def test_a_message_whose_metadata_is_not_text_can_be_peeked(
    pulsar: PulsarNode, call: Call, session: aiohttp.ClientSession
) -> None:
    client = await filled(pulsar, "t", 0)
    await call("PUT", f"{T}/subscription/s", "earliest")
    properties = [KeyValue(key="needle", value="v"), KeyValue(key="k", value="needle"), KeyValue(key="a", value="b")]
    message = bytearray(message_bytes(b"value", partition_key="needle", properties=properties))
    message[:] = message.replace(b"needle", b"need\xffe")
    struct.pack_into(">I", message, 2, crc32c(message, 6))
    client.send("send", pb.CommandSend(producer_id=1, sequence_id=0), bytes(message))
    await client.receive("send_receipt")

    async with session.get(f"{pulsar.http_url}{T}/subscription/s/position/1") as response:
        found = {name: value for name, value in response.headers.items() if "PROPERTY" in name or "key" in name}

        assert (response.status, await response.read(), found) == (200, b"value", {"X-Pulsar-PROPERTY-a": "b"})
