"""Which addresses clients get: listeners with their own addresses, TLS, zones. KIP-103 (listeners), KIP-516."""

import asyncio
import ssl
import subprocess

import pytest
from confluent_kafka.admin import AdminClient

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.handlers.metadata import zone_of
from bearlake.serving.listener import ListenerSettings
from bearlake.serving.membership import ServerSettings
from fixtures.kafka_server import batch_of, fetch_request, values_of
from fixtures.waiting import WAIT_S

KEYS = ["zone_id", "diskless_az", "ws_az"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost and its key, made by openssl."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True, timeout=WAIT_S,
    )  # fmt: skip
    return files


async def brokers(client):
    return {
        broker.node_id: (broker.host, broker.port)
        for broker in (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
    }


async def leaders(client, *names):
    topics = [m.MetadataRequest.Topic(name=name) for name in names]
    answer = await client.ask(m.MetadataRequest(topics=topics), 12)
    return [partition.leader_id for topic in answer.topics for partition in topic.partitions]


async def test_each_listener_advertises_its_own_addresses(kafka_cluster):
    listeners = [
        ListenerSettings(),
        ListenerSettings(name="EXTERNAL", advertised_host="kafka.example.org", advertised_port=19092),
        ListenerSettings(name="V6", advertised_host="::1"),
    ]
    cluster = await kafka_cluster(1, listeners=listeners)
    node = cluster[0]
    inside = await node.client()
    outside = await type(inside).connect(node.listeners[1].socket.getsockname()[1])
    six = node.server.endpoints["kafka:V6"]

    assert await brokers(inside) == {0: ("127.0.0.1", node.port)}
    assert await brokers(outside) == {0: ("kafka.example.org", 19092)}
    assert six.startswith("[::1]:")
    found = (await outside.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0]
    assert (found.host, found.port) == ("kafka.example.org", 19092)
    described = await outside.ask(m.DescribeClusterRequest(), 0)
    assert [(broker.host, broker.port) for broker in described.brokers] == [("kafka.example.org", 19092)]
    await outside.close()


async def test_a_server_without_the_listener_is_not_advertised_to_its_clients(kafka_cluster):
    cluster = await kafka_cluster(1, listeners=[ListenerSettings(), ListenerSettings(name="EXTERNAL")])
    await cluster.add()
    await cluster[0].create("t", 20)
    inside = await cluster[0].client()
    outside = await type(inside).connect(cluster[0].listeners[1].advertised_port)

    assert set(await brokers(inside)) == {0, 1}
    assert set(await brokers(outside)) == {0}
    assert set(await leaders(outside, "t")) == {0}
    await outside.close()


async def test_tls_carries_large_requests_and_answers(kafka_cluster, certificate):
    tls = ListenerSettings(tls_certificate_file=str(certificate[0]), tls_key_file=str(certificate[1]))
    cluster = await kafka_cluster(1, listeners=[tls])
    await cluster[0].create("t", max_message_bytes="5000000")
    context = ssl.create_default_context(cafile=certificate[0])
    client = await cluster[0].client(tls=context)
    value = bytes(range(256)) * 12_000

    assert (await client.produce("t", batch_of(value))).error_code == 0
    for _ in range(10):
        client.send(fetch_request([("t", 0, 0)]), 12)
    for _ in range(10):
        answer = await client.receive()
        assert values_of(answer.responses[0].partitions[0].records) == [(0, value)]


async def test_plain_bytes_on_a_tls_listener_close_the_connection(kafka_cluster, certificate):
    tls = ListenerSettings(tls_certificate_file=str(certificate[0]), tls_key_file=str(certificate[1]))
    cluster = await kafka_cluster(1, listeners=[tls])
    client = await cluster[0].client()

    client.send(m.MetadataRequest(topics=[]), 12)

    assert await client.is_closed()


@pytest.mark.integration
async def test_librdkafka_speaks_tls(kafka_cluster, certificate):
    tls = ListenerSettings(tls_certificate_file=str(certificate[0]), tls_key_file=str(certificate[1]))
    cluster = await kafka_cluster(1, listeners=[tls])
    await cluster[0].create("t")
    admin = AdminClient(
        {
            "bootstrap.servers": cluster[0].address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(certificate[0]),
        }
    )

    found = await asyncio.get_running_loop().run_in_executor(None, lambda: admin.list_topics(timeout=WAIT_S))

    assert set(found.topics) == {"__consumer_offsets", "t"}


# -- zones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("app,zone_id=a", "a"),
        ("zone_id=eu-west-1a", "eu-west-1a"),
        ("app;diskless_az=b;x=y", "b"),
        ("app ws_az=c", "c"),
        ("my_zone_id=a", None),
        ("app", None),
        ("zone_id=", None),
        ("", None),
        (None, None),
    ],
)
def test_the_zone_is_read_from_the_client_id(client_id, zone):
    assert zone_of(client_id, KEYS) == zone


async def zoned(kafka_cluster, *zones):
    cluster = await kafka_cluster(0)
    for at, zone in enumerate(zones):
        await cluster.add(server=ServerSettings(name=f"s{at}", zone=zone, heartbeat_ms=50, timeout_ms=5_000))
    await cluster[0].create("t", 30)
    for node in cluster.nodes:
        await node.streams.catalog.find("t")
    return cluster


async def test_clients_are_sent_to_servers_of_their_zone(kafka_cluster):
    cluster = await zoned(kafka_cluster, "a", "a", "b")

    assert set(await leaders(await cluster[2].client("app,zone_id=a"), "t")) == {0, 1}
    assert set(await leaders(await cluster[0].client("app,zone_id=b"), "t")) == {2}
    assert set(await leaders(await cluster[0].client("app,zone_id=nowhere"), "t")) == {0, 1, 2}
    assert set(await leaders(await cluster[0].client("app"), "t")) == {0, 1, 2}
    answer = await (await cluster.client()).ask(m.MetadataRequest(topics=[]), 12)
    assert [broker.rack for broker in answer.brokers] == ["a", "a", "b"]


async def test_all_servers_send_a_client_to_the_same_one(kafka_cluster):
    cluster = await zoned(kafka_cluster, None, None, None)

    found = [await leaders(await node.client("app"), "t") for node in cluster.nodes]

    assert found[0] == found[1] == found[2]


async def test_every_server_accepts_every_partition_whatever_the_metadata_response_names(kafka_cluster):
    cluster = await zoned(kafka_cluster, "a", "b")
    clients = [await node.client("app,zone_id=a") for node in cluster.nodes]
    for at in range(6):
        assert (await clients[at % 2].produce("t", batch_of(b"%d" % at), index=3)).base_offset == at

    for client in clients:
        answer = await client.fetch("t", 0, index=3, wait_ms=5_000, bytes_min=400)
        assert [value for _, value in values_of(answer.records)] == [b"%d" % at for at in range(6)]
