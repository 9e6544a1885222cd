"""Shell completion: the scripts, and names of streams and groups from the admin API."""

import socket
import subprocess
from collections.abc import Iterator

import pytest

from bearlake.cli.main import run
from fixtures.server_process import ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete --no-files")]
)
def test_each_shell_gets_its_script(shell: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert word in shown
    assert "_BEARLAKE_COMPLETE" in shown


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "cmd.exe"]) == 2
    assert "bash" in capsys.readouterr().err


def test_bash_accepts_its_script() -> None:
    script = finished("completion", "bash").stdout

    result = subprocess.run(
        ["bash", "-euc", script.decode() + "\ncomplete -p bearlake"],
        capture_output=True,
        check=False,
        timeout=WAIT_S,
        env=clean_environment(),
    )

    assert result.returncode == 0, result.stderr
    assert b"_bearlake_completion" in result.stdout


def completions(line: str, environ: dict[str, str]) -> list[str]:
    """What the shell offers for the last word of the line."""
    words = line.split(" ")
    asked = {
        **environ,
        "_BEARLAKE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = finished(environ=asked)
    assert result.stderr == b""
    return [row.partition(",")[2] for row in result.stdout.decode().splitlines() if row]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("completion")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        environ = {"BEARLAKE_ADMIN": process.admin, "BEARLAKE_BOOTSTRAP": process.kafka}
        assert finished("stream", "create", "orders", "order-lines", "returns", environ=environ).returncode == 0
        assert finished("produce", "orders", stdin=b"x\n", environ=environ).returncode == 0
        for group in ("billing", "evil$(reboot)", "two words"):
            words = ["consume", "orders", "-g", group, "--from-beginning", "-c", 1]
            assert finished(*words, environ=environ).returncode == 0
        yield process


@pytest.mark.integration
def test_names_of_streams_and_groups_complete(server: ServerProcess) -> None:
    environ = {"BEARLAKE_ADMIN": server.admin}

    assert completions("bearlake consume ord", environ) == ["order-lines", "orders"]
    assert completions("bearlake stream describe re", environ) == ["returns"]
    assert completions("bearlake stream delete orders o", environ) == ["order-lines"]
    assert completions("bearlake table describe ", environ) == ["order-lines", "orders", "returns"]
    assert completions(f"bearlake stream describe --admin {server.admin} re", {}) == ["returns"]


@pytest.mark.integration
def test_names_that_a_shell_would_obey_are_not_offered(server: ServerProcess) -> None:
    assert completions("bearlake consume orders --group ", {"BEARLAKE_ADMIN": server.admin}) == ["billing"]


def test_commands_and_options_complete_without_a_server() -> None:
    environ = {"BEARLAKE_ADMIN": "http://127.0.0.1:1"}

    assert "doctor" in completions("bearlake do", environ)
    assert completions("bearlake consume ord", environ) == []
    assert completions("bearlake consume ord", {"BEARLAKE_ADMIN": "nonsense"}) == []
    assert "--json" in completions("bearlake top --js", environ)


def test_a_server_that_does_not_answer_does_not_stop_the_shell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"

        assert completions("bearlake consume ord", {"BEARLAKE_ADMIN": address}) == []
