"""The benchmark: Bearlake and Apache Kafka under the same load, in alternating runs.

    python bench/run.py                         every case, three repetitions (about 20 minutes)
    python bench/run.py --quick                 one short repetition: does it work?
    python bench/run.py --only produce-64k --only fetch-1m --repetitions 5
    python bench/run.py --side bearlake --only produce-1k       no peer: for work on a profile
    python bench/run.py --list

Both servers stay up during a case; their data is deleted between runs. README.md describes the comparison.
"""

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND, BearlakeServer
from bench.cases import BY_NAME, CASES, EXTRA, Case
from bench.errors import BenchError
from bench.figures import Run
from bench.java_peer import CACHE
from bench.loading import Load, Server
from bench.report import OURS, PEER, Result

from bench import loading, peer_kafka, processes, report, templates, topics

MEMORY_ROOT = Path("/dev/shm")
PREFIX = "bearlake-bench-"
FREE_BYTES_MIN = 8 << 30
"""Free space that the file system must have: RUN_BYTES_MAX for each of two servers, and a reserve."""
TOUCHED_FRACTION = 0.8
"""Share of the free memory that is touched before measurements in memory."""
RUN_BYTES_MAX = 3 << 30
"""Payload of one run, warm-up included; a faster server gets a shorter window, not more space."""
FETCH_LOG_BYTES = 16 << 20
"""Log of each partition that is fetched; a cursor that reaches its end returns to its start."""
WARMUP_NAMES = ("produce-1m", "produce-64k", "produce-1k", "produce-lz4", "produce-zstd", "fetch-1m")
WARMUP_ROUNDS = 2  # short runs, so that none ends early because of RUN_BYTES_MAX

_NUMBERS = itertools.count(1)  # a topic name is never reused, since its deletion may still be in progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    seconds: float = 3
    warmup_s: float = 1
    repetitions: int = 3
    discarded: int = 2
    """Discarded runs of each case and server before the first one that counts: the peer's compiler is not done after the warm-up."""
    peer_warmup_s: float = 60
    java_records: int = 500_000
    java_warmup_records: int = 200_000

    def __str__(self) -> str:
        words = (
            f"Medians of {self.repetitions} runs of {self.seconds:g} s after {self.warmup_s:g} s warm-up, servers in turn; "
            f"peer warmed for {self.peer_warmup_s:g} s at its start, {self.discarded} runs of each case thrown away."
        )
        return words if self.discarded else f"{words} The peer is cold: this only shows that everything works."


QUICK = Effort(
    seconds=0.8, warmup_s=0.3, repetitions=1, discarded=0, peer_warmup_s=5, java_records=100_000, java_warmup_records=50_000,
)  # fmt: skip


