"""Hooks of the documentation's site (mkdocs.yml): pages outside of `docs/` become part of the site if links lead to them.

`docs/` is the site's root; `servers/DESIGN.md` becomes `repository/servers/DESIGN.md`. The hooks follow the links of all pages, add the
pages and files that they lead to, and rewrite the links. A link to a folder leads to its README.md; if it has none, only the link's text
stays.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
OUTSIDE = "repository"
"""The folder of the site for pages from outside of `docs/`."""
_TOKEN = re.compile(
    r"^```.*?^```|`[^`\n]+`|\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)",
    re.DOTALL | re.MULTILINE,
)
"""Code, or a link to another file."""


def on_files(files: Any, *, config: Any) -> Any:  # mkdocs' own classes
    """Add what links lead to."""
    from mkdocs.structure.files import File

    waiting = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        for target in _targets(path, (ROOT / path).read_text(encoding="utf-8")):
            if target in seen or target.startswith(f"{DOCS}/"):
                continue
            seen.add(target)
            files.append(File.generated(config, site_path(target), abs_src_path=str(ROOT / target)))
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # as above
    """Return the page's text with links that work in the site."""
    return rewritten(markdown, repository_path(page.file.src_uri))


def site_path(path: str) -> str:
    """Return the place in the site of a file of the repository."""
    return path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else f"{OUTSIDE}/{path}"


def repository_path(path: str) -> str:
    """Return the file of the repository that has this place in the site."""
    return path.removeprefix(f"{OUTSIDE}/") if path.startswith(f"{OUTSIDE}/") else f"{DOCS}/{path}"


def rewritten(text: str, path: str) -> str:
    """Return the text of the page at `path` (in the repository) with the links of the site."""

    def link(found: re.Match[str]) -> str:
        if found["target"] is None:
            return found[0]
        target = _resolved(path, found["target"])
        if target is None:
            return found["label"]
        place = posixpath.relpath(site_path(target), posixpath.dirname(site_path(path)))
        return f"[{found['label']}]({place}{found['anchor'] or ''})"

    return _TOKEN.sub(link, text)


def _targets(path: str, text: str) -> Iterator[str]:
    links = (found["target"] for found in _TOKEN.finditer(text) if found["target"] is not None)
    return (target for target in (_resolved(path, link) for link in links) if target is not None)


def _resolved(path: str, target: str) -> str | None:
    """Return the file of the repository to which a link of the page leads; None: a folder without README.md, or nothing."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if (ROOT / found).is_dir():
        found = f"{found}/README.md"
    return found if (ROOT / found).is_file() else None
