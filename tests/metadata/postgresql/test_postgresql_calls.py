"""Calls of stored functions: each gives all parameters, by the names that the function has."""

import ast
import inspect
import re
from importlib import resources

import pytest

from bearlake.metadata.compaction import Swap, TaskClaim
from bearlake.metadata.model import Lease, ObjectCommit, ServerRef
from bearlake.metadata.postgresql import calls, commit, swap, tasks, transactions
from bearlake.metadata.postgresql.calls import call, of_lease
from bearlake.metadata.transactions import Transaction

PACKAGE = resources.files("bearlake.metadata.postgresql")
SERVER = ServerRef(node_id=0, epoch=1)
CLAIM = TaskClaim(task_id=1, epoch=1, worker=SERVER)
ROW = Transaction(transactional_id="x", producer_id=0, epoch=0)
SPREAD = {
    "of_lease(lease)": set(of_lease(Lease(name="a", holder=SERVER, epoch=1))),
    "_of_claim(claim)": set(tasks._of_claim(CLAIM)),
    "arguments(commit, runs)": set(
        commit.arguments(ObjectCommit(token="a", server=SERVER, size=0, batches=[]), commit.runs_of([]))
    ),
    "_whole(after, version)": set(transactions._whole(ROW, 0)),
    "_fields(after, version)": set(transactions._fields(ROW, 0)),
    "swaps.arguments(swap)": set(swap.arguments(Swap(claim=CLAIM, objects=[]))),
}
"""Names that a `**` in a call stands for."""


def parameters_of_functions() -> dict[str, set[str]]:
    found = {}
    for file in PACKAGE.joinpath("functions").iterdir():
        for name, parameters in re.findall(
            r"create or replace function bearlake\.(\w+)\((.*?)\)\s*(?:language|returns)",
            file.read_text("utf-8"),
            re.DOTALL,
        ):
            found[name] = set(re.findall(r"\bp_(\w+)", parameters))
    return found


def calls_of_package() -> list[tuple[str, str, set[str]]]:
    found = []
    for file in PACKAGE.iterdir():
        if not file.name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "call":
                function = ast.literal_eval(node.args[0])
                names: set[str] = set()
                for keyword in node.keywords:
                    names |= SPREAD[ast.unparse(keyword.value)] if keyword.arg is None else {keyword.arg}
                found.append((file.name, function, names))
    return found


@pytest.mark.parametrize(("file", "function", "names"), sorted(calls_of_package(), key=lambda call: call[:2]))
def test_a_call_names_the_parameters_of_its_function(file: str, function: str, names: set[str]) -> None:
    assert names == parameters_of_functions()[function], file


def test_functions_are_called_by_name() -> None:
    texts = {file.name: file.read_text("utf-8") for file in PACKAGE.iterdir() if file.name.endswith(".py")}
    by_position = [
        (name, found) for name, text in texts.items() for found in re.findall(r"bearlake\.\w+\(\$\d.*", text)
    ]

    assert by_position == []


def test_a_call_is_a_statement_and_its_values() -> None:
    assert call("acquire_lease", name="a", node_id=1) == (
        "select * from bearlake.acquire_lease(p_name => $1, p_node_id => $2)",
        "a",
        1,
    )
    assert call("token_result", "log_position", token="b") == (
        "select log_position from bearlake.token_result(p_token => $1)",
        "b",
    )
    assert inspect.signature(calls.call).parameters["function"].kind is inspect.Parameter.POSITIONAL_ONLY
