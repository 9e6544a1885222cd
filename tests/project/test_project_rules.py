"""Rules of the repository that linters do not check."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import bearlake
from fixtures.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
SIMULATOR = ROOT / "tests" / "simulator"
SOURCES = sorted([*(ROOT / "servers" / "bearlake").rglob("*.py"), *SIMULATOR.rglob("*.py")])
LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LONG_ON_PURPOSE = {"tests/simulator/scenario.py:draw_settings"}  # a list of draws, in an order that seeds rely on


def test_source_folders_hold_packages_only() -> None:
    for folder in ("operator", "servers"):
        assert list((ROOT / folder).glob("*.py")) == []
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if SIMULATOR not in path.parents] == []


def test_test_files_have_unique_names() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}

    assert {path: length for path, length in lengths.items() if length > LINES_MAX} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of each function, without its docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.name}", node.end_lineno - first.lineno + 1


def test_functions_fit_a_screen() -> None:
    long = {name: lines for path in SOURCES for name, lines in functions(path) if lines > FUNCTION_LINES_MAX}

    assert {name: lines for name, lines in long.items() if name not in LONG_ON_PURPOSE} == {}


def test_every_file_states_its_job() -> None:
    assert [str(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_source_has_open_todos() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")

    assert [str(path) for path in SOURCES if later.search(path.read_text())] == []


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == bearlake.__version__
    assert f"## {bearlake.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def pages() -> list[Path]:
    """Every Markdown page of the repository."""
    folders = ("bench", "charts", "docs", "operator", "servers", "tests")
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))])


def outside_of_code(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", outside_of_code(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def test_links_of_the_documentation_lead_somewhere() -> None:
    wrong = []
    for page in pages():
        for target in re.findall(r"\]\((?!\w+:)([^)\s]+)", outside_of_code(page)):
            path, _, anchor = target.partition("#")
            other = page.parent / path if path else page
            if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
                wrong.append(f"{page.relative_to(ROOT)} links to {target}")

    assert wrong == []


def test_some_page_links_to_every_page_of_the_documentation() -> None:
    linked = {
        (page.parent / path).resolve()
        for page in pages()
        for path in re.findall(r"\]\((?!\w+:)([^)\s#]+)", outside_of_code(page))
    }

    assert [page for page in pages() if ROOT / "docs" in page.parents and page.resolve() not in linked] == []


def test_the_guide_lists_every_file_that_can_skip_tests() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"`((?:\w+/)?\w+\.py)`", guide))
    can_skip = re.compile(r"pytest\.(mark\.)?(skip|skipif|importorskip)\(")

    files = [
        path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__) and can_skip.search(path.read_text())
    ]

    assert [str(path) for path in files if not {path.name, f"{path.parent.name}/{path.name}"} & listed] == []


@pytest.mark.parametrize(
    "target", ["up", "test", "check", "docs", "fuzz", "fuzz-kernel", "bench", "conformance", "venv", "clean"]
)
def test_make_has_the_targets_of_the_documentation(target: str) -> None:
    known = subprocess.run(
        ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S
    )

    assert known.returncode == 0, known.stderr


def test_make_names_the_pythons_that_it_wants(tmp_path: Path) -> None:
    script = ROOT / "tools" / "make-venv"

    result = subprocess.run(
        ["/bin/sh", script, tmp_path / "venv"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )

    assert result.returncode == 2
    assert "3.11, 3.12 or 3.13" in result.stderr
    assert not (tmp_path / "venv").exists()
