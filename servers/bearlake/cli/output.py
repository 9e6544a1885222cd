"""Output for people (tables) and for programs (`--json`)."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """The option `--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> None:
    """Print rows under headings; `columns` maps keys of the rows to headings. Numbers are aligned right."""
    cells = [[_text(row.get(key)) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns.values(), *cells, strict=True)]
    is_number = [bool(rows) and all(isinstance(row.get(key), int | float) for row in rows) for key in columns]
    for index, line in enumerate([list(columns.values()), *cells]):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        text = "  ".join(padded).rstrip()
        click.echo(click.style(text, bold=True) if index == 0 else text)


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
