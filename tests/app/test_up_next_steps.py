"""The lines that `bearlake up` prints for a first try work as they stand, also with a data folder and a settings file of their own."""

import shlex
import sys
from pathlib import Path

import pytest

from bearlake.app import ready
from fixtures.server_process import ServerProcess, finished, started
from fixtures.waiting import until

pytestmark = pytest.mark.integration


async def commands_of(server: ServerProcess) -> list[list[str]]:
    """The arguments of the `bearlake` commands that the server prints; of a pipeline, those of the last command."""
    await until(lambda: "Ctrl-C stops it." in server.output.read_text())
    lines = (line.strip().rpartition("| ")[2] for line in server.output.read_text().splitlines())
    return [shlex.split(line.partition("    (")[0])[1:] for line in lines if line.startswith("bearlake ")]


@pytest.mark.parametrize("has_config", [False, True])
async def test_the_printed_commands_find_the_server_and_its_stores(tmp_path: Path, has_config: bool) -> None:
    words: list[object] = ["up", "--data-dir", tmp_path / "its data", "--no-tour", "--compaction"]
    if has_config:
        (tmp_path / "its settings.yaml").write_text("kafka: {default_partition_count: 7}\n")
        words += ["--config", tmp_path / "its settings.yaml"]
    with started(*words, ready_file=tmp_path / "ready.json") as server:
        results = {line[0]: finished(*line, stdin=b"hello, lake\n") for line in await commands_of(server)}

    assert {name: result.returncode for name, result in results.items()} == dict.fromkeys(
        ("stream", "produce", "consume", "group", "sql"), 0
    ), {name: result.stderr.decode() for name, result in results.items()}
    assert results["consume"].stdout == b"hello, lake\n"
    assert results["group"].stdout.splitlines()[1].split() == b"readers classic empty 0 0 0.0".split()


def test_a_shell_that_does_not_find_the_program_is_told_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(sys.executable).parent / "bearlake"
    monkeypatch.setenv("PATH", str(tmp_path))
    addresses = {
        "kafka": "127.0.0.1:9092",
        "admin": "http://127.0.0.1:9644",
        "rest": "http://127.0.0.1:8082",
        "grpc": "127.0.0.1:50051",
        "pulsar": "127.0.0.1:6650",
    }
    shown = ready.try_next(addresses, "", ready.hidden_program())
    monkeypatch.setenv("PATH", str(program.parent))
    unneeded = ready.try_next(addresses, "", ready.hidden_program())

    first, second, *_ = (line for line in shown.splitlines() if line.startswith("  "))
    assert first == f"  export PATH={program.parent}:$PATH"
    assert second == "  bearlake stream create greetings"
    assert "export PATH" not in unneeded
    assert "  bearlake group describe readers\n" in unneeded
