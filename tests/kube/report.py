#!/usr/bin/env python3
"""Render docs/kubernetes-report.md from the JUnit files of cluster tests: their figures are properties of the test suite.

    report.py FILE.xml... > docs/kubernetes-report.md

Of a figure, or a module, that several files have, the last one counts.
"""

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any

TITLES = {
    "install_s": "Helm install until the operator is ready (s)",
    "stream_ready_s": "First Stream of all four protocols Ready, its tiers started (s)",
    "outside": "Clients of four protocols through node ports",
    "writes_in_two_quiet_minutes": "The operator's writes in two quiet minutes",
    "operator_1000_streams_s": "1,000 Streams applied until all are in the data layer (s)",
    "operator_1000_streams_cpu_s": "The operator's CPU for that (s)",
    "operator_rest_cpu_percent": "The operator at rest with 1,000 Streams, over two minutes (% of a core; it writes nothing)",
    "operator_memory_mb": "The operator's memory at its highest (MB)",
    "operator_takeover_s": "A leader is killed: another leads (s)",
    "repaired_s": "Hand edit and deletion repaired (s)",
    "compactor_ready_s": "Compactor Ready (s)",
    "backlog_gone_s": "Backlog compacted (s)",
    "one_tier_upgrade": "Settings of the Kafka tier changed under load: only its pods roll",
    "rolling_upgrade": "Upgrade to other images under load: every tier, and the operator",
    "rollback_s": "Helm rollback to the old images, every tier (s)",
    "install_again_s": "Helm install again, after uninstall (s)",
    "streams_ready_again_s": "Streams Ready again, with their records (s)",
    "drain": "Node drained under load",
    "kills": "Pods of every tier killed at random under load",
    "scaling_servers": "Kafka servers by load, builtin metrics",
    "scaling_workers": "Workers by backlog, builtin metrics",
    "scaling_clients": "Clients of one steady load through all of that scaling",
    "scaling_by_cpu": "Servers by CPU, metrics-server",
    "spark_pods": "A worker whose executor is a pod, with a Stream of two partitions",
    "helm_test_kafka_s": "`helm test`: a Stream made, 100 records written and read by Kafka, all of it removed (s)",
    "helm_test_rest_s": "The same by REST (s)",
    "examples_ready_s": "The chart's examples applied until Stream and Compactor are Ready (s)",
}
HEAD = """# Bearlake on a real cluster: figures

Measured by the tests of `tests/kube` (rows below: what was run) on {cores} cores that
control plane, nodes, servers, stores and clients share: times are upper bounds, and
other work on the machine lengthens them. Rendered by `tests/kube/report.py`, which only copies what the tests have recorded.
Planned changes must show 0 failed requests, and everything 0 lost; the tests fail otherwise, and are named below.
A pod that is killed takes the requests under way with it: those of Kafka and Pulsar are sent again by their clients,
those of REST and gRPC count as failed.
"""


def main() -> None:
    properties: dict[str, Any] = {}
    modules: dict[str, list[ElementTree.Element]] = {}
    for path in sys.argv[1:]:
        root = ElementTree.parse(path).getroot()
        for one in root.iter("property"):
            properties[one.attrib["name"]] = json.loads(one.attrib["value"])
        found: dict[str, list[ElementTree.Element]] = {}
        for case in root.iterfind(".//testcase[@classname]"):  # what was interrupted has none
            found.setdefault(case.attrib["classname"].rpartition(".")[2], []).append(case)
        modules |= found
    print(HEAD.format(cores=os.cpu_count()))
    print("| what | measured |\n|---|---|")
    for name in (*(known for known in TITLES if known in properties), *sorted(set(properties) - set(TITLES))):
        print(f"| {TITLES.get(name, words(name))} | {shown(properties[name])} |")
    print("\n| tests | passed | skipped | failed | seconds |\n|---|---|---|---|---|")
    for module, cases in sorted(modules.items()):
        print(f"| {module} | " + " | ".join(outcomes(cases)) + " |")
    for module, cases in sorted(modules.items()):
        for case in cases:
            for part in (*case.iter("failure"), *case.iter("error")):
                why = part.attrib.get("message", "").splitlines() or [""]
                print(f"\nFailed: `{module}::{case.attrib['name']}`: {why[0][:200]}")


def shown(value: Any) -> str:
    """A figure, or figures with their names."""
    if isinstance(value, Mapping):
        return "; ".join(f"{words(name)}: {part}" for name, part in parts(value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def parts(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield name, ", ".join(f"{words(inner)} {shown(one)}" for inner, one in part.items())
        else:
            yield name, shown(part)


def words(name: str) -> str:
    """A figure's name for people; `_s` is seconds."""
    stem = name.removesuffix("_s")
    return stem.replace("_", " ") + (" (s)" if stem != name else "")


def outcomes(cases: list[ElementTree.Element]) -> list[str]:
    kinds = [
        next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed") for case in cases
    ]
    failed = kinds.count("failure") + kinds.count("error")
    seconds = sum(float(case.attrib["time"]) for case in cases)
    return [str(kinds.count("passed")), str(kinds.count("skipped")), str(failed), f"{seconds:.0f}"]


if __name__ == "__main__":
    main()
