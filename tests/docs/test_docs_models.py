"""The models of docs/sizing.md and docs/cost.md print what the pages show, and docs/monitoring.md explains every alert of the chart."""

import contextlib
import io
import re

import pytest
import yaml

from fixtures import documentation
from fixtures.documentation import PYTHON_KINDS, ROOT

ALERTS = yaml.safe_load((ROOT / "charts/bearlake/files/monitoring/alerts.yaml").read_text())
LASTS = {"m": "minute", "h": "hour"}


@pytest.mark.parametrize("page", ["docs/sizing.md", "docs/cost.md"])
def test_a_model_prints_what_its_page_shows(page: str) -> None:
    names: dict[str, object] = {}
    shown = ""
    for block in documentation.blocks(page):
        if block.kind in PYTHON_KINDS:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(block.text, page, "exec"), names)
            shown = said.getvalue()
        elif block.kind == "text":
            assert block.text.splitlines() == shown.splitlines(), f"{page}:{block.line}"


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    sections = dict(re.findall(r"^### (Bearlake\w+)\n\n\*(\w+ (?:at once|after .+?))\.\*", page, re.MULTILINE))

    expected = {
        rule["alert"]: f"{rule['labels']['severity'].capitalize()} {lasting(rule.get('for'))}"
        for group in ALERTS["groups"]
        for rule in group["rules"]
    }
    assert sections == expected


def lasting(text: str | None) -> str:
    """A duration of Prometheus as the page has it."""
    if text is None:
        return "at once"
    count, unit = int(text[:-1]), LASTS[text[-1]]
    return f"after {'one' if count == 1 else count} {unit}{'' if count == 1 else 's'}"


def test_metrics_that_pages_name_exist() -> None:
    known = set(re.findall(r"bearlake_\w+", (ROOT / "docs/reference/metrics.md").read_text()))
    suffixes = re.compile(r"_(bucket|sum|count)$")

    for page in documentation.pages():
        named = set(re.findall(r"`(?:rate\()?(bearlake_\w+)", (ROOT / page).read_text())) - {"bearlake_operator"}
        assert {suffixes.sub("", name) for name in named} <= known, page
