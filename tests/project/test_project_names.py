"""Public names use the words of the glossary (`servers/DESIGN.md`, section 2) and of Kafka, Iceberg and Kubernetes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("servers/bearlake", "operator/bearlake_operator") for path in (ROOT / folder).rglob("*.py")
)
PROGRAMS = [ROOT / "tools/requirements", ROOT / "tools/settings-reference", ROOT / "hatch_build.py"]
ALL = SOURCES + PROGRAMS + sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
WORDED = SOURCES + sorted(
    path for folder in ("bench", "tests/simulator", "tests/nemesis") for path in (ROOT / folder).rglob("*.py")
)
"""Files whose public names appear in documentation and reports."""
INSTEAD = {
    "aside": "quarantined",
    "beaten": "with_heartbeat",
    "blame": "count a failure",
    "bury": "cancel, close",
    "doubt": "unanswered, unknown outcome",
    "doubted": "unverified",
    "entrance": "listener login",
    "heard": "advance, renew a session",
    "judge": "decide (a batch), check (a history)",
    "judged": "decided, checked",
    "misfit": "mismatch",
    "misfits": "mismatches",
    "nobody": "the missing thing: no producer, non-idempotent",
    "noted": "stored, recorded",
    "owe": "release later",
    "owed": "due",
    "patience": "retries, timeout",
    "proven": "verified",
    "said": "present, returned",
    "settle": "finish, resolve, release",
    "settled": "finished, final",
    "together": "concurrency, run all",
    "told": "reply, returned",
    "undisturbed": "shielded",
    "unruled": "by default",
    "unsaid": "absent",
    "waist": "stream API, stream service",
    "wanted": "requested, desired",
}
"""Words that do not say what happens, each with the field's term."""
VAGUE = ("each", "every", "one", "some")
"""Names of variables that do not say what they hold or iterate over."""
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.MatchAs, ast.MatchStar, ast.ExceptHandler)
"""The nodes that bind their `name`."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def public_names(path: Path) -> Iterator[str]:
    """Yield the module's name, and the names of its public classes, functions, parameters and constants."""
    yield path.stem
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield from (argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_public_names_use_the_words_of_the_field() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": INSTEAD[word]
        for path in WORDED
        for name in public_names(path)
        if not name.startswith(("_", "test_"))
        for word in (part.lower() for part in WORD.findall(name))
        if word in INSTEAD
    }

    assert found == {}, "use instead"


def bound_names(path: Path) -> Iterator[tuple[int, str]]:
    """The line and name of every variable, parameter, function and method."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, NAMED) and node.name is not None:
            yield node.lineno, node.name


def test_variables_name_what_they_hold() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}" for path in ALL for line, name in bound_names(path) if name in VAGUE
    ]

    assert found == [], "name the batch, partition, member, stream, field, ..."
