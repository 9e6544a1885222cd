"""How far are Kafka and Bearlake from the floor: a server that does only what no server with Bearlake's promise can leave out?

    python bench/floor.py                       every case with a floor (about nine minutes)
    python bench/floor.py --only produce-16k --repetitions 5
    python bench/floor.py --alone --quick       only the floor: does it work?

The floor is measured, not argued: `loader/bare_server.c` serves the same load beside both servers, in alternating runs of the same
programs (`run.py`). Per Produce request it does this and nothing else: receive the frame into a buffer that stays; find the batches;
check the CRC32C of each batch, and the sequence number of its producer; decompress lz4 and zstd. Per flush: write the batches into one
file without a name, sync it, link it under its name and sync the folder; write one row with the slices, sequences and outcomes into
SQLite, which is one transaction with one sync; then send the answers of each connection at once. Flushes begin when Bearlake's do, and
a thread of its own stores them. Per Fetch request: find the batches by their offset in a log in memory, and send them without a copy.

The floor leaves out what a server could do in another way, or at another time: the check of the records in a batch, access rules,
quotas, topics and their settings, the index of older offsets and its upkeep, the cache for readers, deletion, fencing, metrics, other
requests, TLS and timeouts. It is written in C, so it also leaves out an interpreter. So a server with all this is above the floor, and
a goal below the floor cannot be reached. What a column means: README.md.
"""

import argparse
import contextlib
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bare_server import BareServer
from bench.bearlake_server import COMMAND
from bench.cases import BY_NAME, CASES, KIB, Case
from bench.errors import BenchError
from bench.figures import Run
from bench.java_peer import CACHE
from bench.loading import Server
from bench.report import OURS, PEER, Result, short
from bench.run import Effort, measure, note_run

from bench import figures, loading, processes, report, run

