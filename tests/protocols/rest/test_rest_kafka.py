"""Kafka's clients and the REST server of one process: the same records at the same offsets, and one group of both."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from fixtures.server_process import started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

ROUND_COUNT_MAX = 200
JSON_RECORDS = "application/vnd.kafka.json.v2+json"


class Rest:
    """A client of the REST server."""

    def __init__(self, url: str) -> None:
        self.url = url if url.startswith("http") else f"http://{url}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        url = path if path.startswith("http") else self.url + path
        headers = {"Content-Type": "application/vnd.kafka.v2+json", "Accept": f"{JSON_RECORDS}, */*"}
        octets = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, method=method, data=octets, headers=headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            answer = response.read()
        return json.loads(answer) if answer else None


def use(kafka: str, rest: Rest) -> tuple[list[tuple[int, int, Any]], set[int], set[int]]:
    """The records of the REST consumer, and the partitions of both members when they share the group."""
    cluster = rest.ask("GET", "/v3/clusters")["data"][0]["cluster_id"]
    rest.ask("POST", f"/v3/clusters/{cluster}/topics", {"topic_name": "t", "partitions_count": 4})
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(8):
        producer.produce("t", str(number), partition=number % 4)
    assert producer.flush(WAIT_S) == 0
    config = {"auto.offset.reset": "earliest", "format": "json"}
    base = rest.ask("POST", "/consumers/g", config)["base_uri"]
    rest.ask("POST", f"{base}/subscription", {"topics": ["t"]})
    read: list[dict[str, Any]] = []
    for _ in range(ROUND_COUNT_MAX):
        read += rest.ask("GET", f"{base}/records?timeout=1000")
        if len(read) >= 8:
            break
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    own: set[int] = set()
    others: set[int] = set()
    for _ in range(ROUND_COUNT_MAX):
        consumer.poll(0.1)
        rest.ask("GET", f"{base}/records?timeout=100")
        own = {partition["partition"] for partition in rest.ask("GET", f"{base}/assignments")["partitions"]}
        others = {partition.partition for partition in consumer.assignment()}
        if len(own) == len(others) == 2:
            break
    consumer.close()
    rest.ask("DELETE", base)
    return sorted((record["partition"], record["offset"], record["value"]) for record in read), own, others


async def test_kafka_and_rest_consumers_share_records_offsets_and_a_group(tmp_path: Path) -> None:
    words = (
        "up",
        "--data-dir",
        tmp_path,
        "--no-tour",
        "--pulsar-port",
        "0",
        "--pulsar-http-port",
        "0",
        "--rest-port",
        "0",
        "--registry-port",
        "0",
        "--catalog-port",
        "0",
        "--grpc-port",
        "0",
    )
    with started(*words, ready_file=tmp_path / "ready.json") as server:
        read, own, others = await asyncio.to_thread(use, server.kafka, Rest(str(server.ready["rest"])))

        assert server.stop() == 0
    assert read == sorted((number % 4, number // 4, number) for number in range(8))
    assert own | others == {0, 1, 2, 3}
    assert not own & others
