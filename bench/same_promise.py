"""Bearlake on its real stores beside three Kafka brokers: the same promise, and the CPU of everything that keeps it.

    python bench/same_promise.py [--only CASE] [--mode MODE] [--servers 3] [--seconds 3] [--repetitions 3] [--peer-warmup-s 120]

The promise: an acknowledged record survives the loss of one machine. Kafka: three brokers, replication factor 3,
`min.insync.replicas=2`, `acks=all`. Bearlake: `--servers` servers, PostgreSQL with a synchronous standby, and an S3 server. Their
processes all run here, in memory (`/dev/shm`), and count. Two modes of Bearlake: the default on object stores (flush after 250 ms or
4 MiB, which bounds the requests to the store) and the latency mode (flush at once when no PUT is in flight).

Not the same: the S3 server stores one copy, where a cloud stores several at its own cost ("without S3" leaves its share out), and
neither Kafka nor the S3 server fsyncs. Three JVMs on few cores need a long warm-up (`--peer-warmup-s`).
Needs Java, Maven, PostgreSQL and Versity S3 Gateway (`stores.py` says how to get it).
Exit code 1: a case failed, and the reason is printed. 2: nothing could be measured.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.cases import KIB, Case
from bench.configured_server import BearlakeCluster
from bench.errors import BenchError
from bench.figures import Run
from bench.kafka_cluster import KafkaCluster
from bench.loading import Load, run_loader
from bench.run import MEMORY_ROOT, workspace
from bench.stores import Postgresql, S3Gateway
from bench.templates import BatchShape

from bench import figures, processes, report, templates, topics

RUN_BYTES_MAX = 1 << 30
"""Payload of one run, warm-up included; Kafka stores three copies of it."""
CONNECTIONS = 45
"""Fifteen for each of three brokers or servers: with five requests of 64 KiB in flight they hold 4.9 MB, more than a flush takes."""
CASES = (
    Case(name="64k", title="produce 64 KiB", shape=BatchShape(record_count=64, record_bytes=KIB), connections=CONNECTIONS),
    Case(name="1k", title="produce 1 KiB", shape=BatchShape(record_count=1, record_bytes=KIB), connections=CONNECTIONS),
)  # fmt: skip
MODES: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "latency": {"streams.writer.linger_ms": 5, "streams.writer.flush_when_idle": True},
}
"""Settings of Bearlake by mode."""
HEADS = (
    "case", "server", "MB/s [min-max]", "p50 ms", "p99 ms", "CPU-s/GB", "without S3", "share of the CPU", "RSS MB", "objects/s",
    "MB/object", "commits/s", "other cores",
)  # fmt: skip

_NUMBERS = count(1)

Cluster = KafkaCluster | BearlakeCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run, and the CPU seconds of each part of the cluster while it ran, warm-up included."""

    run: Run
    cpu_s: Mapping[str, float]

    @property
    def cpu_s_per_gb_without_s3(self) -> float:
        """CPU seconds per 10^9 bytes of payload of all parts but the S3 server."""
        return self.run.cpu_s_per_gb * (1 - self.share("S3"))

    def share(self, part: str) -> float:
        """Share of one part in the CPU seconds of all; 0 for a part that the cluster does not have."""
        return self.cpu_s.get(part, 0.0) / (sum(self.cpu_s.values()) or 1.0)


def measure(
    cluster: Cluster, case: Case, directory: Path, *, seconds: float, warmup_s: float, bytes_max: int = RUN_BYTES_MAX
) -> Measured:
    """Run `case` once on its own topic, with at most `bytes_max` of payload. Raises BenchError."""
    cluster.prepare_next_run()
    topic = f"promise-{case.name}-{next(_NUMBERS)}"
    if isinstance(cluster, KafkaCluster):
        cluster.create_topic(topic, case.connections)
    else:
        topics.create(cluster.address, topic, case.connections, {})
    try:
        batch = templates.record_batch(case.shape)
        frames = [templates.produce_request(batch, [part], topic=topic) for part in range(case.connections)]
        templates.write_templates(directory, frames)
        load = Load(
            templates=directory, connections=case.connections, depth=case.depth, seconds=seconds, warmup_s=warmup_s,
            payload_bytes=case.payload_bytes, requests_max=bytes_max // (case.payload_bytes * case.connections),
            ports=cluster.ports,
        )  # fmt: skip
        parts = cluster.parts
        before = {part: processes.usage(*pids).cpu_s for part, pids in parts.items()}
        run = run_loader(cluster, load, pids=[pid for pids in parts.values() for pid in pids])
        used = {part: processes.usage(*pids).cpu_s - before[part] for part, pids in parts.items()}
        return Measured(run=run, cpu_s=used)
    finally:
        with contextlib.suppress(BenchError):  # the original failure of the run is more useful
            topics.delete(cluster.address, topic)
        shutil.rmtree(directory, ignore_errors=True)


