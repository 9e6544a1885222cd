"""`bearlake up` and `bearlake serve kafka` as processes: ready file, tour, clean stop, and all startup failures."""

import json
import os
import signal
import socket
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fixtures.server_process import PROGRAM, WATCHDOG, finished, lines_of, started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

QUIET = ("--kafka-port", "0", "--admin-port", "0", "--no-tour")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        return json.load(response)


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S):
        return True


def test_the_tour_runs_on_real_records_and_its_success_determines_the_exit_code(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"

    result = finished("up", "--data-dir", tmp_path / "data", "--ready-file", ready, *QUIET[:-1], "--exit-after-tour")

    text = result.stdout.decode()
    assert result.returncode == 0, text + result.stderr.decode()
    assert "10,000 records" in text
    assert lines_of(result.stderr.decode()) == []
    names = {"kafka", "pulsar", "pulsar_http", "registry", "rest", "catalog", "grpc", "admin", "console"}
    assert set(json.loads(ready.read_text())) == names
    assert any((tmp_path / "data" / "objects").rglob("*"))


def test_a_second_tour_on_the_same_folder_continues_after_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        result = finished("up", "--data-dir", tmp_path / "data", *QUIET[:-1], "--exit-after-tour")
        assert result.returncode == 0, result.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_serves_until_a_signal_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        assert accepts(server.kafka)
        assert get(f"{server.admin}/readyz") == {"status": "ready"}
        assert get(f"{server.admin}/v1/servers")["servers"][0]["endpoints"]["kafka"] == server.kafka

        assert server.stop(number) == 0


def test_the_server_stops_without_output_while_a_consumer_waits(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        finished("produce", "queue", "--bootstrap", server.kafka, stdin=b"1\n")
        command = [*PROGRAM, "consume", "queue", "--bootstrap", server.kafka, "--from-beginning"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == b"1\n"

            assert server.stop() == 0
            consumer.kill()
        assert not [line for line in lines_of(server.said()) if "WARNING" in line]


def test_a_server_of_a_cluster_logs_when_it_serves_and_when_it_has_stopped(tmp_path: Path) -> None:
    stores = ("--metadata-url", f"sqlite://{tmp_path}/metadata.db", "--object-store-url", f"file://{tmp_path}/objects")
    with started("serve", "kafka", *stores, ready_file=tmp_path / "ready.json") as server:
        assert server.stop() == 0

    lines = [json.loads(line) for line in lines_of(server.said())]
    assert [line["message"] for line in lines] == ["serving", "stopping", "stopped"]
    assert lines[-1]["exit_code"] == 0


def test_a_start_is_not_reported_as_a_request_that_holds_the_loop(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        assert server.stop() == 0

    before, is_up, _ = server.said().partition("is up (process")
    assert is_up
    assert WATCHDOG not in before


def test_a_data_folder_serves_one_deployment_at_a_time(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        result = finished("up", "--data-dir", tmp_path / "data", *QUIET)

        assert result.returncode == 3
        assert str(server.process.pid) in result.stderr.decode()


def test_a_taken_port_is_reported_in_one_line_with_exit_code_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        result = finished("up", "--data-dir", tmp_path, "--kafka-port", port, "--admin-port", "0", "--no-tour")

    assert result.returncode == 3
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith(f"bearlake: kafka: port 127.0.0.1:{port} ")


def test_all_taken_ports_are_reported_at_once(tmp_path: Path) -> None:
    options = {"kafka": "--kafka-port", "registry": "--registry-port", "grpc": "--grpc-port", "admin": "--admin-port"}
    with ExitStack() as taken:
        sockets = {name: taken.enter_context(socket.create_server(("127.0.0.1", 0))) for name in options}
        ports = {name: opened.getsockname()[1] for name, opened in sockets.items()}
        words = [word for name, option in options.items() for word in (option, ports[name])]

        result = finished("up", "--data-dir", tmp_path, "--no-tour", *words)

    text = result.stderr.decode()
    assert result.returncode == 3, text
    for name, port in ports.items():
        assert f"{name}: port 127.0.0.1:{port} is in use by another process" in text


def test_the_tour_leaves_no_group_behind(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        result = finished("tour", "--bootstrap", server.kafka, "--admin", server.admin)

        assert result.returncode == 0, result.stderr.decode()
        assert get(f"{server.admin}/v1/groups")["groups"] == []


def test_ctrl_c_says_that_it_stops(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        assert server.stop(signal.SIGINT) == 0
        assert "Stopping; a second Ctrl-C ends it at once." in server.said()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metadata-url", "mysql://x"], "mysql:"),
        (["--object-store-url", "ftp://x"], "ftp://x"),
        (["--host", "0.0.0.0"], "0.0.0.0"),
        (["--config", "/no/such/file.yaml"], "/no/such/file.yaml"),
        (["--host", "no such host"], "no such host"),
    ],
)
def test_a_wrong_option_is_reported_in_one_line_with_exit_code_2(
    tmp_path: Path, words: list[str], message: str
) -> None:
    result = finished("up", "--data-dir", tmp_path / "data", *QUIET, *words)

    text = result.stderr.decode()
    assert result.returncode == 2, text
    assert message in text
    assert len(text.splitlines()) == 1


def test_the_error_for_a_wrong_settings_file_names_the_path(tmp_path: Path) -> None:
    config = tmp_path / "bearlake.yaml"
    config.write_text("kafka: {auto_create: true}\nadmin: {port: 1e3}\n")

    result = finished("serve", "kafka", "--config", config)

    text = result.stderr.decode()
    assert result.returncode == 2
    for word in ("kafka.auto_create:", str(config), "kafka.auto_create_streams", "admin.port:", "0 to 65535"):
        assert word in text


def test_a_server_of_a_cluster_needs_both_stores(tmp_path: Path) -> None:
    result = finished("serve", "kafka", "--kafka-port", "0", "--admin-port", "0")

    assert result.returncode == 2
    assert "metadata.url" in result.stderr.decode()


def test_several_server_processes_share_the_stores(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(
        "up", "--data-dir", folder, "--no-tour", "--kafka-processes", "3", ready_file=tmp_path / "r.json"
    ) as server:
        addresses = server.ready["kafka_all"]
        assert addresses[0] == server.kafka
        assert len(set(addresses)) == 3
        assert all(accepts(address) for address in addresses)

        assert server.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            accepts(addresses[2])


def test_the_death_of_a_further_server_process_stops_all(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(
        "up", "--data-dir", folder, "--no-tour", "--kafka-processes", "2", ready_file=tmp_path / "r.json"
    ) as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if not children.exists():
            pytest.skip("needs /proc to find the child process")
        (child,) = map(int, children.read_text().split())

        os.kill(child, signal.SIGKILL)

        assert server.wait() == 1


def test_a_newer_process_of_the_same_name_takes_over(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    stores = ("--metadata-url", f"sqlite://{tmp_path}/m.db", "--object-store-url", f"file://{tmp_path}/objects")
    words = ("serve", "kafka", *stores, "--name", "one")
    with (
        started(*words, ready_file=tmp_path / "old.json") as old,
        started(*words, ready_file=tmp_path / "new.json") as new,
    ):
        assert old.wait() == 4
        assert get(f"{new.admin}/readyz") == {"status": "ready"}
        assert new.stop() == 0


def test_settings_come_from_file_and_environment(tmp_path: Path) -> None:
    config = tmp_path / "bearlake.yaml"
    config.write_text("kafka: {default_partition_count: 7}\n")
    words = ("up", "--data-dir", tmp_path / "data", "--no-tour", "--config", config)
    environ = {"BEARLAKE_SERVER__ZONE": "east"}
    with started(*words, ready_file=tmp_path / "ready.json", environ=environ) as server:
        rows = {row["setting"]: row for row in get(f"{server.admin}/v1/config")["settings"]}

        assert (rows["kafka.default_partition_count"]["value"], rows["server.zone"]["value"]) == (7, "east")
        assert rows["kafka.default_partition_count"]["source"] == f"file {config}"
        assert rows["server.zone"]["source"] == "environment BEARLAKE_SERVER__ZONE"
        assert rows["listeners.kafka.port"]["source"] == "--kafka-port"


def test_an_admin_api_on_a_public_address_requires_a_token(tmp_path: Path) -> None:
    environ = {"BEARLAKE_ADMIN_TOKEN": "sixteen-characters", "BEARLAKE_AUTHENTICATION__ANONYMOUS": "true"}
    words = ("up", "--data-dir", tmp_path / "data", "--no-tour", "--host", "0.0.0.0")
    with started(*words, ready_file=tmp_path / "ready.json", environ=environ) as server:
        port = server.admin.rpartition(":")[2]

        refused = finished("stream", "list", "--admin", f"http://127.0.0.1:{port}")
        allowed = finished("stream", "list", "--admin", f"http://127.0.0.1:{port}", environ=environ)

        assert (refused.returncode, allowed.returncode) == (1, 0)
        assert "Authorization: Bearer" in refused.stderr.decode()
