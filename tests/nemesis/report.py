"""The report of a run, in Markdown, and its gates."""

import platform
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import quantiles

import psutil

from bearlake import __version__
from fixtures import s3
from nemesis import tools
from nemesis.checking import Facts, Verdict, windows
from nemesis.gates import Gate
from nemesis.schedule import InjectedFault
from nemesis.watch import Objects

EXAMPLES_MAX = 15
LINES_MAX = 80


@dataclass(frozen=True, kw_only=True)
class Run:
    """The contents of a report."""

    command: str
    seed: int
    load_s: float
    total_s: float
    size: str
    injected_faults: Sequence[InjectedFault]
    impossible: Sequence[str]
    facts: Facts
    verdict: Verdict
    gates: Sequence[Gate]
    objects: Sequence[Objects]
    exits: Sequence[str]
    missed: Sequence[str]
    """Objects that servers did not find."""
    alarms: Mapping[str, int]
    client_starts: Mapping[str, int]
    client_failures: Sequence[str]

    @property
    def is_complete(self) -> bool:
        """Whether every gate was checked."""
        return all(gate.is_passed is not None for gate in self.gates)

    @property
    def is_passed(self) -> bool:
        """Whether no gate failed."""
        return all(gate.is_passed is not False for gate in self.gates)


def render(run: Run) -> str:
    """Return the report as Markdown."""
    parts = [_head(run), _gates(run), _violations(run), _load(run), _faults(run), _injected(run), _oddities(run)]
    return "\n".join(parts)


def _head(run: Run) -> str:
    verdict = "every gate was passed" if run.is_passed else "**a gate was not passed**"
    if not run.is_complete:
        verdict += (
            "; the run is not complete: " + ", ".join(g.name for g in run.gates if g.is_passed is None) + " not checked"
        )
    return f"""# Nemesis: {verdict}

Seed {run.seed}, {run.load_s:.0f} s of load and faults, {run.total_s:.0f} s in all. Again: `{run.command}`

{run.size}

| what | version |
|---|---|
| Bearlake | {__version__} ({_commit()}) |
| PostgreSQL | {_said("postgres", "--version") or _said("psql", "--version")} |
| S3 server | versitygw {s3.VERSITYGW_VERSION} |
| librdkafka, aiokafka | {version("confluent-kafka")}, {version("aiokafka")} |
| Pulsar, gRPC clients | {version("pulsar-client")}, {version("grpcio")} |
| Spark, PyIceberg, DuckDB | {version("pyspark")}, {version("pyiceberg")}, {version("duckdb")} |
| Python, kernel | {platform.python_version()}, {platform.release()} |
| machine | {psutil.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB |
"""


def _gates(run: Run) -> str:
    shown = {True: "passed", False: "**not passed**", None: "not checked"}
    rows = [f"| {gate.name} | {shown[gate.is_passed]} | {gate.figures} |" for gate in run.gates]
    return "\n".join(["## Gates", "", "| gate | | figures |", "|---|---|---|", *rows, ""])


def _violations(run: Run) -> str:
    if not run.verdict.examples:
        return ""
    return "\n".join(["## Broken promises", "", "```", *run.verdict.examples.splitlines()[:LINES_MAX], "```", ""])


def _load(run: Run) -> str:
    records = ", ".join(f"{name} {count:,}" for name, count in run.facts.records.items())
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(run.facts.counts.items()))
    starts = ", ".join(f"{name} {count}" for name, count in run.client_starts.items())
    lines = [
        "## Load",
        "",
        f"Records: {records}.",
        "",
        f"Operations: {counts}.",
        "",
        f"Processes started per client: {starts}.",
        "",
    ]
    everything = [(fault.begun, fault.ended) for fault in run.injected_faults]
    if everything:
        whole = [(min(begun for begun, _ in everything), max(ended for _, ended in everything))]
        rows = []
        for protocol in sorted(run.facts.acknowledged):
            impact = run.facts.impact(protocol, whole)
            rows.append(
                f"| {protocol} | {len(impact.waits_s):,} | {_quantile(impact.waits_s, 50):.2f} | {_quantile(impact.waits_s, 99):.2f} |"
                f" {max(impact.waits_s, default=0):.1f} | {max(impact.gaps_s, default=0):.1f} | {impact.silences_s[0]:.1f} |"
                f" {impact.errors} | {impact.redelivered} |"
            )
        lines += [
            "| protocol | writes | p50 (s) | p99 (s) | longest (s) | one without (s) | all without (s) | failed, given up | again |",
            "|---|---|---|---|---|---|---|---|---|", *rows, "",
        ]  # fmt: skip
    if run.objects:
        orphans, unused = max(sample.orphans for sample in run.objects), max(sample.unused for sample in run.objects)
        last = run.objects[-1]
        lines.append(
            f"Objects: at most {max(sample.stored for sample in run.objects)} stored, {orphans} orphans, {unused} unused; "
            f"at the end {last.stored} stored, {last.orphans} orphans, {last.unused} unused, {last.open_tasks} open tasks, and "
            f"{last.unused_files} data files that only snapshots name.\n"
        )
    return "\n".join(lines)