class Bench:
    """The runs by case and server; a failure is recorded, and the other runs continue."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self.found: dict[tuple[str, str], list[Measured]] = {}
        self.failures: list[str] = []

    def run(self, cases: Sequence[Case], modes: Sequence[str]) -> None:
        """Start all clusters, and measure every case on each in turn."""
        with contextlib.ExitStack() as running:
            kafka = KafkaCluster(self._directory / "kafka")
            running.callback(kafka.stop)
            kafka.start()
            clusters: list[Cluster] = [kafka, *(self._start_ours(mode, running) for mode in modes)]
            self._warm(kafka, cases)
            for case in cases:
                self._measure_in_turn(case, clusters)

    def _start_ours(self, mode: str, running: contextlib.ExitStack) -> BearlakeCluster:
        directory = self._directory / mode
        directory.mkdir()
        postgresql = Postgresql(directory / "postgresql")
        running.callback(postgresql.stop)
        postgresql.start()
        ours = BearlakeCluster(
            directory, postgresql, s3=S3Gateway(directory / "s3"), settings=MODES[mode],
            server_count=self._options.servers, command=self._options.bearlake, name=f"bearlake, {mode}",
        )  # fmt: skip
        running.callback(ours.stop)
        ours.start()
        return ours

    def _warm(self, kafka: KafkaCluster, cases: Sequence[Case]) -> None:
        """Load the brokers, whose just-in-time compilers need it; the figures are only shown."""
        end = time.monotonic() + self._options.peer_warmup_s
        while time.monotonic() < end:
            for case in cases:
                measured = measure(kafka, case, self._directory / "templates", seconds=4, warmup_s=0)
                print(f"{report.line(kafka.name, measured.run)}  (warm-up)", flush=True)

    def _measure_in_turn(self, case: Case, clusters: Sequence[Cluster]) -> None:
        print(case.title, flush=True)
        for number in range(self._options.repetitions + 1):  # the first run of each does not count
            for cluster in clusters:
                try:
                    measured = measure(
                        cluster, case, self._directory / "templates", seconds=self._options.seconds, warmup_s=1
                    )
                except BenchError as error:
                    self.failures.append(f"{case.title}, {cluster.name}: {error}")
                    print(f"  {self.failures[-1]}", flush=True)
                    continue
                print(report.line(f"{cluster.name:17}", measured.run), flush=True)
                if number:
                    self.found.setdefault((case.title, cluster.name), []).append(measured)


def row_of(title: str, server: str, runs: Sequence[Measured]) -> list[str]:
    """A row of the table: medians of `runs`, which must not be empty."""
    found = figures_of(runs)
    return [title, server, *(found[head] for head in HEADS[2:])]


def figures_of(runs: Sequence[Measured]) -> Mapping[str, str]:
    """The medians of `runs`, which must not be empty, by the heads of the table that they belong to."""
    whole = [measured.run for measured in runs]
    low, high = figures.spread(whole, lambda run: run.mb_per_s)

    def figure(of: Callable[[Run], float | None]) -> str:
        return report.short(figures.of_runs(whole, of))

    return {
        "MB/s [min-max]": f"{figure(lambda run: run.mb_per_s)} [{report.short(low)}-{report.short(high)}]",
        "p50 ms": figure(lambda run: run.p50_ms),
        "p99 ms": figure(lambda run: run.p99_ms),
        "CPU-s/GB": figure(lambda run: run.cpu_s_per_gb),
        "without S3": report.short(_median(runs, lambda measured: measured.cpu_s_per_gb_without_s3)),
        "share of the CPU": ", ".join(f"{part} {_median(runs, _share_of(part)):.0%}" for part in runs[0].cpu_s),
        "RSS MB": figure(lambda run: run.rss_bytes / 1e6),
        "objects/s": figure(lambda run: run.objects),
        "MB/object": figure(
            lambda run: run.object_bytes / run.objects / 1e6 if run.objects and run.object_bytes else None
        ),
        "commits/s": figure(lambda run: run.commits),
        "other cores": figure(lambda run: run.other_cores),
    }


def _share_of(part: str) -> Callable[[Measured], float]:
    return lambda measured: measured.share(part)


def _median(runs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    values = sorted(map(figure, runs))
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def main() -> None:
    """Run the command line described at the top."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = [case for case in CASES if not options.only or case.name in options.only]
    modes = options.mode or list(MODES)
    try:
        with workspace(MEMORY_ROOT) as directory:
            bench = Bench(options, directory)
            bench.run(cases, modes)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n" + "; ".join(f"{name}: {value}" for name, value in processes.machine().items()))
    print(
        f"Medians of {options.repetitions} runs of {options.seconds:g} s after 1 s of warm-up, servers in turn; "
        f"{options.servers} Bearlake servers; peer warmed for {options.peer_warmup_s:g} s, first run of each thrown away.\n"
    )
    rows = [row_of(*key, runs) for key, runs in bench.found.items()]
    print(report.table(HEADS, rows, left=(0, 1, HEADS.index("share of the CPU"))))
    if options.json:
        options.json.write_text(json.dumps(_as_json(bench), indent=1) + "\n")
    for failure in bench.failures:
        print(f"failed: {failure}", file=sys.stderr)
    sys.exit(1 if bench.failures else 0)


def _as_json(bench: Bench) -> list[dict[str, object]]:
    return [
        {"case": title, "server": server, "cpu_s": dict(measured.cpu_s), **figures.as_json(measured.run)}
        for (title, server), runs in bench.found.items()
        for measured in runs
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="CASE", choices=[case.name for case in CASES])
    parser.add_argument("--mode", action="append", metavar="MODE", choices=MODES, help="default: both")
    parser.add_argument("--servers", type=int, default=3, help="servers of Bearlake")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peer-warmup-s", type=float, default=120)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
