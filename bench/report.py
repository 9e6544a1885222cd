"""The result as a table for people and as JSON for programs."""

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from bench.figures import Goal, Run

from bench import figures

PEER, OURS = "kafka", "bearlake"
HEADS = (
    "case", "server", "MB/s [min-max]", "requests/s", "p50 ms", "p99 ms", "CPU-s/GB", "CPU us/request", "RSS MB",
    "objects/s", "MB/object", "commits/s", "other cores",
)  # fmt: skip
RATIO_HEADS = ("case", "throughput x", "goal", "CPU x", "goal", "p50 x", "p99 x", "result")


class Case(Protocol):
    """A row of the result."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def title(self) -> str:
        """The title in the tables."""

    @property
    def goal(self) -> Goal:
        """Bearlake's goal."""


@dataclass(slots=True, kw_only=True)
class Result:
    """Runs of one case by server, and the failures of each server."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def text(
    machine: Mapping[str, str], effort: str, results: Sequence[Result], *, has_verdict: bool = True, peer: str = PEER
) -> str:
    """Markdown: the machine, a table of figures and a table of ratios to `peer` against the goals, with a verdict if `has_verdict`."""
    parts = ["; ".join(f"{name}: {value}" for name, value in machine.items()), effort]
    parts.append(table(HEADS, [row for result in results for row in _rows(result, peer)], left=(0, 1)))
    ratio_rows = [row for result in results if (row := _ratio_row(result, peer, has_verdict=has_verdict))]
    if ratio_rows:
        parts.append(table(RATIO_HEADS, ratio_rows, left=(0, len(RATIO_HEADS) - 1)))
    failures = [f"- {r.case.name}, {server}: {why}" for r in results for server, why in r.failures.items()]
    if failures:
        parts.append("Failed:\n\n" + "\n".join(failures))
    return "\n\n".join(parts) + "\n"


def publish(text: str, found: Mapping[str, object], options: argparse.Namespace) -> None:
    """Print the tables, and write the files that `--markdown` and `--json` name; `found` is what the latter has."""
    print("\n" + text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def as_json(
    machine: Mapping[str, str], effort: str, results: Sequence[Result], *, peer: str = PEER
) -> dict[str, object]:
    """Every run with every figure."""
    return {
        "machine": dict(machine),
        "effort": effort,
        "cases": [
            {
                "name": result.case.name,
                "title": result.case.title,
                "goal": asdict(result.case.goal),
                "runs": {server: [figures.as_json(run) for run in runs] for server, runs in result.runs.items()},
                "ratios": _ratios_json(result, peer),
                "failures": result.failures,
            }
            for result in results
        ],
    }


def line(server: str, run: Run) -> str:
    """One run in one line, to show progress."""
    return (
        f"  {server:8} {run.mb_per_s:8.1f} MB/s {run.requests_per_s:9.0f}/s  p50 {short(run.p50_ms):>7} p99 {short(run.p99_ms):>7} ms"
        f"  {run.cpu_s_per_gb:6.2f} CPU-s/GB  others {run.other_cores:.1f} cores"
    )


def short(value: float | None) -> str:
    """Three significant digits, or a whole number; empty for None."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """A Markdown table whose columns line up: those in `left` to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]

    def render(row: Sequence[str]) -> str:
        cells = zip(row, widths, strict=True)
        padded = (cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(cells))
        return "| " + " | ".join(padded) + " |"

    rule = "|".join("-" * (width + 1) + ("-" if i in left else ":") for i, width in enumerate(widths))
    return "\n".join([render(heads), f"|{rule}|", *map(render, rows)])


def _ratios_json(result: Result, peer: str) -> dict[str, float | None] | None:
    found = figures.ratios(result.runs.get(OURS, ()), result.runs.get(peer, ()))
    return asdict(found) if found else None


def _rows(result: Result, peer: str) -> list[list[str]]:
    rows = []
    for server in (peer, OURS):
        runs = result.runs.get(server)
        if runs:
            rows.append([result.case.title, server, *_figures(runs)])
        elif server in result.failures:
            rows.append([result.case.title, server, "failed", *[""] * (len(HEADS) - 3)])
    return rows


def _figures(runs: Sequence[Run]) -> list[str]:
    low, high = figures.spread(runs, lambda run: run.mb_per_s)
    objects = figures.of_runs(runs, lambda run: run.objects)
    size = figures.of_runs(
        runs, lambda run: run.object_bytes / run.objects if run.objects and run.object_bytes else None
    )
    return [
        f"{short(figures.of_runs(runs, lambda run: run.mb_per_s))} [{short(low)}-{short(high)}]",
        f"{figures.of_runs(runs, lambda run: run.requests_per_s):,.0f}",
        short(figures.of_runs(runs, lambda run: run.p50_ms)),
        short(figures.of_runs(runs, lambda run: run.p99_ms)),
        short(figures.of_runs(runs, lambda run: run.cpu_s_per_gb)),
        short(figures.of_runs(runs, lambda run: run.cpu_us_per_request)),
        short(figures.of_runs(runs, lambda run: run.rss_bytes / 1e6)),
        short(objects),
        short(None if size is None else size / 1e6),
        short(figures.of_runs(runs, lambda run: run.commits)),
        short(figures.of_runs(runs, lambda run: run.other_cores)),
    ]


def _ratio_row(result: Result, peer: str, *, has_verdict: bool) -> list[str] | None:
    ours = result.runs.get(OURS, [])
    found = figures.ratios(ours, result.runs.get(peer, []))
    if not found:
        return None
    goal = result.case.goal
    missed = figures.missed(goal, found)
    verdict = "missed: " + ", ".join(missed) if missed else "reached" if goal != figures.Goal() else ""
    if not has_verdict:
        verdict = "no verdict"
    return [
        result.case.title,
        short(found.throughput),
        "" if goal.throughput_ratio_min is None else f">= {goal.throughput_ratio_min}",
        short(found.cpu),
        "" if goal.cpu_ratio_max is None else f"<= {goal.cpu_ratio_max}",
        short(found.p50) + ("" if goal.p50_ratio_max is None else f" (goal: <= {goal.p50_ratio_max})"),
        short(found.p99),
        verdict,
    ]
