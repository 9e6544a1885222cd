"""A stream that `pulsar-admin` terminated accepts no records by any protocol, each with its own error, and all protocols can read it."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pulsar
import pytest
from confluent_kafka import KafkaError, Producer

from bearlake.client import Client
from bearlake.client.errors import Refused
from fixtures.protocol_clients import Addresses, KafkaReader
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

STREAM = "ended"
RECORDS = {"records": [{"value": "YQ=="}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("terminated")
    words = ("up", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as process:
        yield process


@pytest.fixture(scope="module")
def at(server: ServerProcess) -> Addresses:
    """A server with a terminated stream of three records; a Pulsar producer was connected at the termination."""
    found = Addresses(
        kafka=server.kafka,
        rest=str(server.ready["rest"]).removeprefix("http://"),
        grpc=str(server.ready["grpc"]),
        pulsar=str(server.ready["pulsar"]),
    )
    with Client(found.grpc) as client:
        client.create_stream(STREAM)
        client.append(STREAM, [b"a", b"b", b"c"])
    url = f"{server.ready['pulsar_http']}/admin/v2/persistent/public/default/{STREAM}/terminate"
    request = urllib.request.Request(url, method="POST")
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert json.load(answer)["entryId"] == 0  # one batch of three
    return found


def test_kafka_producers_get_a_policy_violation(at: Addresses) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": at.kafka, "enable.idempotence": True})

    producer.produce(STREAM, b"late", on_delivery=lambda error, message: errors.append(error.code()))
    producer.flush(WAIT_S)

    assert errors == [KafkaError.POLICY_VIOLATION]


def test_rest_v2_answers_an_error_that_is_not_retriable(at: Addresses) -> None:
    kind = "application/vnd.kafka.binary.v2+json"

    (result,) = at.ask("POST", f"/topics/{STREAM}", RECORDS, Content_Type=kind).json()["offsets"]

    assert result["error_code"] == 1
    assert "terminated" in result["error"]


def test_rest_v3_answers_a_conflict(at: Addresses) -> None:
    cluster = at.ask("GET", "/v3/clusters").json()["data"][0]["cluster_id"]
    record = {"value": {"type": "BINARY", "data": "YQ=="}}

    answer = at.ask("POST", f"/v3/clusters/{cluster}/topics/{STREAM}/records", record, Content_Type="application/json")

    assert answer.json()["error_code"] == 409


def test_v1_stream_is_closed(at: Addresses) -> None:
    with pytest.raises(HTTPError) as refused:
        at.ask("POST", f"/v1/stream/{STREAM}", b"late", Content_Type="application/octet-stream")

    with refused.value as answer:
        assert (answer.code, answer.headers["Stream-Closed"]) == (409, "true")
    read = at.ask("GET", f"/v1/stream/{STREAM}?offset=-1")
    assert (read.content, read.headers["Stream-Closed"]) == (b"abc", "true")


def test_grpc_says_terminated(at: Addresses) -> None:
    with Client(at.grpc) as client, pytest.raises(Refused) as refused:
        client.append(STREAM, [b"late"])

    assert refused.value.reason == "TERMINATED"


def test_pulsar_producers_are_notified_and_readers_read_to_the_end(at: Addresses) -> None:
    client = pulsar.Client(f"pulsar://{at.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(STREAM)
        reader = client.create_reader(STREAM, pulsar.MessageId.earliest)
        values = [reader.read_next(20_000).data() for _ in range(3)]
        assert not reader.has_message_available()
    finally:
        client.close()

    assert values == [b"a", b"b", b"c"]


def test_no_record_is_stored_after_the_end(at: Addresses) -> None:
    assert [item.value for item in KafkaReader().read(at, STREAM, 3)] == [b"a", b"b", b"c"]
    with Client(at.grpc) as client:
        assert client.describe_stream(STREAM).bounds == [(0, 3)]
