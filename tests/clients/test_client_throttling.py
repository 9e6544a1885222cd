"""Unmodified librdkafka learns from its responses that it is throttled, and its records arrive nevertheless."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from clients.messages import TIMEOUT_S
from fixtures.server_process import finished, started

pytestmark = [pytest.mark.integration]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server whose clients may produce 200 KB per second."""
    config = tmp_path / "settings.yaml"
    settings = {
        "metadata": {"url": f"sqlite://{tmp_path}/metadata.db"},
        "object_store": {"url": f"file://{tmp_path}/objects"},
        "admin": {"port": 0},
    }
    config.write_text(yaml.safe_dump(settings))
    made = finished("quota", "set", "--user-default", "producer_byte_rate=200000", "--config", config)
    assert made.returncode == 0, made.stderr.decode()
    with started("serve", "kafka", "--config", config, ready_file=tmp_path / "ready.json") as server:
        yield server.kafka


def test_librdkafka_is_throttled_and_delivers_all_records(address: str) -> None:
    throttled: list[float] = []
    outcomes: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for _ in range(8):
        producer.produce("t", b"x" * 50_000, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)

    assert outcomes == [None] * 8
    assert max(throttled) > 0
