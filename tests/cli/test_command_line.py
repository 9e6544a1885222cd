"""The command line without a server: help, versions, wrong usage, exit codes, settings."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bearlake import __version__, errors
from bearlake.cli.main import exit_code, root, run
from fixtures.waiting import WAIT_S


def walk(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the words of each command, groups and hidden ones included, and the command."""
    yield words, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(child, (*words, name))


COMMANDS = dict(walk(root))
WITHOUT_JSON = {
    ("up",): "serves until it is stopped; --ready-file has its addresses as JSON",
    ("console",): "serves until it is stopped",
    ("serve", "kafka"): "serves until it is stopped; --ready-file has its addresses as JSON",
    ("serve", "pulsar"): "as above",
    ("serve", "rest"): "as above",
    ("serve", "grpc"): "as above",
    ("serve", "catalog"): "as above",
    ("serve", "compactor"): "as above",
    ("executor",): "is started by Spark's master",
    ("tour",): "shows people what it does; programs get its exit code",
    ("completion",): "prints a script for a shell",
}
"""Commands that print nothing that a program reads, with the reason."""
UNREACHABLE = ["--admin", "http://127.0.0.1:1"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert "Usage: bearlake" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [words for words, found in COMMANDS.items() if isinstance(found, click.Group)], ids=" ".join
)
def test_help_of_a_group_has_each_command_with_its_whole_sentence(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    assert run([*words, "--help"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    listed = {
        name: child
        for (*parents, name), child in (item for item in COMMANDS.items() if item[0])
        if tuple(parents) == words
    }
    sentences = {name: child.get_short_help_str(1_000) for name, child in listed.items() if not child.hidden}
    assert [name for name, sentence in sentences.items() if f"{name} {sentence}" not in shown] == []


def test_help_begins_with_what_starts_everything_and_takes_one_line_per_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert run(["--help"]) == 0

    _, _, listed = capsys.readouterr().out.partition("\nStart:\n")
    lines = [line for line in listed.splitlines() if line.startswith("  ")]
    assert lines[0].split()[0] == "up"
    assert sorted(line.split()[0] for line in lines) == sorted(
        name for name, found in root.commands.items() if not found.hidden
    )


def test_every_command_has_json_or_a_reason_not_to() -> None:
    single = {words: command for words, command in COMMANDS.items() if not isinstance(command, click.Group)}
    without = {
        words for words, command in single.items() if "--json" not in [o for p in command.params for o in p.opts]
    }

    assert without == set(WITHOUT_JSON)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"bearlake {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["no-such-command"],
        ["up", "--kafka-port", "70000"],
        ["up", "--no-tour", "--exit-after-tour"],
        ["stream", "create"],
        ["stream", "create", "a", "--partitions", "0"],
        ["stream", "create", "a", "--set", "novalue", *UNREACHABLE],
        ["stream", "list", "--admin", "127.0.0.1:9644"],
        ["produce", "s", "--header", "novalue"],
        ["produce", "s", "--format", "json", "--key-separator", ":"],
        ["produce", "s", "-X", "no.such.setting=1"],
        ["consume", "s", "--format", "%x"],
        ["consume", "s", "--group", "g", "--exit-at-end"],
        ["config", "show", "--config", "/no/such/file"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_exit_code_2_and_an_explanation(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "command",
    [
        ["stream", "list", *UNREACHABLE],
        ["stream", "create", "a", *UNREACHABLE],
        ["server", "list", *UNREACHABLE],
        ["top", "--once", *UNREACHABLE],
        ["compaction", "drain", *UNREACHABLE],
        ["consume", "s", "--bootstrap", "127.0.0.1:1"],
        ["produce", "s", "--bootstrap", "127.0.0.1:1", "--timeout-ms", "1000"],
    ],
    ids=" ".join,
)
def test_no_answer_ends_with_exit_code_3_and_names_the_address(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"record\n")))
    assert run(command) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Invalid("x"), 2),
        (errors.TooLarge("x", 2, 1), 2),
        (errors.Unavailable("x"), 3),
        (errors.Overloaded("x"), 3),
        (errors.NotFound("x"), 1),
        (errors.AlreadyExists("x"), 1),
        (errors.Denied("x"), 1),
        (errors.Conflict("x"), 1),
    ],
)
def test_error_kinds_have_exit_codes(error: errors.BearlakeError, code: int) -> None:
    assert exit_code(error) == code


def test_config_show_prints_a_settings_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARLAKE_KAFKA__DEFAULT_PARTITION_COUNT", "6")
    assert run(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert (
        "  default_partition_count: 6  # count, environment BEARLAKE_KAFKA__DEFAULT_PARTITION_COUNT; default 1" in shown
    )
    monkeypatch.delenv("BEARLAKE_KAFKA__DEFAULT_PARTITION_COUNT")
    path = tmp_path / "bearlake.yaml"
    path.write_text(shown)

    assert run(["config", "show", "--config", str(path), "--json"]) == 0

    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["kafka.default_partition_count"]["value"] == 6
    assert rows["kafka.default_partition_count"]["source"] == f"file {path}"


def test_config_show_changed_is_empty_when_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--changed"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("module", "command"), [("uvloop", "up"), ("aiohttp", "serve kafka"), ("confluent_kafka", "produce s")]
)
def test_a_command_names_the_extra_that_it_needs(module: str, command: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from bearlake.cli import main; sys.argv[1:] = {command.split()}; main()"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WAIT_S)

    assert result.returncode == 2
    assert "pip install 'bearlake[" in result.stderr
    assert len(result.stderr.splitlines()) == 1
