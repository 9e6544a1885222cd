"""`bearlake doctor`: examines a deployment and says what to change."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bearlake.cli.admin_client import ca_file_option
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.http_client import Tls
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, printable

_COLOURS = {"ok": "green", "warning": "yellow", "failure": "red", "skipped": "cyan"}
_VERDICT_WIDTH = 7
_SUBJECT_WIDTH = 20


@click.command()
@lake_options
@ca_file_option
@click.option(
    "--timeout-ms",
    type=click.IntRange(100, 600_000),
    default=10_000,
    show_default=True,
    help="Longest time to examine a store.",
)
@click.option("--problems", is_flag=True, help="Show only warnings and failures.")
@json_option
def doctor(admin_ca_file: Path | None, timeout_ms: int, problems: bool, as_json: bool, **given: Any) -> int:
    """Examine the deployment, and say what to change.

    The command examines stores, clocks, permissions, latencies, tables and servers. It needs no running server, and changes nothing: it
    writes a few small objects under doctor/, which it deletes. Exits with 1 if anything failed; warnings do not count.
    """
    examination = server_module("bearlake.app.doctor.examination")
    settings = chosen(given, extra="kafka")
    tls = None if admin_ca_file is None else Tls(ca_file=admin_ca_file).context()
    areas: list[dict[str, Any]] = []

    async def run() -> None:
        found = examination.examine(settings, timeout_s=timeout_ms / 1000, tls=tls)
        async with contextlib.aclosing(found):
            async for area in found:
                areas.append(_document(area, problems))
                if not as_json:
                    _print_area(areas[-1])

    run_async(run())
    counts = {verdict: _count(areas, verdict) for verdict in _COLOURS}
    if as_json:
        print_json({"is_healthy": not counts["failure"], "counts": counts, "areas": areas})
    else:
        click.echo(_summary(counts))
    return 1 if counts["failure"] else 0


def _document(area: Any, only_problems: bool) -> dict[str, Any]:  # an `Area`
    return {
        "area": area.name,
        "place": area.place or None,
        "findings": [
            {
                "subject": finding.subject,
                "verdict": finding.verdict.value,
                "detail": finding.detail,
                "advice": finding.advice or None,
                "figures": dict(finding.figures),
            }
            for finding in area.findings
            if not only_problems or finding.verdict.value in ("warning", "failure")
        ],
    }


def _print_area(area: dict[str, Any]) -> None:
    if not area["findings"]:
        return
    place = f"  {printable(area['place'])}" if area["place"] else ""
    click.echo(f"{click.style(area['area'], bold=True)}{place}")
    for finding in area["findings"]:
        verdict = click.style(f"{finding['verdict']:<{_VERDICT_WIDTH}}", fg=_COLOURS[finding["verdict"]])
        subject = printable(finding["subject"])
        click.echo(f"  {verdict}  {subject:<{_SUBJECT_WIDTH}}  {printable(finding['detail'])}")
        if finding["advice"]:
            click.echo(f"  {'':<{_VERDICT_WIDTH}}  {'':<{_SUBJECT_WIDTH}}  → {printable(finding['advice'])}")


def _count(areas: Sequence[dict[str, Any]], verdict: str) -> int:
    return sum(finding["verdict"] == verdict for area in areas for finding in area["findings"])


def _summary(counts: dict[str, int]) -> str:
    failures, warnings = counts["failure"], counts["warning"]
    if not failures and not warnings:
        return click.style("Everything is fine.", fg="green")
    parts = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in ((failures, "failure"), (warnings, "warning"))
        if count
    ]
    return click.style(
        f"{' and '.join(parts)}: the lines with → say what to change.", fg="red" if failures else "yellow"
    )
