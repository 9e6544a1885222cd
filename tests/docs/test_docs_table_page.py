"""The commands of docs/table.md work as they stand, with DuckDB, PyIceberg and Spark on the tables that a compaction worker has written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fixtures.documented_machine import Machine, beside_up

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


DESCRIPTIONS_MAX = 60


def the_current_table(machine: Machine) -> dict[str, Any]:
    """What the command says about the current table, once a worker has made it: each call takes a second."""
    for _ in range(DESCRIPTIONS_MAX):
        found: dict[str, Any] = json.loads(machine.run("bearlake table describe customers --json"))["current"]
        if found["row_count"] and not found["lag"]:
            return found
    raise AssertionError(f"no current table: {found}")


def test_table(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--compaction", "--no-tour") as machine:
        ran = machine.follow("docs/table.md")
        timeline = machine.run("bearlake table describe greetings --timeline")
        described = json.loads(machine.run("bearlake table describe greetings --json"))
        current = the_current_table(machine)
        customers = machine.run('bearlake sql "select decode(_key) k, decode(_value) v from customers_current" --json')
        told = machine.run("bearlake table describe customers")

    assert re.search(r"\b0\s+0\s+hello, table$", ran.output("bearlake sql"), re.MULTILINE)
    newest = next(done.output for done in ran.done if done.text.endswith("--json"))
    assert json.loads(newest) == [{"_offset": 0, "value": "hello, table"}]
    assert "_value: binary" in ran.output("from pyiceberg.catalog")
    assert ran.output("connection =") == "[(1,)]\n"
    assert re.search(r"\b7\s+boat\s+0$", ran.output('bearlake sql "select id'), re.MULTILINE)
    assert re.search(
        r"\bann\s+3\s+2$", ran.output('bearlake sql "select decode(_key) as name'), re.MULTILINE
    )  # drained
    users = next(done.output for done in ran.done if "row_number()" in done.text)
    assert [line.split()[1] for line in users.splitlines()[1:]] == ["2"]
    assert "every committed record is in the table" in timeline
    assert "█" in timeline
    assert described["row_count"] == 1
    assert current["row_count"] == 1
    assert current["ends"] == {"0": 4}
    assert json.loads(customers) == [{"k": "ann", "v": "3"}]
    assert "current table streams.customers_current: 1 key, " in told
    if "spark-sql" not in ran.missing:
        assert ran.output("spark-sql").split() == ["1"]
    ran.skip_if_incomplete()
