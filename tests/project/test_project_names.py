"""Public names use the words of the glossary (`servers/DESIGN.md`, section 2) and of Kafka, Iceberg and Kubernetes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("servers/bearlake", "operator/bearlake_operator") for path in (ROOT / folder).rglob("*.py")
)
INSTEAD = {
    "aside": "quarantined",
    "beaten": "with_heartbeat",
    "blame": "count a failure",
    "bury": "cancel, close",
    "doubt": "unanswered, unknown outcome",
    "heard": "advance, renew a session",
    "misfit": "mismatch",
    "misfits": "mismatches",
    "nobody": "the missing thing: no producer, non-idempotent",
    "owe": "release later",
    "owed": "due",
    "patience": "retries, timeout",
    "settle": "finish, resolve, release",
    "settled": "finished, final",
    "together": "concurrency, run all",
    "told": "reply, returned",
    "undisturbed": "shielded",
    "waist": "stream API, stream service",
}
"""Words that do not say what happens, each with the field's term."""
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
        for path in SOURCES
        for name in public_names(path)
        if not name.startswith("_")
        for word in (part.lower() for part in WORD.findall(name))
        if word in INSTEAD
    }

    assert found == {}, "use instead"
