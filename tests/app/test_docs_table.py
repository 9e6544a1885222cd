"""The examples of docs/table.md work as described, with a real `bearlake up` that has compacted records."""

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.waiting import until
from fixtures.server_process import ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "table.md"
COUNT = 500


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs, with a stream `greetings` whose records are all in its table."""
    folder = tmp_path_factory.mktemp("lake")
    words = ("up", "--compaction", "--data-dir", folder / ".bearlake", "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as server:
        made = finished("stream", "create", "greetings", "--admin", server.admin, "--set", "table.freshness_ms=1000")
        assert made.returncode == 0, made.stderr
        lines = "".join(f"hello {number}\n" for number in range(COUNT)).encode()
        assert finished("produce", "greetings", "--bootstrap", server.kafka, stdin=lines).returncode == 0

        def is_compacted() -> bool:
            found = json.loads(finished("compaction", "backlog", "--admin", server.admin, "--json").stdout)
            return bool(found["record_count"] == 0)

        until(is_compacted, 60, "the records are in the table")
        yield folder, server
        assert server.stop() == 0


def test_commands_of_the_page_run_from_the_folder_of_up(lake: tuple[Path, ServerProcess]) -> None:
    folder, _ = lake
    shell = next(block for kind, block in blocks() if kind == "sh" and "bearlake sql" in block)

    said = [run(line, folder) for line in shell.strip().splitlines()]

    assert re.search(rf"0\s+{COUNT}\b", said[0])
    newest = json.loads(said[1])
    assert newest[0]["value"] == f"hello {COUNT - 1}"
    assert len(newest) == 5


def test_python_of_the_page_reads_the_table(lake: tuple[Path, ServerProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, server = lake
    code = "".join(block for kind, block in blocks() if kind == "python")
    assert "http://127.0.0.1:8181" in code
    code = code.replace("http://127.0.0.1:8181", server.ready["catalog"])
    monkeypatch.chdir(folder)
    said = io.StringIO()

    with contextlib.redirect_stdout(said):
        exec(compile(code, PAGE.name, "exec"), {})

    assert "_value: binary" in said.getvalue()
    assert said.getvalue().endswith(f"[({COUNT},)]\n")


def test_describe_shows_files_rows_and_lag(lake: tuple[Path, ServerProcess]) -> None:
    folder, _ = lake

    said = run("bearlake table describe greetings --timeline", folder)
    found = json.loads(run("bearlake table describe greetings --json", folder))

    assert "every committed record is in the table" in said
    assert "█" in said
    assert found["row_count"] == COUNT
    assert found["partitions"][0]["table_offset"] == found["partitions"][0]["end_offset"] == COUNT


def blocks() -> list[tuple[str, str]]:
    """The page's code blocks, with their kinds."""
    return re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(line: str, folder: Path) -> str:
    """The output of a command line that runs in the folder."""
    program = f"{sys.executable} -m bearlake"
    done = subprocess.run(
        line.replace("bearlake", program, 1),
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
