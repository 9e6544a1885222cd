"""What a stream refuses while it is being imported: records by every protocol, and changes that would part it from its source."""

import asyncio
import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pulsar
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from bearlake.cli.main import run
from bearlake.client import Client
from bearlake.client.errors import Denied
from bearlake.metadata.open import open_metadata
from bearlake.streams.configs import IMPORT_SOURCE
from fixtures.protocol_clients import Addresses
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

STREAM = "incoming"
SOURCE = "kafka:elsewhere/topic"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a stream that has three records and is being imported."""
    folder = tmp_path_factory.mktemp("importing")
    words = ("up", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as process:
        with Client(str(process.ready["grpc"])) as client:
            client.create_stream(STREAM, configs={"retention.ms": "-1"})
            client.append(STREAM, [b"a", b"b", b"c"])
        asyncio.run(mark(f"sqlite://{folder / 'data' / 'metadata.db'}"))
        while configs(process).get(IMPORT_SOURCE) != SOURCE:  # until this server has followed
            pass
        yield process


async def mark(url: str) -> None:
    """Mark the stream as an import does when it creates it."""
    metadata = await open_metadata(url)
    stream = await metadata.streams.get(STREAM)
    await metadata.streams.alter(
        stream.number, set_configs={IMPORT_SOURCE: SOURCE}, unset_configs=(), version=stream.version
    )
    await metadata.close()


def configs(server: ServerProcess) -> dict[str, str]:
    """The stream's own configs."""
    resource, client = ConfigResource(ResourceType.TOPIC, STREAM), admin(server)
    found = client.describe_configs([resource])[resource].result(WAIT_S)
    return {name: entry.value for name, entry in found.items() if not entry.is_default}


def admin(server: ServerProcess) -> AdminClient:
    """A client of Kafka's administration. Keep it until its answers are there."""
    return AdminClient({"bootstrap.servers": server.kafka})


@pytest.fixture(scope="module")
def at(server: ServerProcess) -> Addresses:
    """The server's addresses."""
    return Addresses(
        kafka=server.kafka,
        rest=str(server.ready["rest"]).removeprefix("http://"),
        grpc=str(server.ready["grpc"]),
        pulsar=str(server.ready["pulsar"]),
    )


@pytest.fixture(autouse=True)
def unchanged(at: Addresses) -> Iterator[None]:
    """Whatever a test tries, the stream keeps its three records, its partition, and its mark."""
    yield
    with Client(at.grpc) as client:
        assert client.describe_stream(STREAM).bounds == [(0, 3)]
        assert client.describe_stream(STREAM).configs[IMPORT_SOURCE] == SOURCE


def test_kafka_producers_are_refused(at: Addresses) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": at.kafka, "enable.idempotence": True})

    producer.produce(STREAM, b"late", on_delivery=lambda error, message: errors.append(error.code()))
    producer.flush(WAIT_S)

    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_the_command_line_says_that_the_stream_is_being_imported(
    at: Addresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record"
    record.write_bytes(b"late")

    assert run(["produce", STREAM, "-b", at.kafka, "--file", str(record)]) == 1

    assert f"{STREAM!r} is being imported" in capsys.readouterr().err


def test_a_transaction_of_a_kafka_producer_writes_neither_records_nor_a_marker(at: Addresses) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": at.kafka, "transactional.id": "late"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()

    producer.produce(STREAM, b"late", on_delivery=lambda error, message: errors.append(error.code()))
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)

    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_rest_v2_answers_an_error(at: Addresses) -> None:
    kind = "application/vnd.kafka.binary.v2+json"

    (result,) = at.ask("POST", f"/topics/{STREAM}", {"records": [{"value": "YQ=="}]}, Content_Type=kind).json()[
        "offsets"
    ]

    assert result["error_code"] == 1
    assert "is being imported" in result["error"]


def test_rest_v3_answers_an_error(at: Addresses) -> None:
    cluster = at.ask("GET", "/v3/clusters").json()["data"][0]["cluster_id"]
    record = {"value": {"type": "BINARY", "data": base64.b64encode(b"late").decode()}}

    answer = at.ask("POST", f"/v3/clusters/{cluster}/topics/{STREAM}/records", record, Content_Type="application/json")

    assert answer.json()["error_code"] == 40301
    assert "is being imported" in answer.json()["message"]


def test_v1_stream_answers_forbidden(at: Addresses) -> None:
    with pytest.raises(HTTPError) as refused:
        at.ask("POST", f"/v1/stream/{STREAM}", b"late", Content_Type="application/octet-stream")

    with refused.value as answer:
        assert answer.code == 403


def test_grpc_answers_denied(at: Addresses) -> None:
    with Client(at.grpc) as client, pytest.raises(Denied) as refused:
        client.append(STREAM, [b"late"])

    assert refused.value.reason == "DENIED"


def test_pulsar_producers_are_refused(at: Addresses) -> None:
    client = pulsar.Client(f"pulsar://{at.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(STREAM, send_timeout_millis=5_000).send(b"late")
    finally:
        client.close()


def test_pulsar_cannot_terminate_the_stream(server: ServerProcess) -> None:
    url = f"{server.ready['pulsar_http']}/admin/v2/persistent/public/default/{STREAM}/terminate"
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=WAIT_S)

    with refused.value as answer:
        assert answer.code in (401, 403)
        assert "is being imported" in json.load(answer)["reason"]


def test_kafka_can_neither_delete_records_nor_add_partitions(server: ServerProcess) -> None:
    client = admin(server)
    trimmed = client.delete_records([TopicPartition(STREAM, 0, 2)])
    grown = client.create_partitions([NewPartitions(STREAM, 2)])

    for future in (*trimmed.values(), *grown.values()):
        with pytest.raises(KafkaException) as refused:
            future.result(WAIT_S)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_the_mark_survives_a_replacement_of_all_configs(server: ServerProcess) -> None:
    resource = ConfigResource(ResourceType.TOPIC, STREAM, set_config={"retention.ms": "5000"})
    client = admin(server)

    client.alter_configs([resource])[resource].result(WAIT_S)

    assert configs(server)["retention.ms"] == "5000"
    assert configs(server)[IMPORT_SOURCE] == SOURCE
    kept = ConfigResource(ResourceType.TOPIC, STREAM, set_config={"retention.ms": "-1"})
    client.alter_configs([kept])[kept].result(WAIT_S)


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_nobody_else_marks_a_stream_as_imported(server: ServerProcess) -> None:
    client = admin(server)
    made = client.create_topics([NewTopic("mine", 1, config={IMPORT_SOURCE: SOURCE})])["mine"]
    resource = ConfigResource(ResourceType.TOPIC, STREAM, set_config={IMPORT_SOURCE: "kafka:other/topic"})
    changed = client.alter_configs([resource])[resource]

    for future in (made, changed):
        with pytest.raises(KafkaException, match="set by imports only"):
            future.result(WAIT_S)


def test_everybody_may_read_and_commit_offsets(at: Addresses) -> None:
    with Client(at.grpc) as client:
        assert client.describe_stream(STREAM).bounds == [(0, 3)]
    read = at.ask("GET", f"/v1/stream/{STREAM}?offset=-1")

    assert read.content == b"abc"
