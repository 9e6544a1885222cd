"""The lanes of the console's timeline of compaction, as Node.js computes them: which are drawn if there are too many."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from fixtures.documentation import ROOT

LANES = ROOT / "servers/bearlake/serving/console/static/lanes.js"
NOW_MS = 120_000
COUNT_MAX = 40

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (Debian: nodejs)"),
    pytest.mark.timeout(120),
]


def task(stream: str, start_ms: int, last_ms: int, state: str = "running") -> dict[str, Any]:
    return {"kind": "compact", "stream": stream, "startMs": start_ms, "lastMs": last_ms, "states": [{"state": state}]}


def drawn(tasks: list[dict[str, Any]], count_max: int = COUNT_MAX) -> list[str]:
    """The names of the lanes that are drawn for these tasks."""
    program = f"""{LANES.read_text()}
        const tasks = {json.dumps(tasks)}.sort((first, second) => first.startMs - second.startMs);
        console.log(JSON.stringify(chosenLanes(lanesOf(tasks), {count_max}).map((lane) => lane.name)));
    """
    words = ["node", "--input-type=module", "-"]
    done = subprocess.run(words, input=program, capture_output=True, text=True, check=True, timeout=60)
    names: list[str] = json.loads(done.stdout)
    return [name.removeprefix("compact ") for name in names]


QUIET = [task(f"quiet-{number:02}", 60_000 + number, 61_000 + number) for number in range(COUNT_MAX)]


def test_streams_that_work_now_are_drawn_although_they_were_seen_first() -> None:
    busy = [task("busy", start_ms, start_ms + 4_000) for start_ms in range(0, NOW_MS, 5_000)]
    names = drawn([*busy, task("stuck", -9_000_000, NOW_MS), *QUIET])

    assert names == ["busy", *(f"quiet-{number:02}" for number in range(2, COUNT_MAX)), "stuck"]


def test_a_stream_whose_task_is_quarantined_is_drawn_first_of_all() -> None:
    running = [task(f"running-{number:02}", 100_000, NOW_MS) for number in range(COUNT_MAX)]

    assert "sick" in drawn([task("sick", 0, 90_000, "quarantined"), *running])


def test_of_streams_that_work_now_those_that_work_longest_are_drawn() -> None:
    assert drawn([task("a", 30, NOW_MS), task("b", 10, NOW_MS), task("c", 20, NOW_MS)], 2) == ["b", "c"]


def test_lanes_are_in_the_order_of_names_and_tasks_at_once_below_each_other() -> None:
    assert drawn([task("b", 0, 10), task("b", 5, 20), task("a", 7, 9), task("b", 21, 30)]) == ["a", "b", "b"]
