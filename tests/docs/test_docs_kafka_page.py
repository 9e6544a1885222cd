"""The commands of docs/kafka.md work as they stand, with kcat, Kafka's console consumer and confluent-kafka."""

from pathlib import Path

import pytest

from fixtures.documented_machine import beside_up

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_kafka(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/kafka.md")

    assert ran.output("kcat -b") == "hello, lake\n"
    assert ran.output("kafka-console-consumer.sh") == "hello, lake\n"
    ran.skip_if_incomplete()
