"""Evaluation of the histories: the verdict of `simulator.history`, the impact of each fault on clients, and counts of operations."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fixtures.server_process import clean_environment
from nemesis.schedule import InjectedFault

CHECK_S = 600.0
CHECK_PER_LOAD_S = 1.0
"""Checker time per second of load, at most. A run of 45 minutes took 0.01 on an idle core, 0.11 on a busy machine."""
AFTER_NS = 15 * 10**9
"""Time after a fault during which its impact on clients is attributed to it."""
PROTOCOLS = {
    "produce-librdkafka": "Kafka", "produce-plain": "Kafka",
    "produce-short-lived": "Kafka", "produce-java": "Kafka", "produce-franz": "Kafka",
    "produce-pulsar": "Pulsar", "produce-rest": "REST", "produce-grpc": "gRPC",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The checker's verdict. `violations` is None if the checker could not check; `text` then gives the reason."""

    violations: int | None
    text: str
    examples: str = ""
    """The violations as the checker shows them."""


def limit_s(load_s: float) -> float:
    """Return the checker's time limit for a run of `load_s` seconds."""
    return CHECK_S + CHECK_PER_LOAD_S * load_s


def check(histories: Sequence[Path], output: Path, within_s: float = CHECK_S, keep: Path | None = None) -> Verdict:
    """Check all histories together, and write the checker's output to `output`.

    Also returns if the checker exceeds its limit, or the whole run exceeds its limit. Histories that were not checked are kept: by the
    caller in `keep`, or else by this function in a new folder, which the verdict names.
    """
    verdict = _checked(histories, output, within_s)
    if verdict.violations is not None:
        return verdict
    if keep is None:
        keep = Path(tempfile.mkdtemp(prefix="nemesis-unchecked-"))
        for history in histories:
            shutil.copy2(history, keep)
    return replace(verdict, text=f"{verdict.text}; {len(histories)} histories are kept: {keep}/*.jsonl")


def _checked(histories: Sequence[Path], output: Path, within_s: float) -> Verdict:
    command = [sys.executable, "-m", "simulator.history", "check", *map(str, histories)]
    environment = clean_environment({"PYTHONPATH": ":".join(sys.path)})
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(violations=None, text=f"not checked within {within_s:g} s")
    except TimeoutError as late:  # raised by the alarm of `run.py`
        return Verdict(violations=None, text=f"not checked: {late}")
    output.write_text(done.stdout + done.stderr)
    # The last line counts all violations; the lines before show only the first ones.
    text = done.stdout.strip().rpartition("\n")[2]
    kinds = Counter({kind: int(count.replace(",", "")) for kind, count in re.findall(r"\b([A-Z_]+) ([\d,]*\d)", text)})
    if done.returncode == 0:
        return Verdict(violations=0, text=done.stdout.strip().replace("\n", "; ")[:500])
    if not kinds:
        return Verdict(violations=None, text=(done.stdout + done.stderr).strip()[-400:])
    return Verdict(
        violations=sum(kinds.values()),
        text=", ".join(f"{kind} {count}" for kind, count in kinds.items()),
        examples=done.stdout,
    )


@dataclass
class ClientImpact:
    """How clients of one protocol were affected during some windows of time."""

    gaps_s: list[float] = field(default_factory=list)
    """The longest time without an acknowledgement, per window and producer."""
    silences_s: list[float] = field(default_factory=list)
    """The longest time in which no producer got an acknowledgement, per window."""
    waits_s: list[float] = field(default_factory=list)
    """The latency of each acknowledged write."""
    errors: int = 0
    redelivered: int = 0


