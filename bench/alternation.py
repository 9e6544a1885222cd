"""Measures Bearlake beside Apache Kafka: both servers are up, and their rounds alternate, so that both meet the same conditions.

The first round of each server is discarded, and a figure is the median of the others.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.peer_kafka import KafkaPeer
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import report

Server = BearlakeServer | KafkaPeer
RoundOf = Callable[[Server, int], Mapping[str, float]]
"""Runs the round of this number; returns its figures, `per_s` among them. Raises `BenchError`."""
Figures = dict[str, dict[str, float]]
"""The medians of each server's rounds, by the name of the server and of the figure."""


def add_options(parser: argparse.ArgumentParser, *, seconds: float) -> None:
    """Add the options of every such measurement; `seconds`: the length of a round."""
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=["bearlake", "kafka"], help="measure only this server")
    parser.add_argument("--json", metavar="FILE")


def run(
    name: str,
    options: argparse.Namespace,
    topic: str,
    run_round: RoundOf,
    headings: Sequence[str],
    prepare: Callable[[Server], None] = lambda server: None,
) -> Figures:
    """Measure, print a table, and write the JSON file; exits if the measurement `name` fails.

    `headings` name the figures of `run_round`, in order. `prepare` runs once per server, when its topic exists.
    """
    try:
        with workspace(MEMORY_ROOT) as root:
            servers = [
                server
                for server in (BearlakeServer(root / "bearlake"), KafkaPeer(root / "kafka"))
                if options.side in (None, server.name)
            ]
            found = _measure(servers, options, topic, run_round, prepare)
    except BenchError as error:
        sys.exit(f"{name}: {error}")
    rows = [[server, *(report.short(value) for value in figures.values())] for server, figures in found.items()]
    print(report.table(["server", *headings], rows))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    return found


def compare(
    found: Figures, cpu: str, rate_min: float, is_reached: Callable[[Mapping[str, float]], bool] = lambda ours: True
) -> None:
    """Print how Bearlake compares with Kafka, unless only one was measured; `cpu`: the figure of CPU time.

    The goal is a rate of `rate_min` x Kafka's, and what `is_reached` says of Bearlake's figures.
    """
    if len(found) == 1:
        return
    ours, peer = found["bearlake"], found["kafka"]
    rate = ours["per_s"] / peer["per_s"]
    verdict = "reached" if rate >= rate_min and is_reached(ours) else "NOT reached"
    print(f"{rate:.2f} x Kafka's rate, {ours[cpu] / peer[cpu]:.2f} x its CPU time: the goal is {verdict}")


def _measure(
    servers: Sequence[Server],
    options: argparse.Namespace,
    topic: str,
    run_round: RoundOf,
    prepare: Callable[[Server], None],
) -> Figures:
    runs: dict[str, list[Mapping[str, float]]] = {server.name: [] for server in servers}
    try:
        for server in servers:
            server.start()
            admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
            admin.create_topics([NewTopic(topic, options.partitions)])[topic].result(30)
            prepare(server)
        for number in range(options.rounds + 1):
            for server in servers:
                runs[server.name].append(run_round(server, number))
    finally:
        for server in servers:
            server.stop()
    return {
        name: {figure: statistics.median(found[figure] for found in rounds[1:]) for figure in rounds[0]}
        for name, rounds in runs.items()
    }
