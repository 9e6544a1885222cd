"""`bearlake import` as a process: copies, is killed at any time and goes on, and promotes."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fixtures.cli_process import Cli
from fixtures.copied_records import Row, commit, committed, read_first
from fixtures.ports import free_port
from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RECORD_COUNT = 3_000
PIECES = 6


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("source")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        producer = Producer({"bootstrap.servers": process.kafka, "batch.num.messages": 10})
        Cli(process)("stream", "create", "orders", "--partitions", 2, "--set", "retention.ms=-1")
        for number in range(RECORD_COUNT):
            producer.produce("orders", b"v%d" % number * 100, b"%d" % number, partition=number % 2)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        commit(process.kafka, "billing", "orders", 0, 700)
        yield process


def test_an_import_that_is_killed_goes_on_and_the_promoted_stream_has_each_record_once(
    source: ServerProcess, tmp_path: Path
) -> None:
    words = ("import", "kafka", "--from", source.kafka, "--topics", "ord.*", "--data-dir", tmp_path / "data")
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as target:
        port = free_port()
        half = (*words, "--follow", "--bytes-per-s", "200000", "--admin-port", port)
        with (tmp_path / "out").open("wb") as out:
            killed = subprocess.Popen(
                [*PROGRAM, *map(str, half)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean_environment()
            )
            assert len(read_when_there(target, 10)) == 10
            metrics, ready = (page(port, path) for path in ("metrics", "readyz"))
            killed.send_signal(signal.SIGKILL)
            assert killed.wait(WAIT_S) == -signal.SIGKILL
        done = finished(*words, "--json", "--verify")
        assert done.returncode == 0, done.stderr.decode()
        result = json.loads(done.stdout)
        refused = Producer({"bootstrap.servers": target.kafka})
        errors: list[str] = []
        refused.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error.name()))
        refused.flush(WAIT_S)
        promoted = finished("import", "promote", "orders", "--data-dir", tmp_path / "data")
        again = finished(*words)

        assert result["lag"] == 0
        assert [(row["missing"], row["different"]) for row in result["compared"]] == [(0, 0)] * 2
        assert sum(row["same_batches"] for row in result["compared"]) >= RECORD_COUNT // 10
        assert "bearlake_import_partitions 2.0" in metrics
        assert "bearlake_import_bytes_per_second_limit 200000.0" in metrics
        assert sample(metrics, "bearlake_import_bytes_total") > 0
        assert sample(metrics, "bearlake_import_lag_offsets") >= 0
        assert json.loads(ready) == {"status": "ready"}
        assert (result["groups"], result["refused_groups"]) == (["billing"], {})
        assert committed(target.kafka, "billing", "orders", 2) == [700, -1001]
        assert [row["end_offset"] for row in result["partitions"]] == [RECORD_COUNT // 2] * 2
        for partition in range(2):
            there, here = (
                read_first(server.kafka, "orders", partition, RECORD_COUNT // 2) for server in (source, target)
            )
            assert here == there
            assert len(here) == RECORD_COUNT // 2
        assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
        assert promoted.returncode == 0, promoted.stderr.decode()
        assert again.returncode == 1
        assert b"bearlake: stream 'orders' exists and is not being imported" in again.stderr, again.stderr
        assert Cli(target).json("stream", "describe", "orders")["configs"] == {"retention.ms": "-1"}


def page(port: int, path: str) -> str:
    """A page of the import's admin API."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def sample(page: str, name: str) -> float:
    """A metric without labels."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def read_when_there(target: ServerProcess, count: int) -> list[Row]:
    """The first records of partition 0, when the import has made the stream."""
    cli = Cli(target)
    while not cli.json("stream", "list", "--prefix", "orders"):
        pass
    return read_first(target.kafka, "orders", 0, count)


def test_offsets_of_groups_follow_and_are_never_moved_back(source: ServerProcess, tmp_path: Path) -> None:
    words = ("import", "kafka", "--from", source.kafka, "--topics", "orders", "--data-dir", tmp_path / "data", "--json")
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as target:
        commit(source.kafka, "moving", "orders", 0, 10)
        commit(source.kafka, "moving", "orders", 1, 20)
        assert finished(*words).returncode == 0
        first = committed(target.kafka, "moving", "orders", 2)
        commit(target.kafka, "moving", "orders", 0, 30)
        commit(source.kafka, "moving", "orders", 0, 25)
        commit(source.kafka, "moving", "orders", 1, 26)
        assert finished(*words).returncode == 0

        assert first == [10, 20]
        assert committed(target.kafka, "moving", "orders", 2) == [30, 26]


def test_an_import_says_what_is_wrong_with_its_source(source: ServerProcess, tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json"):
        common = ("import", "kafka", "--data-dir", tmp_path / "data")
        nothing = finished(*common, "--from", source.kafka, "--topics", "nothing")
        pattern = finished(*common, "--from", source.kafka, "--topics", "(")
        address = finished(*common, "--from", "kafka", "--topics", "x")
        silent = finished(*common, "--from", "127.0.0.1:1", "--topics", "x")
        login = ("--from", source.kafka, "--topics", "x", "--mechanism", "SCRAM-SHA-256", "--user", "alice")
        half = finished(*common, *login)
        unread = finished(*common, *login, "--password-file", tmp_path / "missing")
        endless = finished(*common, "--from", source.kafka, "--topics", "x", "--follow", "--verify")

    failed = (nothing, pattern, address, silent, half, unread, endless)
    assert [done.returncode for done in failed] == [1, 2, 2, 3, 2, 2, 2]
    assert b"imports.source: mechanism SCRAM-SHA-256 needs password_file" in half.stderr
    assert b"does not let clients log in" in unread.stderr
    assert b"--follow has none" in endless.stderr
    assert b"has no topic that matches nothing" in nothing.stderr
    assert b"not a regular expression" in pattern.stderr
    assert b"expected host:port" in address.stderr
    assert b"127.0.0.1:1 does not answer" in silent.stderr
