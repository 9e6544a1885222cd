"""Every command block of the documentation runs in a test, or a mark says why not."""

import re
from pathlib import Path

import pytest

from fixtures import documentation
from fixtures.documentation import DATA_KINDS, ROOT, Block, Command

FOLLOWED = {
    page: path.name
    for path in sorted(Path(__file__).parent.glob("test_docs_*.py"))
    for page in re.findall(r'\.follow\("([^"]+)"', path.read_text())
}
"""The pages that tests follow, each with its test."""
PAGES = documentation.pages()


def test_a_command_block_runs_or_says_why_not() -> None:
    silent = [
        f"{block.page}:{block.line}: {block.text.splitlines()[0]}"
        for page in PAGES
        for block in documentation.blocks(page)
        if block.is_command and block.reason is None and page not in FOLLOWED
    ]

    assert silent == [], "follow the page in tests/docs, or mark the block: <!-- not run: the reason -->"


def test_the_tests_follow_pages_that_have_blocks_to_run() -> None:
    idle = [
        page
        for page in FOLLOWED
        if not any(block.is_command and block.reason is None for block in documentation.blocks(page))
    ]

    assert idle == []


def test_the_main_pages_are_followed() -> None:
    names = ("getting-started", "kafka", "pulsar", "rest", "grpc", "table", "schema-registry", "operations")

    assert {"README.md", *(f"docs/{name}.md" for name in names)} <= set(FOLLOWED)


def test_the_tests_that_marks_name_read_the_page() -> None:
    marked = [block for page in PAGES for block in documentation.blocks(page) if block.test is not None]

    assert [f"{block.page}:{block.line}: {block.test}" for block in marked if not reads(block)] == []


def reads(block: Block) -> bool:
    """Whether the test that the block's mark names is there, and names the page."""
    path = ROOT / str(block.test)
    return path.is_file() and Path(block.page).name in path.read_text()


def test_blocks_have_a_known_kind() -> None:
    kinds = {block.kind for page in PAGES for block in documentation.blocks(page)}

    assert kinds <= documentation.COMMAND_KINDS | DATA_KINDS


def test_a_mark_stands_before_its_block() -> None:
    """A mark that no block follows would excuse nothing, and be forgotten."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        marks = re.findall(r"<!-- (?:not run|run by)\b", text)

        assert len(marks) == sum(block.reason is not None for block in documentation.blocks(page)), page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A page without blocks.", []),
        ("    bearlake up", [("", "bearlake up", None, None)]),
        ("```sh\nls\n\nls -l\n```", [("sh", "ls\n\nls -l", None, None)]),
        ("<!-- not run: a drawing -->\n```\n|\n```", [("", "|", "a drawing", None)]),
        ("<!-- not run: no cluster -->\n\n    helm ls\n\ntext\n\n    ls", [("", "helm ls", "no cluster", None), ("", "ls", None, None)]),
        ("<!-- run by tests/a/test_b.py: as it stands -->\n\n    ls", [("", "ls", "as it stands", "tests/a/test_b.py")]),
        ("<!-- not run: lost -->\ntext\n\n    ls", [("", "ls", None, None)]),
        ("- a list\n    whose item goes on", []),
        ("text\n\n    first\n\n    second\n\ntext", [("", "first\n\nsecond", None, None)]),
    ],
)  # fmt: skip
def test_blocks_of_a_page(text: str, expected: list[tuple[str, str, str | None, str | None]]) -> None:
    found = [(block.kind, block.text, block.reason, block.test) for block in documentation.parsed("page.md", text)]

    assert found == expected


def test_commands_of_a_block() -> None:
    text = "# a comment\nls \\\n  -l\necho 1\n#= 1\ncat > x <<'END'\na\nEND\n\nrm x\n#=\n"
    block = Block(page="page.md", line=5, kind="sh", text=text)

    assert documentation.commands(block) == [
        Command(line=6, text="ls \\\n  -l"),
        Command(line=8, text="echo 1", answer="1"),
        Command(line=10, text="cat > x <<'END'\na\nEND"),
        Command(line=14, text="rm x", answer=""),
    ]
