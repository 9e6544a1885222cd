"""Output for people (tables) and for programs (`--json`).

Names and values come from other people. `printable` escapes what a terminal would obey: the tables, the JSON and the error lines of all
commands go through it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

NOTICE_S = 5.0
"""How long (s) a command waits for a first answer without a word."""

_SUSPECT = re.compile(r"[^ -~]")


def json_option(command: F) -> F:
    """The option `--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def printable(text: str, *, kept: str = "") -> str:
    r"""Escape all characters that are not printable, as Python does (`\x1b`, `\u202e`), except those in `kept`.

    These are the control characters that a terminal obeys (move, erase, set the title, paste), line breaks, and characters that reverse or
    hide text. What remains is safe to show. Source: Unicode categories Cc, Cf, Cs, Co, Cn, Zl, Zp and Zs without the space.
    """

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        return character if character.isprintable() or character in kept else repr(character)[1:-1]

    return _SUSPECT.sub(escaped, text)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return the document as JSON that is safe to show: characters that are not printable are escaped as JSON does."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if character.isprintable() or character == "\n":
            return character
        return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"

    return _SUSPECT.sub(escaped, text)


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    click.echo(json_text(document, indent=2))


def say(text: object, *, is_error: bool = False, is_bold: bool = False) -> None:
    """Print lines, on standard error with `is_error`. Names in them that could have line breaks need `printable` first."""
    shown = printable(str(text), kept="\n")
    click.echo(click.style(shown, bold=True) if is_bold else shown, err=is_error)


def counted(count: int, noun: str) -> str:
    """Return such as "1 file" or "2,000 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> None:
    """Print rows under headings; `columns` maps keys of the rows to headings. Numbers are aligned right."""
    for index, text in enumerate(table_lines(rows, columns)):
        say(text, is_bold=index == 0)


def table_lines(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> list[str]:
    """Return the lines of a table, the headings first, all printable."""
    headings = [printable(heading) for heading in columns.values()]
    cells = [[printable(_text(row.get(key))) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_number = [bool(rows) and all(isinstance(row.get(key), int | float) for row in rows) for key in columns]
    lines = []
    for line in [headings, *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


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
