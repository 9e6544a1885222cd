"""Names that clients chose reach a terminal only escaped: they could move the cursor, set the title, or forge lines."""

import ast
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bearlake.cli import output
from bearlake.cli.main import root, run
from bearlake.errors import NotFound

HOSTILE = {
    "\x1b[2J\x1b[31mred": "\\x1b[2J\\x1b[31mred",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x9b31m": "\\x9b31m",
    "a\rb": "a\\rb",
    "a\nb  c": "a\\nb  c",
    "\x7f\x08": "\\x7f\\x08",
    "\u202etxt.exe\u2066": "\\u202etxt.exe\\u2066",
    "a\u2028b\u200bc": "a\\u2028b\\u200bc",
    "\udcff": "\\udcff",
    "\U000e0041": "\\U000e0041",
}
PLAIN = ["größe", "日本", "\U0001f9ca", "a b", "\\x1b"]
CLI = Path(output.__file__).parent
OWN_OUTPUT = {"completion.py", "config.py", "display.py", "doctor.py", "output.py", "progress.py"}
"""Files that call click.echo: scripts, settings of this machine, the module that escapes, and three whose lines it has escaped."""


def shown(write: object) -> str:
    """What a terminal would get: with colours."""
    command = click.Command("test", callback=write)  # type: ignore[arg-type]
    result = CliRunner().invoke(command, color=True)
    assert result.exception is None, result.exception
    return result.output


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_has_escapes_for_what_a_terminal_would_interpret(name: str) -> None:
    text = shown(
        lambda: output.print_table([{"a": name, "b": [name], "c": {name: name}}], {"a": "A", "b": "B", "c": "C"})
    )

    escaped = HOSTILE[name]
    assert text.splitlines()[1:] == [f"{escaped}  {escaped}  {escaped}={escaped}"]


@pytest.mark.parametrize("name", PLAIN)
def test_printable_names_are_shown_as_they_are(name: str) -> None:
    assert shown(lambda: output.print_table([{"a": name}], {"a": "A"})).splitlines()[1] == name
    assert shown(lambda: output.print_json({"a": name})) == json.dumps({"a": name}, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_json_is_the_same_document_with_escapes(name: str) -> None:
    text = shown(lambda: output.print_json([{name: name}]))

    assert json.loads(text) == [{name: name}]
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", HOSTILE)
def test_lines_have_escapes_too(name: str) -> None:
    text = shown(lambda: output.say(f"group {output.printable(name)}: gone", is_error=True))

    assert text == f"group {HOSTILE[name]}: gone\n"


def test_an_error_that_quotes_a_server_has_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise NotFound("no group \x1b]0;x\x07\nnext line")

    monkeypatch.setitem(root.commands, "server", click.Command("server", callback=fail))

    assert run(["server"]) == 1
    assert capsys.readouterr().err == "bearlake: no group \\x1b]0;x\\x07\nnext line\n"


def test_commands_write_only_through_the_module_that_escapes() -> None:
    writing = set()
    for path in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("echo", "secho"):
                writing.add(path.name)
            if isinstance(node, ast.Name) and node.id == "print":
                writing.add(path.name)

    assert writing == OWN_OUTPUT
