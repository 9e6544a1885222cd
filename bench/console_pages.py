"""The time until a page of the console is ready, in a deployment with many streams.

    python bench/console_pages.py [--streams 1000] [--partitions 10] [--repetitions 5] [--only PAGE] [--json FILE]

Starts `bearlake up` on a new folder, creates the streams, and opens each page in a browser as often as asked, each time with an empty
cache. A page is ready when its title is there, nothing says "Loading …", and a list has rows; the browser's own clock counts from the
start of the navigation. Goal: the median of each page is below one second. There is no peer.
Needs Chromium and playwright. Exit code 1: a page missed the goal, or shows an error.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench.errors import BenchError

from fixtures.console_lake import Lake, browser_path, launched, open_page
from fixtures.server_process import started

GOAL_MS = 1_000
DEADLINE_MS = 120_000
PAGES = {
    "overview": "",
    "streams": "streams",
    "one stream": "streams/stream-0000",
    "its partitions": "streams/stream-0000/partitions",
    "groups": "groups",
    "share groups": "share-groups",
    "subscriptions": "subscriptions",
    "tables": "tables",
    "compaction": "compaction",
    "settings": "settings",
}
WITH_ROWS = ("streams", "its partitions", "tables", "settings")
READY = """(needsRows) => document.querySelector("h1")?.textContent
    && !document.body.textContent.includes("Loading …")
    && (!needsRows || document.querySelectorAll("main tbody tr").length > 0)
    && performance.now()
    || document.querySelector("[role=alert]")?.textContent"""
"""Returns the time in ms, or the error that the page shows; false until then."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A page and its times, in ms."""

    page: str
    median_ms: float
    least_ms: float
    most_ms: float


def main() -> int:
    """Measure, print a table, and return the exit code."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--streams", type=int, default=1_000)
    words.add_argument("--partitions", type=int, default=10, help="of each stream")
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--only", action="append", choices=tuple(PAGES), help="a page; may be repeated")
    words.add_argument("--json", type=Path)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="bearlake-pages-") as folder:
        options = ("up", "--data-dir", f"{folder}/data", "--no-tour")
        with started(*options, ready_file=Path(folder) / "ready.json") as process:
            lake = Lake(process)
            for number in range(given.streams):
                lake.create(f"stream-{number:04}", given.partitions)
            found = measure(lake, given.only or list(PAGES), given.repetitions)
    print(
        f"{given.streams:,} streams, {given.streams * given.partitions:,} partitions; load average {os.getloadavg()[0]:.1f}"
    )
    print(f"{'page':16}{'median ms':>10}{'least':>8}{'most':>8}")
    for page in found:
        print(f"{page.page:16}{page.median_ms:10.0f}{page.least_ms:8.0f}{page.most_ms:8.0f}")
    if given.json:
        given.json.write_text(json.dumps([asdict(page) for page in found], indent=2))
    return int(any(page.median_ms >= GOAL_MS for page in found))


def measure(lake: Lake, pages: Sequence[str], repetitions: int) -> Sequence[Ready]:
    """Open each of the pages `repetitions` times, in turn; the first turn, which starts the browser's processes, does not count."""
    from playwright.sync_api import sync_playwright

    times: dict[str, list[float]] = {page: [] for page in pages}
    with sync_playwright() as driver:
        browser = launched(driver, browser_path())
        for turn in range(repetitions + 1):
            for page in pages:
                took = open_once(browser, lake, PAGES[page], needs_rows=page in WITH_ROWS)
                if turn:
                    times[page].append(took)
        browser.close()
    return [Ready(page, median(found), min(found), max(found)) for page, found in times.items()]


def open_once(browser: Any, lake: Lake, address: str, *, needs_rows: bool) -> float:
    """Return the ms until the page was ready. Raises `BenchError`: it shows an error."""
    context = browser.new_context(viewport={"width": 1360, "height": 860})
    tab = context.new_page()
    open_page(tab, lake, address)
    found = tab.wait_for_function(READY, arg=needs_rows, timeout=DEADLINE_MS).json_value()
    alerts = tab.locator("[role=alert]").all_text_contents()
    context.close()
    if alerts or isinstance(found, str):
        raise BenchError(f"the page {address or 'overview'} shows an error: {'; '.join(alerts) or found}")
    return float(found)


if __name__ == "__main__":
    sys.exit(main())
