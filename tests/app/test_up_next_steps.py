"""The lines that `bearlake up` prints for a first try work as they stand, also with a data folder and a settings file of their own."""

import shlex
from pathlib import Path

import pytest

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
        ("stream", "produce", "consume", "sql"), 0
    ), {name: result.stderr.decode() for name, result in results.items()}
    assert results["consume"].stdout == b"hello, lake\n"
