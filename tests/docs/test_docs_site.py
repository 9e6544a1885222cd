"""The site that `make docs` builds: all links of its pages lead to files and anchors of the site, and it loads nothing from other hosts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typing_extensions import override

from fixtures.documentation import ROOT
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Page(HTMLParser):
    """The links and the anchors of an HTML page, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loaded += [given[name] for name in ("src", "href") if tag != "a" and name in given]


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(configuration), "--site-dir", str(site)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=4 * WAIT_S, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """All pages of the site by file."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if path.name != "404.html"}


def dead(site: dict[Path, Page]) -> Iterator[str]:
    """The links of the site that lead nowhere."""
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (target in site and unquote(parts.fragment) not in site[target].anchors):
                yield f"{path.name} links to {link}"


def test_links_of_the_site_lead_somewhere(site: dict[Path, Page]) -> None:
    assert len(site) > 200
    assert sorted(set(dead(site))) == []


def test_the_site_loads_nothing_from_other_hosts(site: dict[Path, Page]) -> None:
    outside = {link for page in site.values() for link in page.loaded if urlsplit(link).netloc}

    assert outside == set()


def test_pages_outside_of_docs_are_part_of_the_site(site: dict[Path, Page]) -> None:
    names = {str(path).partition("/repository/")[2] for path in site}

    assert {"servers/DESIGN.html", "operator/DESIGN.html", "bench/index.html", "CHANGELOG.html"} <= names


@pytest.mark.parametrize("link", ["[gone](gone.md)", "[gone](kafka.md#gone)", "[gone](../gone.md)"])
def test_a_dead_link_fails_the_build(tmp_path: Path, link: str) -> None:
    """A small site with the same rules: one page links to another."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text(f"# Start\n\n[Kafka](kafka.md#served)\n\n{link}\n")
    (tmp_path / "docs" / "kafka.md").write_text("# Kafka\n\n## Served\n")
    text = (ROOT / "mkdocs.yml").read_text()
    rules = text[text.index("validation:") : text.index("nav:\n")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\nstrict: true\n{rules}\n")

    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode == 1
    shutil.copy(tmp_path / "docs" / "kafka.md", tmp_path / "docs" / "README.md")
    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode == 0


def test_the_navigation_names_every_page_of_docs() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = set(re.findall(r"([\w/-]+\.md)$", text, re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}

    assert {page for page in pages if not page.startswith("decisions/0")} == named
