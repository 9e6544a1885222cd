"""Commands and options of `bearlake` that pages name exist, in blocks, in tables and in sentences; so do the targets of make."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from bearlake.cli.main import root
from fixtures import documentation
from fixtures.documentation import ROOT

PAGES = [page for page in documentation.pages() if not page.startswith("docs/reference/")]
LINE = re.compile(r"(?:^ *|[|;&(] *| -- )(bearlake [a-z][^`|;&()\n]*)")
OPTION = re.compile(r"-{1,2}[a-z][\w-]*")


def lines(text: str) -> Iterator[str]:
    """Command lines of `bearlake` in code: inline, and in blocks. Continued lines are one line."""
    text = text.replace("\\\n", " ")
    yield from (found[1] for code in re.findall(r"`([^`\n]+)`", text) for found in LINE.finditer(code))
    yield from (found[1] for line in text.splitlines() if line.startswith("    ") for found in LINE.finditer(line))
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from (found[1] for line in block.splitlines() for found in LINE.finditer(line))


def unknown(line: str) -> list[str]:
    """The words of a command line that name no command and no option."""
    words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", line.partition("#")[0])[1:]
    command: click.Command = root
    wrong = []
    while words and isinstance(command, click.Group):
        found = command.commands.get(words[0])
        if found is None:
            return [] if words[0].startswith(("-", "…", "COMMAND")) else [words[0]]
        command, words = found, words[1:]
    known = {"--help", "-h"} | {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if OPTION.fullmatch(word.partition("=")[0]) and word.partition("=")[0] not in known:
            wrong.append(word)
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_names_exist(page: str) -> None:
    found = {line: words for line in lines((ROOT / page).read_text()) if (words := unknown(line))}

    assert found == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bearlake sql 'select 1 -- a comment' --json", []),
        ("bearlake stream create a --partitions 3 -x", ["-x"]),
        ("bearlake stream vanish a", ["vanish"]),
        ("bearlake up --kafka-processes 4 --fast", ["--fast"]),
    ],
)
def test_a_wrong_word_is_found(line: str, expected: list[str]) -> None:
    assert unknown(line) == expected


def test_lines_are_found_in_sentences_blocks_and_tables() -> None:
    text = "Run `bearlake top`, or:\n\n    echo a | bearlake produce b\n\n"
    text += "| c | `bearlake up --help` |\n\n```sh\nbearlake sql \\\n  x\n```\n"

    assert [shlex.join(line.split()) for line in lines(text)] == [
        "bearlake top",
        "bearlake up --help",
        "bearlake produce b",
        "bearlake sql x",
    ]
