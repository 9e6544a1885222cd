"""`bearlake export` as a process: copies, is killed at any time, and goes on; to Apache Kafka, and to another Bearlake."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peer_kafka import KafkaPeer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from fixtures.cli_process import Cli
from fixtures.copied_records import commit, read_first
from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECORD_COUNT = 4_000
KILLS = 4


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("source")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        producer = Producer({"bootstrap.servers": process.kafka, "batch.num.messages": 10})
        for name in ("orders.eu", "orders.us"):
            Cli(process)("stream", "create", name, "--partitions", 2, "--set", "retention.ms=-1")
            for number in range(RECORD_COUNT):
                producer.produce(name, b"v%d" % number * 20, b"%d" % number, partition=number % 2)
                producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        commit(process.kafka, "billing", "orders.eu", 1, 700)
        yield process


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an Apache Kafka, or of another Bearlake."""
    if request.param == "bearlake":
        with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as process:
            yield process.kafka
        return
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Kafka needs Java and Maven")
    with tempfile.TemporaryDirectory() as folder:
        peer = KafkaPeer(Path(folder) / "kafka")
        peer.start()
        yield peer.address
        peer.stop()


def end_of(address: str, topic: str, partition: int) -> int:
    """The partition's end offset; 0 while there is no such topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "check"})
    try:
        if topic not in consumer.list_topics(timeout=WAIT_S).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)[1])
    except KafkaException:  # the topic has just been created
        return 0
    finally:
        consumer.close()


@pytest.mark.parametrize("target", ["kafka", "bearlake"], indirect=True)
def test_an_export_that_is_killed_again_and_again_brings_each_record_once_at_its_offset(
    source: ServerProcess, target: str, tmp_path: Path
) -> None:
    words = ("export", "kafka", "--from", source.kafka, "--to", target, "--topics", "orders.*")
    for _ in range(KILLS):
        before = end_of(target, "orders.us", 0)
        with (tmp_path / "out").open("wb") as out:
            killed = subprocess.Popen(
                [*PROGRAM, *map(str, words), "--bytes-per-s", "300000"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean_environment(),
            )  # fmt: skip
            try:
                while killed.poll() is None and end_of(target, "orders.us", 0) == before:
                    pass
                assert killed.poll() is None, (tmp_path / "out").read_text()
            finally:
                killed.send_signal(signal.SIGKILL)
                killed.wait(WAIT_S)
    half = end_of(target, "orders.us", 0)
    done = finished(*words, "--json", "--verify", "--groups")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    again = finished(*words)

    assert 0 < half < RECORD_COUNT // 2
    assert result["lag"] == 0
    assert [(row["missing"], row["different"]) for row in result["compared"]] == [(0, 0)] * 4
    assert [row["offsets"] for row in result["partitions"]] == ["same"] * 4
    assert sum(row["same_batches"] for row in result["compared"]) >= 2 * RECORD_COUNT // 10
    assert (result["groups"], result["refused_groups"]) == (["billing"], {})
    for topic in ("orders.eu", "orders.us"):
        for partition in range(2):
            there = read_first(target, topic, partition, RECORD_COUNT // 2)
            assert there == read_first(source.kafka, topic, partition, RECORD_COUNT // 2)
            assert len(there) == RECORD_COUNT // 2 == end_of(target, topic, partition)
    assert again.returncode == 0, again.stderr.decode()
    assert b"offsets at the target are the same" in again.stdout


def test_an_export_says_what_is_wrong(source: ServerProcess) -> None:
    common = ("export", "kafka", "--from", source.kafka)
    nothing = finished(*common, "--to", "127.0.0.1:1", "--topics", "nothing")
    silent = finished(*common, "--to", "127.0.0.1:1", "--topics", "orders.eu")
    itself = finished(*common, "--to", source.kafka, "--topics", "orders.eu")
    endless = finished(*common, "--to", "127.0.0.1:1", "--topics", "x", "--follow", "--verify")
    half = finished(*common, "--to", "127.0.0.1:1", "--topics", "x", "--mechanism", "SCRAM-SHA-256", "--user", "alice")

    failed = (nothing, silent, itself, endless, half)
    assert [done.returncode for done in failed] == [1, 3, 2, 2, 2]
    assert b"has no topic that matches nothing" in nothing.stderr
    assert b"the target 127.0.0.1:1 does not answer" in silent.stderr
    assert b"source and target are the same cluster" in itself.stderr
    assert b"--follow has none" in endless.stderr
    assert b"exports.target: mechanism SCRAM-SHA-256 needs password_file" in half.stderr
