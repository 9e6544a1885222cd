"""Runs the simulation: `python -m simulator.simulate [--profile compaction] --seed N [--trace]` or `--seeds A-B`.

A seed reproduces its run exactly. A trace ends with the violation; without `--trace`, only its last lines about the violated partition
are printed.
`--seeds` runs seeds A to B (inclusive), prints totals and each violation, and exits with 1 if there was a violation.
"""

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from simulator.expiry_scenario import draw_expiry_settings
from simulator.full_disk_scenario import draw_full_disk_settings
from simulator.group_scenario import draw_group_settings, draw_streams_group_settings
from simulator.lake_scenario import draw_lake_settings
from simulator.scenario import Report, ScenarioSettings, draw_settings, run_seed
from simulator.share_scenario import draw_share_settings
from simulator.subscriber_scenario import draw_subscriber_settings
from simulator.transaction_scenario import draw_transaction_settings
from simulator.truth import Violation

TRACE_LINE_COUNT = 60
PROFILES: dict[str, Callable[[int], ScenarioSettings]] = {
    "streams": draw_settings,
    "compaction": draw_lake_settings,
    "subscriptions": draw_subscriber_settings,
    "groups": draw_group_settings,
    "streams-groups": draw_streams_group_settings,
    "expiry": draw_expiry_settings,
    "transactions": draw_transaction_settings,
    "shares": draw_share_settings,
    "full-disks": draw_full_disk_settings,
}
"""Functions that draw a seed's settings: the write and read path alone; with workers that compact, merge, trim and sweep; with consumers
of subscriptions; with servers that coordinate consumer groups, or streams groups; with producers that expire while their batches are
delayed; with transactional producers; with members of share groups; with stores that run out of room."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0: no violation, 1: at least one."""
    parser = argparse.ArgumentParser(prog="python -m simulator.simulate", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed")
    which.add_argument("--seeds", type=_seeds, help="run these seeds, A-B")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="streams", help="what the seeds are about")
    parser.add_argument("--trace", action="store_true", help="print all that was noted of a single seed")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first violation")
    chosen = parser.parse_args(arguments)
    draw = PROFILES[chosen.profile]
    if chosen.seed is not None:
        report = run_seed(chosen.seed, draw(chosen.seed))
        print_report(report, is_whole=chosen.trace)
        return int(report.violation is not None)
    return _run_many(chosen.seeds, draw, is_fail_fast=chosen.fail_fast)


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _run_many(seeds: range, draw: Callable[[int], ScenarioSettings], *, is_fail_fast: bool) -> int:
    total = Total()
    gc.freeze()  # collect only garbage of the seeds
    for seed in seeds:
        report = run_seed(seed, draw(seed))
        total.add(report)
        if report.violation is not None:
            print_report(report)
            if is_fail_fast:
                break
    _print(total.text())
    return int(total.violation_count > 0)


class Total:
    """The sum of many reports."""

    def __init__(self) -> None:
        self.seed_count = self.violation_count = 0
        self.step_count = self.call_count = 0
        self.virtual_s = 0.0
        self.counts: dict[str, Counter[str]] = {
            "faults": Counter(),
            "events": Counter(),
            "outcomes of batches at the store": Counter(),
            "answers to producers": Counter(),
        }
        self._started = time.process_time()

    def add(self, report: Report) -> None:
        """Add the report of one seed."""
        self.seed_count += 1
        self.violation_count += report.violation is not None
        self.step_count += report.step_count
        self.call_count += report.call_count
        self.virtual_s += report.virtual_s
        for counter, more in zip(
            self.counts.values(), (report.faults, report.events, report.outcomes, report.acks), strict=True
        ):
            counter.update(more)

    def text(self) -> str:
        """Return a readable summary of a few lines."""
        spent = time.process_time() - self._started
        seed_s = spent / max(1, self.seed_count)
        lines = [
            f"{self.seed_count} seeds, {self.violation_count} with a violation",
            f"{self.step_count:,} steps, {self.call_count:,} calls of stores, {self.virtual_s:,.0f} virtual seconds",
            f"{spent:.1f} CPU seconds, {seed_s:.3f} each",
        ]
        for what, counter in self.counts.items():
            lines.append(f"{what}: " + ", ".join(f"{name} {count:,}" for name, count in counter.most_common()))
        return "\n".join(lines)


def print_report(report: Report, *, is_whole: bool = False) -> None:
    """Print the trace, the totals and the violation."""
    if is_whole or report.violation is not None:
        trace_events = [event for event in report.trace if is_whole or _is_about(event[3], report.violation)]
        for at, process, what, details in trace_events[0 if is_whole else -TRACE_LINE_COUNT :]:
            text = " ".join(f"{name}={value}" for name, value in details.items())
            _print(f"{at:10.4f}  {process:16}  {what}  {text}")
    total = Total()
    total.add(report)
    if is_whole or report.violation is None:
        _print(total.text())
    if report.violation is not None:
        _print(f"seed {report.seed}: VIOLATION at {report.virtual_s:.4f} s: {report.violation}")


def assert_holds(report: Report) -> None:
    """Print the end of the trace and raise the violation, if there is one."""
    if report.violation is not None:
        print_report(report)
        raise report.violation


def _is_about(details: dict[str, Any], violation: Violation | None) -> bool:
    """Return whether an event concerns the violated partition; an event without a partition always does."""
    key = None if violation is None else violation.partition
    if key is None:
        return True
    touched = [details["partition"]] if "partition" in details else [item[0] for item in details.get("partitions", ())]
    return not touched or key in touched


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
