"""What a client that floods a server costs another client, without and with a quota.

    python bench/quota_floods.py [--bearlake PROGRAM] [--seconds 5] [--repetitions 3] [--only FLOOD] [--json FILE]

The measured client writes 1 KiB at a time over one connection, with a pause of 5 ms. It runs alone, beside a flood without a
quota, and beside the same flood with a quota, in turn, on one server. The flood has its own client id, topic and connections.
Goal: with the quota, the p99 of the measured client is at most twice as high as when it runs alone.
There is no peer: Kafka's own quotas are not measured. Exit code 1: a goal was missed. 2: nothing could be measured.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND, BearlakeServer
from bench.cases import KIB
from bench.errors import BenchError
from bench.figures import Run
from bench.loading import Load, run_loader
from bench.run import MEMORY_ROOT, workspace
from bench.templates import BatchShape

from bench import processes, report, templates, topics

FLOOD_ID = "flood"
"""Client id of the flood, which the quota names."""
QUIET_SHAPE = BatchShape(record_count=1, record_bytes=KIB)
FLOOD_SHAPE = BatchShape(record_count=64, record_bytes=KIB)
PAUSE_US = 5_000
WARMUP_S = 2
LOG_REQUESTS = 256
"""Batches of `FLOOD_SHAPE` in each partition that a flood of reads fetches: 16 MiB."""
P99_RATIO_MAX = 2.0
COMMAND_TIMEOUT_S = 60

Regime = Literal["alone", "flood", "quota"]
REGIMES: tuple[Regime, ...] = ("alone", "flood", "quota")
TITLES = {"alone": "alone", "flood": "flood, no quota", "quota": "flood, quota"}
HEADS = ("flood", "measured client", "p50 ms", "p99 ms", "p99 / alone", "flood MB/s", "flood requests/s", "result")

_NUMBERS = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """A kind of flood: requests that are sent without a pause, and the quota against it."""

    name: str
    quota: str
    """`KEY=VALUE` of `bearlake quota set`."""
    frame: Callable[[str, int], bytes]
    """The request of a connection: (topic, number of the connection) -> frame."""
    connections: int = 4
    depth: int = 5
    reads: bool = False
    """Whether the partitions hold records before the flood begins."""


def _writes(topic: str, connection: int) -> bytes:
    return templates.produce_request(templates.record_batch(FLOOD_SHAPE), [connection], topic=topic, client_id=FLOOD_ID)


def _reads(topic: str, connection: int) -> bytes:
    return templates.fetch_request([connection], topic=topic, bytes_max=1 << 20, client_id=FLOOD_ID)


def _questions(topic: str, connection: int) -> bytes:
    """A Fetch of an empty partition that does not wait: only the server's time."""
    return templates.fetch_request([connection], topic=topic, bytes_max=KIB, wait_ms=0, client_id=FLOOD_ID)


