"""The command line against a real server: streams, records through pipes, exit codes for scripts."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fixtures.cli_process import Cli
from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, started

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("cli")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process


@pytest.fixture
def cli(server: ServerProcess) -> Cli:
    return Cli(server)


def test_streams_are_created_listed_described_altered_deleted(cli: Cli) -> None:
    assert cli("stream", "create", "orders", "returns", "--partitions", 3, "--set", "retention.ms=1000") == (
        "orders: created\nreturns: created\n"
    )
    listed = cli.json("stream", "list", "--prefix", "ord")
    assert [(row["name"], row["partition_count"]) for row in listed] == [("orders", 3)]
    assert "NAME" in cli("stream", "list")
    assert "retention.ms = 1000" in cli("stream", "describe", "orders")

    cli("stream", "alter", "orders", "--partitions", 4, "--set", "retention.ms=2000", "--set", "cleanup.policy=delete")
    cli("stream", "alter", "orders", "--unset", "cleanup.policy")
    described = cli.json("stream", "describe", "orders")
    assert (len(described["partitions"]), described["configs"]) == (4, {"retention.ms": "2000"})

    assert cli("stream", "delete", "orders", "returns") == "orders: deleted\nreturns: deleted\n"
    assert cli.json("stream", "list", "--prefix", "ord") == []


def test_impossible_commands_end_with_exit_code_1(cli: Cli) -> None:
    cli("stream", "create", "once")

    assert cli("stream", "create", "once", code=1) == "bearlake: stream 'once' already exists\n"
    assert cli("stream", "create", "once", "--if-not-exists") == "once: nothing to do (already exists)\n"
    assert cli("stream", "delete", "absent", code=1) == "bearlake: there is no stream 'absent'\n"
    assert cli("stream", "delete", "absent", "--if-exists") == "absent: nothing to do (not found)\n"
    assert "absent" in cli("stream", "describe", "absent", code=1)
    assert "odd: Unknown topic config name: nope" in cli("stream", "create", "odd", "--set", "nope=1", code=1)
    unknown = "bearlake: once: Unknown topic config name: nope\n"
    assert cli("stream", "alter", "once", "--set", "nope=1", code=1) == unknown
    assert cli("stream", "alter", "once", "--unset", "nope", "--partitions", 2, code=1) == unknown
    assert len(cli.json("stream", "describe", "once")["partitions"]) == 1


def test_lines_are_produced_and_consumed_in_order(cli: Cli) -> None:
    cli("stream", "create", "lines")
    lines = b"".join(b"line %d\n" % index for index in range(5_000))

    summary = cli.json("produce", "lines", stdin=lines)

    assert summary == {"stream": "lines", "produced": 5_000, "failed": 0}
    assert cli("consume", "lines", "--from-beginning", "--exit-at-end").encode() == lines


def test_keys_headers_and_formats(cli: Cli) -> None:
    cli("stream", "create", "keyed")
    cli("produce", "keyed", "-K", ":", "-H", "source=test", "-z", "zstd", stdin=b"a:1\nb:2\nno key\n")

    shown = cli("consume", "keyed", "--from-beginning", "-e", "-f", r"%t/%p@%o %k=%v [%h] %K\n")

    assert shown.splitlines() == [
        "keyed/0@0 a=1 [source=test] 1",
        "keyed/0@1 b=2 [source=test] 1",
        "keyed/0@2 =no key [source=test] -1",
    ]


def test_json_lines_are_produced_and_consumed(cli: Cli) -> None:
    cli("stream", "create", "documents", "--partitions", 2)
    line = b'{"key": "k", "value": {"bears": 3}, "headers": [{"name": "h", "value": "v"}], "partition": 1, "timestamp_ms": 1700000000000}\n'
    cli("produce", "documents", "--format", "json", stdin=line)

    record = json.loads(cli("consume", "documents", "--from-beginning", "-e", "--json"))

    assert record == {
        "stream": "documents",
        "partition": 1,
        "offset": 0,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value": '{"bears": 3}',
        "headers": [{"name": "h", "value": "v"}],
    }


def test_a_group_continues_at_its_committed_offset(cli: Cli) -> None:
    cli("stream", "create", "queue")
    cli("produce", "queue", stdin=b"1\n2\n3\n4\n5\n")

    first = cli("consume", "queue", "--group", "g", "--from-beginning", "--max-messages", 2)
    second = cli("consume", "queue", "--group", "g", "--from-beginning", "--max-messages", 3)

    assert (first, second) == ("1\n2\n", "3\n4\n5\n")


def test_consume_ends_after_silence(cli: Cli) -> None:
    cli("stream", "create", "silent")

    assert cli("consume", "silent", "--idle-ms", 300) == ""


def test_consume_ends_when_its_reader_closes_the_pipe(cli: Cli) -> None:
    cli("stream", "create", "long")
    cli("produce", "long", stdin=b"x\n" * 20_000)
    command = [*PROGRAM, "consume", "long", "--from-beginning"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(cli.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        process.stdout.close()

        assert process.wait(60) == 0


def test_an_interrupted_consume_ends_with_130(cli: Cli) -> None:
    cli("stream", "create", "endless")
    cli("produce", "endless", stdin=b"x\n")
    command = [*PROGRAM, "consume", "endless", "--from-beginning"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(cli.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"

        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_records_that_are_too_large_end_with_exit_code_1(cli: Cli) -> None:
    cli("stream", "create", "small", "--set", "max.message.bytes=1000")

    cli("produce", "small", stdin=b"fits\n")
    message = cli("produce", "small", stdin=b"x" * 5_000 + b"\n", code=1)

    assert "1 record was not delivered" in message
    assert cli("consume", "small", "--from-beginning", "-e") == "fits\n"


def test_the_error_names_an_invalid_line_of_json(cli: Cli) -> None:
    cli("stream", "create", "strict")

    assert "line 2: " in cli("produce", "strict", "--format", "json", stdin=b'{"value": "1"}\nnonsense\n', code=2)


def test_consuming_an_absent_stream_ends_with_exit_code_1(cli: Cli) -> None:
    assert "no stream 'never-made'" in cli("consume", "never-made", code=1)


def test_servers_are_listed(cli: Cli, server: ServerProcess) -> None:
    (row,) = cli.json("server", "list")

    assert row["endpoints"]["kafka"] == server.kafka
    assert server.kafka in cli("server", "list")


def test_the_tour_runs_against_a_running_server(cli: Cli, server: ServerProcess, tmp_path: Path) -> None:
    assert "each exactly once and in order" in cli("tour")


def test_an_open_transaction_is_listed_described_and_aborted(cli: Cli, server: ServerProcess) -> None:
    cli("stream", "create", "held")
    producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": "copier/1"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("held", "a", partition=0)
    assert producer.flush(60) == 0

    assert [row["transactional_id"] for row in cli.json("transaction", "list")] == ["copier/1"]
    assert "copier/1" in cli("transaction", "list")
    described = cli.json("transaction", "describe", "copier/1")
    assert described["partitions"] == [{"stream": "held", "partition": 0, "first_offset": 0}]
    assert "FIRST OFFSET" in cli("transaction", "describe", "copier/1")
    assert cli("transaction", "abort", "copier/1") == "copier/1: aborted\n"
    assert cli("transaction", "abort", "copier/1") == "copier/1: no transaction is open\n"
    assert cli.json("transaction", "list") == []
    assert cli("consume", "held", "--from-beginning", "--exit-at-end") == ""
    assert "none" in cli("transaction", "describe", "none", code=1)
