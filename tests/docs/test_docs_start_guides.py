"""The pages "five minutes for …" work as they stand, for users of Kafka, of Pulsar, and for data engineers; so does docs/monitoring.md."""

import re
from pathlib import Path

import pytest

from fixtures.documented_machine import beside_up

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def test_start_kafka(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--compaction", "--no-tour", is_prepared=False) as machine:
        ran = machine.follow("docs/start-kafka.md")

    if not ran.missing:
        assert sorted(ran.output("kafka-console-consumer.sh").split()) == ["10", "20", "30"]
        assert re.search(r"billing\s+payments\s+\d\s+\d+\s+\d+\s+0", ran.output("kafka-consumer-groups.sh"))
    sums = [line.split() for line in ran.output("bearlake sql").splitlines()[1:]]
    assert sums[-3:] == [["cid", "40"], ["dan", "50"], ["eve", "60"]]
    ran.skip_if_incomplete()


def test_start_pulsar(tmp_path: Path) -> None:
    pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    with beside_up(tmp_path, "--compaction", "--no-tour", is_prepared=False) as machine:
        ran = machine.follow("docs/start-pulsar.md")

    assert sorted(ran.output("import pulsar").splitlines()) == [
        "car-0 ride 0",
        "car-0 ride 2",
        "car-1 ride 1",
        "car-1 ride 3",
    ]
    if "kcat" not in ran.missing:
        assert len(ran.output("kcat -b").splitlines()) == 4
        assert "city=Bern" in ran.output("kcat -b")
    assert [line.split() for line in ran.output("bearlake sql").splitlines()[1:]] == [["car-0", "2"], ["car-1", "2"]]
    ran.skip_if_incomplete()


def test_start_tables(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--compaction", "--no-tour", is_prepared=False) as machine:
        ran = machine.follow("docs/start-tables.md")

    ran.skip_if_incomplete()
    sums = [line.split() for line in ran.output("bearlake sql").splitlines()[1:]]
    assert sums == [["Basel", "1", "1.25"], ["Bern", "2", "5.5"]]
    assert ran.output("from pyiceberg") == "[{'city': 'Bern', 'km': 2.0}, {'city': 'Bern', 'km': 3.5}]\n"
    lines = next(done.output for done in ran.done if "line is not null" in done.text)
    assert lines.splitlines()[1].split() == ["Bern", "4.0", "9"]


def test_monitoring(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/monitoring.md")

    assert "bearlake_log_commits_total" in ran.output("curl")
    ran.skip_if_incomplete()