def _faults(run: Run) -> str:
    by_kind: dict[str, list[InjectedFault]] = defaultdict(list)
    for injected_fault in run.injected_faults:
        by_kind[injected_fault.kind].append(injected_fault)
    heads = " | ".join(
        f"{protocol}: one producer without writes p99 / max (s), all without (s), errors, again"
        for protocol in sorted(run.facts.acknowledged)
    )
    lines = [
        "## Faults, and their impact on clients",
        "",
        f"| fault | times | seen at work | {heads} |",
        "|---" * (3 + len(run.facts.acknowledged)) + "|",
    ]
    for kind, all_of_it in sorted(by_kind.items()):
        seen = sum(1 for injected_fault in all_of_it if injected_fault.proof)
        cells = []
        for protocol in sorted(run.facts.acknowledged):
            impact = run.facts.impact(protocol, windows(run.injected_faults, kind))
            gaps = f"{_quantile(impact.gaps_s, 99):.1f} / {max(impact.gaps_s, default=0):.1f}"
            silence = f"{max(impact.silences_s, default=0):.1f}"
            cells.append(f"{gaps}, {silence}, {impact.errors}, {impact.redelivered}")
        lines.append(f"| {kind} | {len(all_of_it)} | {seen} | {' | '.join(cells)} |")
    lines += [
        "",
        "A window begins with the fault and ends 15 s after it; the impact of overlapping faults counts for each of them. The columns are:",
        "p99 and maximum of the longest time without an acknowledged write per window and producer; the longest time in which no producer",
        "of the protocol got one; writes that failed or were given up (errors); records that a group or subscription got again (again).",
        "",
    ]
    if run.impossible:
        lines += [f"Not possible here: {', '.join(run.impossible)}.", ""]
    return "\n".join(lines)


def _injected(run: Run) -> str:
    if not run.injected_faults:
        return ""
    start = run.injected_faults[0].begun
    rows = [
        f"| {(fault.begun - start) / 1e9:.1f} | {(fault.ended - fault.begun) / 1e9:.1f} | {fault.kind} | {fault.what} | {_shown(fault)} |"
        for fault in run.injected_faults[:400]
    ]
    head = [
        "<details><summary>Every fault</summary>",
        "",
        "| at (s) | for (s) | fault | what | seen |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, "", "</details>", ""])


def _shown(injected_fault: InjectedFault) -> str:
    return injected_fault.proof or injected_fault.error or "–"


def _oddities(run: Run) -> str:
    lines = ["## Other events", ""]
    lines += [f"- a server ended by itself: {text}" for text in run.exits[:EXAMPLES_MAX]]
    lines += [f"- an object was missed: {text}" for text in run.missed[:EXAMPLES_MAX]]
    lines += [f"- logged {count} times as an error: {text}" for text, count in list(run.alarms.items())[:EXAMPLES_MAX]]
    lines += [f"- a client: {text}" for text in list(run.client_failures)[:EXAMPLES_MAX]]
    lines += [f"- {count} × {what}" for what, count in run.facts.notes.most_common(3 * EXAMPLES_MAX)]
    return "\n".join([*lines, ""])


def _quantile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return max(values, default=0.0)
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _said(program: str, *words: str) -> str:
    found = shutil.which(program)
    if found is None:
        return ""
    return subprocess.run([found, *words], capture_output=True, text=True, timeout=20, check=False).stdout.strip()


def _commit() -> str:
    return _said("git", "-C", str(tools.FRANZ_GO.parent), "rev-parse", "--short", "HEAD") or "no commit known"