def main() -> None:
    """Command line: see the head of the file. Exit code 1 if a case failed, 2 if nothing could be measured."""
    options = _parser().parse_args()
    if options.list:
        for case in (*CASES, *EXTRA):
            print(f"{case.name:28} {case.title}{'' if case in CASES else '   (only when named)'}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped and data is wiped
    effort = QUICK if options.quick else Effort()
    effort = replace(effort, repetitions=options.repetitions or effort.repetitions)
    chosen = [BY_NAME[name] for name in options.only] if options.only else list(CASES)
    try:
        machine = processes.machine()
        results = run_suite(chosen, effort, options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    text = report.text(machine, str(effort), results, has_verdict=not options.quick)
    report.publish(text, report.as_json(machine, str(effort), results), options)
    sys.exit(1 if any(result.failures for result in results) else 0)


def run_suite(chosen: Sequence[Case], effort: Effort, options: argparse.Namespace) -> list[Result]:
    """Measure the chosen cases with both servers, in alternating runs; results in the order of `chosen`."""

    def measure_case(result: Result, servers: Sequence[Server], folder: Path) -> None:
        case = result.case
        assert isinstance(case, Case)
        for number in range(effort.discarded + effort.repetitions):
            for server in servers:
                once = partial(measure, server, case, effort, folder)
                note_run(result, server.name, once, counts=number >= effort.discarded)

    return by_medium(chosen, effort, options, partial(start_servers, options=options), measure_case)


def by_medium(
    chosen: Sequence[Case],
    effort: Effort,
    options: argparse.Namespace,
    start: Callable[[Path, contextlib.ExitStack], list[Server]],
    measure_case: Callable[[Result, Sequence[Server], Path], None],
) -> list[Result]:
    """Measure the chosen cases, grouped by the file system that they need; results in the order of `chosen`.

    `start` starts the servers of one file system; `measure_case` gets them, and a folder for files of templates.
    """
    loading.build_loader()
    results = {case.name: Result(case=case) for case in chosen}
    for medium, root in (("memory", MEMORY_ROOT), ("disk", options.disk)):
        group = [case for case in chosen if case.medium == medium]
        if not group:
            continue
        with workspace(root) as directory, contextlib.ExitStack() as running:
            if root == MEMORY_ROOT and options.side is None and not options.quick:
                touch_memory(directory)
            servers = start(directory, running)
            for server in servers:
                if server.name == PEER:
                    warm(server, effort, directory)
            for case in group:
                print(f"{case.name}: {case.title}", flush=True)
                measure_case(results[case.name], servers, directory / "templates")
    return list(results.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--only", action="append", metavar="CASE", choices=BY_NAME, help="may be repeated")
    parser.add_argument("--side", choices=(PEER, OURS), help="measure one server only")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--processes", type=int, metavar="N", help="server processes of Bearlake")
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run with every figure")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the printed tables")
    parser.add_argument("--disk", type=Path, default=CACHE, help="folder on a disk; default: %(default)s")
    parser.add_argument("--list", action="store_true", help="name the cases")
    return parser


def start_servers(directory: Path, running: contextlib.ExitStack, options: argparse.Namespace) -> list[Server]:
    """Start the servers; `running` stops them in every case."""
    servers: list[Server] = []
    if options.side != OURS:
        servers.append(peer_kafka.KafkaPeer(directory / PEER))
    if options.side != PEER:
        servers.append(BearlakeServer(directory / OURS, command=options.bearlake, processes_count=options.processes))
    for server in servers:
        running.callback(server.stop)
        server.start()
        print(f"{server.name} serves at {server.address}", flush=True)
    return servers


def note_run(result: Result, server: str, run_once: Callable[[], Run], *, counts: bool) -> None:
    """Run `server` once and add the run to `result` if it counts, with any failure; the suite continues."""
    if server in result.failures:
        return
    try:
        run = run_once()
    except BenchError as error:
        result.failures[server] = str(error)
        result.runs.pop(server, None)
        print(f"  {server:8} failed: {error}", flush=True)
    else:
        if counts:
            result.runs.setdefault(server, []).append(run)
        print(report.line(server, run) + ("" if counts else "  (does not count)"), flush=True)


def measure(server: Server, case: Case, effort: Effort, directory: Path) -> Run:
    """Run `case` once on its own topic, which is deleted afterwards. Template files go to `directory`."""
    server.prepare_next_run()
    topic = f"bench-{case.name}-{next(_NUMBERS)}"
    config = case.peer_config if server.name == PEER else {}
    topics.create(server.address, topic, case.partition_count, config)
    try:
        if case.kind == "java":
            return loading.run_java_producer(
                server, topic=topic, records=effort.java_records, warmup_records=effort.java_warmup_records,
                record_bytes=case.shape.record_bytes, properties=case.java_properties,
            )  # fmt: skip
        if case.kind == "fetch":
            fill_log(server, case, topic, directory)
        return loading.run_loader(server, load_of(case, effort, topic, directory))
    finally:
        with contextlib.suppress(BenchError):  # the original failure of the run is more useful
            topics.delete(server.address, topic)
        shutil.rmtree(directory, ignore_errors=True)


def load_of(case: Case, effort: Effort, topic: str, directory: Path) -> Load:
    """Write the templates of a case; returns the load options."""
    owned = [templates.partitions_of(c, case.partitions_per_request) for c in range(case.connections)]
    if case.kind == "fetch":
        frames = [
            templates.fetch_request(partition, topic=topic, bytes_max=case.fetch_bytes_max, version=case.version)
            for partition in owned
        ]
        requests_max = 1 << 40
    else:
        batch = templates.record_batch(case.shape)
        frames = [templates.produce_request(batch, partition, topic=topic, version=case.version) for partition in owned]
        requests_max = RUN_BYTES_MAX // (case.payload_bytes * case.connections)
    templates.write_templates(directory, frames)
    return Load(
        templates=directory, connections=case.connections, depth=case.depth, seconds=effort.seconds,
        warmup_s=effort.warmup_s, pause_us=case.pause_us, requests_max=requests_max,
        payload_bytes=case.payload_bytes, idempotent=case.idempotent,
    )  # fmt: skip


def fill_log(server: Server, case: Case, topic: str, directory: Path) -> None:
    """Write the log that a fetch case reads: FETCH_LOG_BYTES into each partition."""
    filling = replace(case, kind="produce", version=9, depth=5)
    load = load_of(filling, Effort(seconds=60, warmup_s=0), topic, directory)
    loading.run_loader(server, replace(load, requests_max=FETCH_LOG_BYTES // case.shape.payload_bytes))


def warm(server: Server, effort: Effort, directory: Path) -> None:
    """Mixed load to warm the peer's just-in-time compiler; its figures are discarded."""
    print(f"warming {server.name} for {effort.peer_warmup_s:g} s", flush=True)
    warmup = replace(effort, warmup_s=0, seconds=effort.peer_warmup_s / (WARMUP_ROUNDS * len(WARMUP_NAMES)))
    for name in WARMUP_NAMES * WARMUP_ROUNDS:
        measure(server, BY_NAME[name], warmup, directory / "templates")


@contextlib.contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """a new directory below `root`, wiped at the end; leftovers of a killed run are wiped at the start."""
    root.mkdir(parents=True, exist_ok=True)
    for old in root.glob(f"{PREFIX}*"):
        owner = old.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not processes.is_alive(int(owner)):
            shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(root).free < FREE_BYTES_MIN:
        raise BenchError(f"{root} has less than {FREE_BYTES_MIN >> 30} GiB free")
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    directory.chmod(0o711)  # PostgreSQL runs as another account
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def touch_memory(directory: Path) -> None:
    """Write to most of the free memory once, and release it.

    The host gives a virtual machine its memory at the first touch, which costs ten times as much as a later write (2.2 against
    0.26 CPU-s/GB when measured), and is charged to whichever server gets the new pages.
    """
    piece = bytes(1 << 20)
    path = directory / "touched"
    room = min(processes.free_memory_bytes(), shutil.disk_usage(directory).free)
    with path.open("wb") as file:
        for _ in range(int(room * TOUCHED_FRACTION) // len(piece)):
            file.write(piece)
    path.unlink()


if __name__ == "__main__":
    main()
