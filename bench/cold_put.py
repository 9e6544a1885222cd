"""One default producer against a server whose object store takes 80 ms for a PUT, as cloud object stores do.

    python bench/cold_put.py [--bearlake PROGRAM] [--put-latency-ms 80] [--seconds 10] [--json FILE]

The producer is what the clients ship as default: one connection, five requests of 1 MiB in flight. Two modes: a linger of
250 ms (few PUTs: four per second and server without load) and the latency mode (flush at once when no PUT is in flight), each
with one partition and with a hundred: the number of partitions must change neither the PUT rate nor the latency.
There is no peer: a broker that writes to its own disk does different work.
"""

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.cases import KIB, Case
from bench.configured_server import ConfiguredServer
from bench.errors import BenchError
from bench.figures import Run
from bench.run import MEMORY_ROOT, Effort, measure, workspace
from bench.templates import BatchShape

from bench import figures, processes, report

# Names in the settings file of `bearlake serve kafka --config FILE`, all in one place.
PUT_LATENCY_MS = "object_store.faults.put_latency_ms"
LINGER_MS = "streams.writer.linger_ms"
FLUSH_WHEN_IDLE = "streams.writer.flush_when_idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How the server flushes, and the goals for one default producer."""

    name: str
    settings: Mapping[str, object]
    mb_per_s_min: float | None = None
    p50_ms_max: float
    p99_ms_max: float | None = None


MODES = (
    Mode(
        name="linger 250 ms", settings={LINGER_MS: 250, FLUSH_WHEN_IDLE: False},
        mb_per_s_min=30, p50_ms_max=220, p99_ms_max=450,
    ),
    Mode(name="latency mode", settings={LINGER_MS: 5, FLUSH_WHEN_IDLE: True}, p50_ms_max=110),
)  # fmt: skip
PARTITION_COUNTS = (1, 100)
RECORD_COUNT = 1000
"""Number of records of 1 KiB in one request."""
HEADS = ("mode", "partitions", "MB/s", "p50 ms", "p99 ms", "PUT/s", "MB/object", "commits/s", "result")


def measure_mode(mode: Mode, options: argparse.Namespace) -> list[tuple[int, Run]]:
    """Run the producer in one mode, once per partition count, each run on its own server."""
    effort = Effort(seconds=options.seconds, warmup_s=2)
    found = []
    with workspace(MEMORY_ROOT) as directory:
        latency = {PUT_LATENCY_MS: options.put_latency_ms}
        server = ConfiguredServer(
            directory / "bearlake", command=options.bearlake, settings={**latency, **mode.settings}
        )
        try:
            server.start()
            for count in PARTITION_COUNTS:
                shape = BatchShape(record_count=RECORD_COUNT // count, record_bytes=KIB)
                case = Case(name="cold-put", title=mode.name, shape=shape, connections=1, partitions_per_request=count)
                found.append((count, measure(server, case, effort, directory / "templates")))
        finally:
            server.stop()
    return found


def main() -> None:
    """Run the command line described at the top. Exit code 2 if nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM")
    parser.add_argument("--put-latency-ms", type=float, default=80)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        found = [(mode, count, run) for mode in MODES for count, run in measure_mode(mode, options)]
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    print("; ".join(f"{name}: {value}" for name, value in processes.machine().items()))
    print(f"PUT latency {options.put_latency_ms:g} ms, {options.seconds:g} s each\n")
    print(report.table(HEADS, [_row(mode, count, run) for mode, count, run in found], left=(0, len(HEADS) - 1)))
    if options.json:
        runs = [{"mode": mode.name, "partitions": count, **figures.as_json(run)} for mode, count, run in found]
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


def _row(mode: Mode, count: int, run: Run) -> list[str]:
    missed = [
        name
        for name, is_missed in (
            ("throughput", mode.mb_per_s_min is not None and run.mb_per_s < mode.mb_per_s_min),
            ("p50", run.p50_ms > mode.p50_ms_max),
            ("p99", mode.p99_ms_max is not None and run.p99_ms > mode.p99_ms_max),
        )
        if is_missed
    ]
    size_mb = run.object_bytes / run.objects / 1e6 if run.objects and run.object_bytes else None
    figures_of_run = (run.mb_per_s, run.p50_ms, run.p99_ms, run.objects, size_mb, run.commits)
    verdict = "missed: " + ", ".join(missed) if missed else "reached"
    return [mode.name, str(count), *map(report.short, figures_of_run), verdict]


if __name__ == "__main__":
    main()