FLOODS = (
    Flood(name="writes of 64 KiB", quota="producer_byte_rate=1000000", frame=_writes),
    Flood(name="reads of 1 MiB", quota="consumer_byte_rate=10000000", frame=_reads, reads=True),
    Flood(name="empty fetches", quota="request_percentage=5", frame=_questions, connections=16, depth=16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of the measured client, and of the flood beside it, if any."""

    quiet: Run
    flood: Run | None


class Bench:
    """One server, and the two clients of each run."""

    def __init__(self, server: BearlakeServer, command: Path, directory: Path, seconds: float) -> None:
        self._server = server
        self._command = command
        self._directory = directory
        self._seconds = seconds

    def measure(self, flood: Flood, regime: Regime) -> Measured:
        """Run the measured client in `regime`. Raises BenchError if a client or a command fails."""
        self._server.prepare_next_run()
        number = next(_NUMBERS)
        quiet_topic, flood_topic = f"quiet-{number}", f"flood-{number}"
        quiet = self._quiet_load(quiet_topic)
        if regime == "alone":
            return Measured(quiet=run_loader(self._server, quiet), flood=None)
        load = self._flood_load(flood, flood_topic)
        if regime == "quota":
            self._quota("set", flood.quota)
        try:
            with ThreadPoolExecutor(max_workers=2) as pool:
                flooding = pool.submit(run_loader, self._server, load)
                measuring = pool.submit(run_loader, self._server, quiet)
                return Measured(quiet=measuring.result(), flood=flooding.result())
        finally:
            if regime == "quota":
                self._quota("delete", flood.quota.partition("=")[0])
            topics.delete(self._server.address, flood_topic)
            topics.delete(self._server.address, quiet_topic)

    def _quiet_load(self, topic: str) -> Load:
        topics.create(self._server.address, topic, 1, {})
        folder = self._directory / topic
        templates.write_templates(
            folder, [templates.produce_request(templates.record_batch(QUIET_SHAPE), [0], topic=topic)]
        )
        return Load(
            templates=folder, connections=1, depth=1, seconds=self._seconds, warmup_s=WARMUP_S, pause_us=PAUSE_US,
            payload_bytes=QUIET_SHAPE.payload_bytes,
        )  # fmt: skip

    def _flood_load(self, flood: Flood, topic: str) -> Load:
        topics.create(self._server.address, topic, flood.connections, {})
        folder = self._directory / topic
        if flood.reads:
            batch = templates.record_batch(FLOOD_SHAPE)
            filling = [templates.produce_request(batch, [part], topic=topic) for part in range(flood.connections)]
            templates.write_templates(folder, filling)
            run_loader(self._server, Load(
                templates=folder, connections=flood.connections, depth=5, seconds=60, requests_max=LOG_REQUESTS,
                payload_bytes=FLOOD_SHAPE.payload_bytes,
            ))  # fmt: skip
        templates.write_templates(folder, [flood.frame(topic, number) for number in range(flood.connections)])
        return Load(
            templates=folder, connections=flood.connections, depth=flood.depth, seconds=self._seconds, warmup_s=WARMUP_S,
            payload_bytes=0 if flood.frame is not _writes else FLOOD_SHAPE.payload_bytes,
        )  # fmt: skip

    def _quota(self, verb: str, quota: str) -> None:
        words = [str(self._command), "quota", verb, quota, "--client-id", FLOOD_ID]
        done = subprocess.run(
            [*words, "--data-dir", str(self._server.directory / "data")],
            capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise BenchError(f"bearlake quota {verb}: {done.stderr.strip() or done.stdout.strip()}")


def rows_of(name: str, runs: dict[Regime, list[Measured]]) -> tuple[list[list[str]], bool]:
    """Rows of a flood in the table, of medians; and whether its goal was reached."""
    p99_alone = median(_p99(run) for run in runs["alone"])
    rows, is_reached = [], True
    for regime in REGIMES:
        p99 = median(_p99(run) for run in runs[regime])
        floods = [run.flood for run in runs[regime] if run.flood]
        verdict = ""
        if regime == "quota":
            is_reached = p99 <= P99_RATIO_MAX * p99_alone
            verdict = "reached" if is_reached else f"missed: more than {P99_RATIO_MAX:g} times"
        rows.append([
            name, TITLES[regime], report.short(median(run.quiet.p50_ms or 0 for run in runs[regime])),
            report.short(p99), report.short(p99 / p99_alone),
            report.short(median(run.mb_per_s for run in floods)) if floods else "",
            report.short(median(run.requests_per_s for run in floods)) if floods else "", verdict,
        ])  # fmt: skip
    return rows, is_reached


def _p99(run: Measured) -> float:
    assert run.quiet.p99_ms is not None, "the load generator reports a p99 for Produce"
    return run.quiet.p99_ms


def main() -> None:
    """Run the command line described at the top."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [flood for flood in FLOODS if not options.only or flood.name in options.only]
    found: dict[str, dict[Regime, list[Measured]]] = {}
    try:
        with workspace(MEMORY_ROOT) as root:
            server = BearlakeServer(root / "bearlake", command=options.bearlake)
            try:
                server.start()
                bench = Bench(server, options.bearlake, root / "templates", options.seconds)
                for flood in chosen:
                    runs: dict[Regime, list[Measured]] = {regime: [] for regime in REGIMES}
                    for _ in range(options.repetitions):
                        for regime in REGIMES:
                            runs[regime].append(bench.measure(flood, regime))
                    found[flood.name] = runs
            finally:
                server.stop()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    print("; ".join(f"{name}: {value}" for name, value in processes.machine().items()))
    print(f"Medians of {options.repetitions} runs of {options.seconds:g} s after {WARMUP_S} s of warm-up.\n")
    tables = [rows_of(name, runs) for name, runs in found.items()]
    print(report.table(HEADS, [row for rows, _ in tables for row in rows], left=(0, 1, len(HEADS) - 1)))
    if options.json:
        options.json.write_text(json.dumps(_as_json(found), indent=1) + "\n")
    sys.exit(0 if all(is_reached for _, is_reached in tables) else 1)


def _as_json(found: dict[str, dict[Regime, list[Measured]]]) -> list[dict[str, object]]:
    return [
        {
            "flood": name,
            "regime": regime,
            "measured": asdict(run.quiet),
            "flooding": asdict(run.flood) if run.flood else None,
        }
        for name, runs in found.items()
        for regime, measured in runs.items()
        for run in measured
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", action="append", metavar="FLOOD", choices=[flood.name for flood in FLOODS])
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
