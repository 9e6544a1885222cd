"""A newcomer who follows README.md and docs/getting-started.md, on what `make up` starts, sees what the pages promise."""

import re
import subprocess
from pathlib import Path

import pytest

from fixtures.documentation import ROOT
from fixtures.documented_machine import beside_up
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_newcomer_follows_readme_and_getting_started(tmp_path: Path) -> None:
    """Nothing is on PATH at first. The second page continues where the first one ends; the tour is the last command that it names."""
    with beside_up(tmp_path, "--compaction", "--no-tour", is_prepared=False) as machine:
        readme = machine.follow("README.md")
        page = machine.follow("docs/getting-started.md")
        tour = machine.run("bearlake tour --table")

    assert readme.output("bearlake consume") == "hello, lake\n"
    assert "[{'id': 7, 'item': 'boat'}]" in readme.output("from confluent_kafka"), "PyIceberg"
    assert re.search(r"│ +7 │ boat +│", readme.output("from confluent_kafka")), "DuckDB"
    assert re.search(r"^ *7 +boat$", readme.output("bearlake sql"), re.MULTILINE)
    before, after = (done.output for done in readme.done if done.text.startswith("bearlake consume orders"))
    assert before == after
    assert "b   o   a   t" in before
    shown = readme.output("bearlake top")
    assert re.search(r"^readers\s+1\b", shown, re.MULTILINE), shown
    assert re.search(r"^readers +classic +empty +0 +1 ", readme.output("bearlake group describe"), re.MULTILINE)
    assert re.search(r"^greetings\b", shown, re.MULTILINE), shown
    records = [line.split(maxsplit=3) for line in page.output("bearlake consume").splitlines()]
    rows = [line.split(maxsplit=3) for line in page.output("bearlake sql").splitlines()[1:]]
    assert sorted(key for _, _, key, _ in records) == ["ann", "ann", "bob"]
    assert [value for _, _, key, value in records if key == "ann"] == ["hello", "bye"]
    assert rows == sorted(records)
    assert "every committed record is in the table" in page.output("bearlake table describe")
    counted = "10,000 records counted by SQL, 10,000 different offsets"
    assert f"{counted}: every acknowledged record, at once" in tour
    assert f"{counted}, from Parquet alone" in tour
    assert "each exactly once and in order, from Parquet" in tour
    assert readme.output("spark-sql").split() == ["7", "boat"]
    readme.skip_if_incomplete()


def test_make_up_starts_bearlake_up() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "up", "ARGS=--no-tour"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )

    assert done.stdout.splitlines()[-1].endswith("exec .venv/bin/bearlake up --no-tour")


@pytest.mark.parametrize("target", re.findall(r"^    make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
def test_make_has_the_targets_of_the_readme(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, timeout=WAIT_S, check=False)

    assert done.returncode == 0