@dataclass
class Facts:
    """Counts and times of all operations."""

    counts: Counter[str] = field(default_factory=Counter)
    """By `operation outcome`."""
    records: Counter[str] = field(default_factory=Counter)
    """Records: acknowledged, read, in SQL."""
    answered: Counter[str] = field(default_factory=Counter)
    """Positive answers, by kind of client."""
    acknowledged: dict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    """By protocol: (end, start, producer) of each acknowledged write, in order of end."""
    failed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By protocol: times at which writes failed or were given up."""
    redelivered: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By protocol: times at which a group or subscription received a record again."""
    notes: Counter[str] = field(default_factory=Counter)

    def impact(self, protocol: str, windows: Sequence[tuple[int, int]]) -> ClientImpact:
        """Return the impact on clients from the start of each window until `AFTER_NS` after its end."""
        found = ClientImpact()
        acknowledged = self.acknowledged.get(protocol, [])
        producers = {producer for _, _, producer in acknowledged}
        for begun, ended in windows:
            until = ended + AFTER_NS
            inside = _between(acknowledged, (begun, 0, ""), (until, 1 << 62, ""))
            ends: dict[str, list[int]] = {producer: [] for producer in producers}
            for end, _, producer in inside:
                ends[producer].append(end)
            found.gaps_s += [_longest_s([begun, *times, until]) for times in ends.values()]
            found.silences_s.append(_longest_s([begun, *(end for end, _, _ in inside), until]))
            found.waits_s += [(end - start) / 1e9 for end, start, _ in inside]
            found.errors += len(_between(self.failed.get(protocol, []), begun, until))
            found.redelivered += len(_between(self.redelivered.get(protocol, []), begun, until))
        return found


def _longest_s(times: Sequence[int]) -> float:
    return max(after - before for before, after in pairwise(times)) / 1e9


def _between(values: list[Any], first: Any, last: Any) -> list[Any]:
    return values[bisect_left(values, first) : bisect_right(values, last)]


def windows(injected_faults: Sequence[InjectedFault], kind: str) -> list[tuple[int, int]]:
    """Return the periods in which faults of this kind were active."""
    return [(fault.begun, fault.ended) for fault in injected_faults if fault.kind == kind and not fault.error]


def facts(histories: Sequence[Path]) -> Facts:
    """Read all histories once."""
    found = Facts()
    seen: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    for path in histories:
        kind = re.sub(r"-\d+$", "", path.stem)
        waiting: dict[int, dict[str, Any]] = {}
        for event in _events(path):
            if "history" in event:
                waiting = {}
            elif event["e"] == "invoke":
                waiting[event["i"]] = event
            elif (begun := waiting.pop(event["i"], None)) is not None:
                _count(found, seen, kind, path.stem, begun, event)
        notes = path.with_suffix(".notes")
        for note in _events(notes) if notes.exists() else ():
            found.notes[f"{kind}: {re.sub(r'[0-9]+', 'N', note['what'])[:100]}"] += 1
    for times in (*found.acknowledged.values(), *found.failed.values(), *found.redelivered.values()):
        times.sort()
    return found


def _count(
    found: Facts, seen: dict[str, set[tuple[str, int, int]]], kind: str, name: str, begun: Any, event: Any
) -> None:
    op, outcome = begun["op"], event["e"]
    found.counts[f"{op} {outcome}"] += 1
    found.answered[kind] += outcome == "ok"
    protocol = PROTOCOLS.get(kind)
    if op == "produce" and outcome == "ok":
        found.records["acknowledged"] += len(begun["records"])
        if protocol:
            found.acknowledged[protocol].append((event["t"], begun["t"], name))
    elif op == "produce" and protocol:
        found.failed[protocol].append(event["t"])
    elif op == "read" and outcome == "ok":
        found.records["read"] += len(event["records"])
        group = {"member-kafka": "Kafka", "member-rest": "REST"}.get(kind, "Pulsar" if kind == "consume-pulsar" else "")
        if group:
            places = seen[f"{group}/{name if group == 'Pulsar' else ''}"]
            for offset, *_ in event["records"]:
                place = (begun["log"][0], begun["log"][1], offset)
                if place in places:
                    found.redelivered[group].append(event["t"])
                places.add(place)
    elif op == "rows" and outcome == "ok":
        found.records["rows in SQL"] += len(event["records"])


def _events(path: Path) -> Any:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # an empty line, or a line that a kill truncated
