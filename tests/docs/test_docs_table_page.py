"""The commands of docs/table.md work as they stand, with DuckDB, PyIceberg and Spark on the tables that a compaction worker has written."""

import json
import re
from pathlib import Path

import pytest

from fixtures.documented_machine import beside_up

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_table(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--compaction", "--no-tour") as machine:
        ran = machine.follow("docs/table.md")
        timeline = machine.run("bearlake table describe greetings --timeline")
        described = json.loads(machine.run("bearlake table describe greetings --json"))

    assert re.search(r"\b0\s+0\s+hello, table$", ran.output("bearlake sql"), re.MULTILINE)
    newest = next(done.output for done in ran.done if done.text.endswith("--json"))
    assert json.loads(newest) == [{"_offset": 0, "value": "hello, table"}]
    assert "_value: binary" in ran.output("from pyiceberg.catalog")
    assert ran.output("connection =") == "[(1,)]\n"
    assert re.search(r"\b7\s+boat\s+0$", ran.output('bearlake sql "select id'), re.MULTILINE)
    users = next(done.output for done in ran.done if "row_number()" in done.text)
    assert [line.split()[1] for line in users.splitlines()[1:]] == ["2"]
    assert "every committed record is in the table" in timeline
    assert "█" in timeline
    assert described["row_count"] == 1
    if "spark-sql" not in ran.missing:
        assert ran.output("spark-sql").split() == ["1"]
    ran.skip_if_incomplete()
