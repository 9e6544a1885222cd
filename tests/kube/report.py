#!/usr/bin/env python3
"""Render docs/kubernetes-report.md from the JUnit files of cluster tests. The figures are properties of the test suite.

    report.py FILE.xml... > docs/kubernetes-report.md

If several files have the same figure or module, the last file counts.
"""

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any

TITLES = {
    "install_s": "From `helm install` until the operator is ready (s)",
    "stream_ready_s": "From the first Stream with all four protocols until it is Ready (s)",
    "outside": "Clients of four protocols through node ports",
    "writes_in_two_quiet_minutes": "Writes of the operator in two minutes without changes",
    "operator_1000_streams_s": "From applying 1,000 Streams until all are in the data layer (s)",
    "operator_1000_streams_cpu_s": "CPU time of the operator for these 1,000 Streams (s)",
    "operator_rest_cpu_percent": "CPU of the idle operator with 1,000 Streams, over two minutes (% of a core; no writes)",
    "operator_memory_mb": "Peak memory of the operator (MB)",
    "operator_takeover_s": "From killing the leader until another operator leads (s)",
    "repaired_s": "Manual edit and deletion reverted (s)",
    "compactor_ready_s": "From creating a Compactor until it is Ready (s)",
    "backlog_gone_s": "Backlog compacted (s)",
    "one_tier_upgrade": "Settings of the Kafka tier changed under load: only its pods restart",
    "rolling_upgrade": "Upgrade of the images of all tiers and the operator under load",
    "rollback_s": "Helm rollback of the images of all tiers (s)",
    "install_again_s": "`helm install` after `helm uninstall` (s)",
    "streams_ready_again_s": "Streams Ready again with their records (s)",
    "drain": "Node drained under load",
    "kills": "Pods of all tiers killed at random under load",
    "scaling_servers": "Autoscaling of Kafka servers by load, mode builtin",
    "scaling_workers": "Autoscaling of workers by backlog, mode builtin",
    "scaling_clients": "Clients with a steady load during this autoscaling",
    "scaling_by_cpu": "Autoscaling of servers by CPU, mode cpu",
    "spark_pods": "A worker with an executor pod, and a Stream of two partitions",
    "helm_test_kafka_s": "`helm test` with Kafka: create a Stream, write and read 100 records, delete it (s)",
    "helm_test_rest_s": "`helm test` with REST (s)",
    "examples_ready_s": "From applying the chart's examples until Stream and Compactor are Ready (s)",
}
HEAD = """# Bearlake on a real cluster: figures

Measured by the tests in `tests/kube` on {cores} cores that the control plane, nodes, servers, stores and clients share.
The times are upper bounds; other work on the machine lengthens them. `tests/kube/report.py` renders this page from
figures that the tests record. The tests fail unless planned changes have 0 failed requests and no run loses a record;
failed tests are named below. The pending requests of a killed pod fail: Kafka and Pulsar clients send them again, and
those of REST and gRPC are counted as failed.
"""


def main() -> None:
    """Run the command."""
    properties: dict[str, Any] = {}
    modules: dict[str, list[ElementTree.Element]] = {}
    for path in sys.argv[1:]:
        root = ElementTree.parse(path).getroot()
        for property_ in root.iter("property"):
            properties[property_.attrib["name"]] = json.loads(property_.attrib["value"])
        found: dict[str, list[ElementTree.Element]] = {}
        for case in root.iterfind(".//testcase[@classname]"):  # an interrupted case has none
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
    """A figure, or several figures with their names."""
    if isinstance(value, Mapping):
        return "; ".join(f"{words(name)}: {part}" for name, part in parts(value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def parts(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each figure with its name."""
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield name, ", ".join(f"{words(inner)} {shown(value)}" for inner, value in part.items())
        else:
            yield name, shown(part)


def words(name: str) -> str:
    """A figure's name for people; the suffix `_s` means seconds."""
    stem = name.removesuffix("_s")
    return stem.replace("_", " ") + (" (s)" if stem != name else "")


def outcomes(cases: list[ElementTree.Element]) -> list[str]:
    """Return the numbers of passed, skipped and failed tests, and their seconds."""
    kinds = [
        next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed") for case in cases
    ]
    failed = kinds.count("failure") + kinds.count("error")
    seconds = sum(float(case.attrib["time"]) for case in cases)
    return [str(kinds.count("passed")), str(kinds.count("skipped")), str(failed), f"{seconds:.0f}"]


if __name__ == "__main__":
    main()