FLOOR = "floor"
REQUEST_BYTES_MAX = 16 * KIB
"""Cases with requests up to this size are compared by microseconds per request, others by seconds per GB."""
EFFORT = Effort(seconds=2, warmup_s=0.5, repetitions=3, discarded=1, peer_warmup_s=45)
QUICK = Effort(seconds=0.5, warmup_s=0.2, repetitions=1, discarded=0, peer_warmup_s=5)
HEADS = (
    "case", "CPU", "kafka", OURS, FLOOR, "floor / kafka", "goal", "goal / floor", "bearlake / floor", "bearlake / kafka",
)  # fmt: skip
RATE_HEADS = (
    "case", "MB/s: kafka", OURS, FLOOR, "floor / kafka", "goal", "p50 ms: kafka", OURS, FLOOR, "requests per object: bearlake", FLOOR,
)  # fmt: skip
OTHER_HEADS = ("case", "another floor", "CPU", "its CPU", "x kafka", "MB/s", "p50 ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A way to run the bare server."""

    name: str = FLOOR
    words: Sequence[str] = ()
    """Of its command line."""


OTHERS: Mapping[str, Sequence[Floor]] = {
    "fetch-1m": (Floor(name="sendfile from a file", words=("--keep-log", "--sendfile")),),
    "low-load": (Floor(name="stored in the thread that reads sockets", words=("--inline",)),),
    "produce-lz4": (Floor(name="not decompressed"),),
    "produce-zstd": (Floor(name="not decompressed"),),
}
"""Further floors of a case: other ways to keep the same promise, or a weaker one."""

MEASURED = {case.name: case for case in BY_NAME.values() if case.kind != "java"}
"""Cases that can be measured: the bare server cannot answer a Java client."""
DEFAULT = [case for case in CASES if case.kind != "java" and case.name != "produce-1000-partitions"]


def main() -> None:
    """Command line: see the head of the file. Exit code 1 if a case failed, 2 if nothing could be measured."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped and data is wiped
    effort = QUICK if options.quick else EFFORT
    effort = replace(
        effort, repetitions=options.repetitions or effort.repetitions, seconds=options.seconds or effort.seconds
    )
    chosen = [MEASURED[name] for name in options.only] if options.only else DEFAULT
    try:
        machine = processes.machine()
        results = measure_all(chosen, effort, options)
    except BenchError as error:
        print(f"floor: {error}", file=sys.stderr)
        sys.exit(2)
    text = text_of(machine, effort, results)
    report.publish(text, report.as_json(machine, str(effort), results), options)
    sys.exit(1 if any(result.failures for result in results) else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--alone", action="store_true", help="measure neither Kafka nor Bearlake")
    parser.add_argument("--only", action="append", metavar="CASE", choices=MEASURED, help="may be repeated")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--seconds", type=float, help="length of a run")
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run with every figure")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the printed tables")
    parser.add_argument("--disk", type=Path, default=CACHE, help="folder on a disk; default: %(default)s")
    parser.set_defaults(side=None, processes=None)
    return parser


def measure_all(chosen: Sequence[Case], effort: Effort, options: argparse.Namespace) -> list[Result]:
    """Measure the chosen cases with the servers and the floor, in alternating runs; results in the order of `chosen`."""

    def start(directory: Path, running: contextlib.ExitStack) -> list[Server]:
        return [] if options.alone else run.start_servers(directory, running, options)

    return run.by_medium(chosen, effort, options, start, partial(_measure_case, effort))


def _measure_case(effort: Effort, result: Result, servers: Sequence[Server], folder: Path) -> None:
    case = result.case
    assert isinstance(case, Case)
    floors = [BareServer(folder.parent / "bare", floor.words, name=floor.name) for floor in floors_of(case)]
    for number in range(effort.discarded + effort.repetitions):
        counts = number >= effort.discarded
        for server in servers:
            note_run(result, server.name, partial(measure, server, case, effort, folder), counts=counts)
        for floor in floors if counts else ():  # nothing in it warms up
            note_run(result, floor.name, partial(measure_bare, floor, case, effort, folder), counts=True)


def floors_of(case: Case) -> list[Floor]:
    """The bare servers of a case: the floor first."""
    words = ["--keep-log"] if case.kind == "fetch" else ["--decompress"] if case.shape.codec != "none" else []
    return [Floor(words=words), *OTHERS.get(case.name, ())]


def measure_bare(server: BareServer, case: Case, effort: Effort, directory: Path) -> Run:
    """Run `case` once on a new bare server. Template files go to `directory`."""
    topic = "bench"
    server.prepare_next_run()
    try:
        if case.kind == "fetch":
            run.fill_log(server, case, topic, directory)
        return loading.run_loader(server, run.load_of(case, effort, topic, directory))
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


# -- tables ------------------------------------------------------------------------------------------------------------


def text_of(machine: Mapping[str, str], effort: Effort, results: Sequence[Result]) -> str:
    """Markdown: the machine, CPU beside the floor, rates and latencies, and further floors."""
    parts = ["; ".join(f"{name}: {value}" for name, value in machine.items()), str(effort)]
    parts.append(report.table(HEADS, [_cpu_row(result) for result in results], left=(0, 1)))
    parts.append(report.table(RATE_HEADS, [_rate_row(result) for result in results]))
    if others := [row for result in results for row in _other_rows(result)]:
        parts.append(report.table(OTHER_HEADS, others, left=(0, 1, 2)))
    failures = [f"- {r.case.name}, {server}: {why}" for r in results for server, why in r.failures.items()]
    if failures:
        parts.append("Failed:\n\n" + "\n".join(failures))
    others_max = max(
        (measured.other_cores for result in results for runs in result.runs.values() for measured in runs), default=0
    )
    parts.append(f"Other programs kept up to {others_max:.1f} cores busy during a run.")
    return "\n\n".join(parts) + "\n"


def _cpu_of(result: Result) -> tuple[str, Callable[[str], float | None]]:
    """The unit in which a case's CPU is compared, and the median of a server."""
    case = result.case
    assert isinstance(case, Case)
    if case.kind == "produce" and case.payload_bytes <= REQUEST_BYTES_MAX:
        return "us/request", lambda server: _median(result, server, lambda measured: measured.cpu_us_per_request)
    return "s/GB", lambda server: _median(result, server, lambda measured: measured.cpu_s_per_gb)


def _median(result: Result, server: str, figure: Callable[[Run], float | None]) -> float | None:
    return figures.of_runs(result.runs.get(server, ()), figure)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _cpu_row(result: Result) -> list[str]:
    unit, cpu = _cpu_of(result)
    peer, ours, floor = cpu(PEER), cpu(OURS), cpu(FLOOR)
    goal = result.case.goal.cpu_ratio_max
    share = _ratio(floor, peer)
    room = _ratio(goal, share)
    return [
        result.case.title,
        unit,
        *map(short, (peer, ours, floor, share)),
        "" if goal is None else f"<= {goal}",
        short(room) + (" (below the floor)" if room is not None and room < 1 else ""),
        short(_ratio(ours, floor)),
        short(_ratio(ours, peer)),
    ]


def _rate_row(result: Result) -> list[str]:
    servers = (PEER, OURS, FLOOR)
    rates = [_median(result, server, lambda measured: measured.mb_per_s) for server in servers]
    waits = [_median(result, server, lambda measured: measured.p50_ms) for server in servers]
    goal = result.case.goal.throughput_ratio_min
    sizes = [_median(result, server, _requests_per_object) for server in (OURS, FLOOR)]
    return [
        result.case.title,
        *map(short, (*rates, _ratio(rates[2], rates[0]))),
        "" if goal is None else f">= {goal}",
        *map(short, (*waits, *sizes)),
    ]


def _requests_per_object(measured: Run) -> float | None:
    return measured.requests_per_s / measured.objects if measured.objects else None


def _other_rows(result: Result) -> list[list[str]]:
    unit, cpu = _cpu_of(result)
    rows = []
    for name in result.runs:
        if name in (PEER, OURS, FLOOR):
            continue
        own = cpu(name)
        rate = _median(result, name, lambda measured: measured.mb_per_s)
        wait = _median(result, name, lambda measured: measured.p50_ms)
        rows.append([result.case.title, name, unit, *map(short, (own, _ratio(own, cpu(PEER)), rate, wait))])
    return rows


if __name__ == "__main__":
    main()
