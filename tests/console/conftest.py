"""A browser on the machine, and a lake whose console it opens.

`BEARLAKE_TEST_SCREENSHOTS=FOLDER` keeps a picture of each page there.

A browser belongs to one module: its driver keeps an event loop running in the thread, and asynchronous tests need that thread.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.compacted_folder import compact
from fixtures.console_lake import Lake, browser_path, fill, launched
from fixtures.server_process import started
from fixtures.waiting import WAIT_S

WAIT_MS = WAIT_S * 1000
SIZE = {"width": 1360, "height": 860}


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The machine's browser; skips where there is none."""
    found = browser_path()
    if found is None:
        pytest.skip("needs Chromium on PATH (Debian: chromium)")
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, chromium_path: str) -> Iterator[Lake]:
    """`bearlake up` with some records."""
    folder = tmp_path_factory.mktemp("console")
    config = folder / "settings.yaml"
    config.write_text(
        f"catalog: {{sql: {{deadline_ms: {WAIT_MS:.0f}}}}}\n"
    )  # on a busy machine, a process starts slowly
    words = ("up", "--data-dir", folder / "data", "--config", config, "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as process:
        running = Lake(process, folder / "data")
        fill(running)
        compact(folder / "data")
        yield running


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Any]:
    """A headless browser (Any: playwright's types are not installed everywhere)."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)"
    )
    with sync_api.sync_playwright() as driver:
        running = launched(driver, chromium_path)
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, lake: Lake) -> Iterator[Any]:
    """A new tab; the test fails if the page's scripts fail or break the content security policy."""
    context = browser.new_context(viewport=SIZE, locale="en", timezone_id="UTC", permissions=["clipboard-write"])
    tab = context.new_page()
    tab.set_default_timeout(WAIT_MS)
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield tab
    context.close()

    assert [text for text in problems if "Failed to load resource" not in text] == []


@pytest.fixture
def keep_picture(tmp_path: Path) -> Any:
    """A function that keeps a picture of a tab under a name."""
    folder = Path(os.environ.get("BEARLAKE_TEST_SCREENSHOTS", tmp_path))

    def keep(tab: Any, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=folder / f"{name}.png")

    return keep
