"""Output for people (tables) and for programs (`--json`). All commands write through this module.

Names that clients chose (transactional ids, groups, configs, users) could contain terminal commands: to move the cursor, to change the
window's title, to let the terminal type an answer. So characters that are not printable leave this module escaped. Records are different:
`bearlake consume` writes them as they are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """The option `--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def say(text: object, *, is_error: bool = False, is_bold: bool = False) -> None:
    """Print lines, on standard error with `is_error`."""
    shown = "\n".join(map(printable, str(text).split("\n")))
    click.echo(click.style(shown, bold=True) if is_bold else shown, err=is_error)


def printable(text: str) -> str:
    """Return the text on one line, with escapes (`\\x1b`) for characters that terminals may interpret or do not show."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    lines = json.dumps(document, indent=2, ensure_ascii=False).split("\n")
    click.echo("\n".join(line if line.isprintable() else "".join(map(_in_json, line)) for line in lines))


def _in_json(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"


def print_table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> None:
    """Print rows under headings; `columns` maps keys of the rows to headings. Numbers are aligned right."""
    headings = [printable(heading) for heading in columns.values()]
    cells = [[printable(_text(row.get(key))) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_number = [bool(rows) and all(isinstance(row.get(key), int | float) for row in rows) for key in columns]
    for index, line in enumerate([headings, *cells]):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        say("  ".join(padded).rstrip(), is_bold=index == 0)


def _text(value: object) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
