"""The checker imports nothing of the code that it checks, not even of the simulation."""

import ast
import sys
from pathlib import Path

from simulator import history

PACKAGE = Path(history.__file__).parent


def test_the_checker_imports_itself_and_the_standard_library_only() -> None:
    found = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")

    own = {name for name in found if name.startswith("simulator.history")}
    assert own
    assert {name.partition(".")[0] for name in found - own} <= sys.stdlib_module_names
