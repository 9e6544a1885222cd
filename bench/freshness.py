"""Delay until acknowledged records are visible to SQL, with all processes on this machine, and the disk space used afterwards.

    python bench/freshness.py [--seconds 120] [--mb-per-s 20] [--record-bytes 1024] [--partitions 6] [--kill] [--json FILE]

`bearlake up` with its compaction worker, and one producer at a steady rate. Each acknowledgement has a time; a watcher reads the
Iceberg catalog five times a second. A record is visible when a committed snapshot has it: the table's ends are in
the same commit. Ten seconds after the load stops, the bytes of WAL and table are counted. With `--kill` the worker
is killed (-9) in the middle, and the added delay is reported. There is no peer: a connector would need a second system.
"""

import argparse
import bisect
import json
import os
import signal
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.bearlake_server import BearlakeServer, sum_of
from bench.errors import BenchError
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from bench import processes, report

STREAM = "freshness"
LOOK_S = 0.2
AFTER_LOAD_S = 10.0
DRAIN_TIMEOUT_S = 120.0


class LakeServer(BearlakeServer):
    """`bearlake up` with its compaction worker."""

    def words(self, ready: Path) -> Sequence[str | Path]:
        """See `BearlakeServer.words`."""
        return [word for word in super().words(ready) if word != "--no-compaction"]

    @property
    def command(self) -> str:
        """The program `bearlake`."""
        return str(self._command)

    def metric(self, name: str) -> float:
        """A metric of the server, summed over its labels; 0 if the page does not have it."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as page:
            return sum_of(page.read().decode(), name) or 0.0

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.directory / "data"


class Load(threading.Thread):
    """One producer at a steady rate; records when each offset was acknowledged, by partition."""

    def __init__(self, bootstrap: str, partition_count: int, record_bytes: int, bytes_per_s: float) -> None:
        super().__init__(daemon=True)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "batch.size": 262144}
        )
        self._partition_count = partition_count
        self._noise = os.urandom(8 * 1024 * 1024)  # half of each value is random: the other half compresses well
        self._text = b"bear " * (record_bytes // 10)
        self._record_bytes = record_bytes
        self._per_s = bytes_per_s / record_bytes
        self.offsets: list[list[int]] = [[] for _ in range(partition_count)]
        self.times: list[list[float]] = [[] for _ in range(partition_count)]
        self.sent_count = self.failed_count = 0
        self.is_stopping = threading.Event()

    @override
    def run(self) -> None:
        start = time.monotonic()
        while not self.is_stopping.is_set():
            due = int((time.monotonic() - start) * self._per_s)
            while self.sent_count < due:
                at = self.sent_count * 7919 % (len(self._noise) - self._record_bytes)
                value = self._noise[at : at + self._record_bytes - len(self._text)] + self._text
                partition = (self.sent_count // 64) % self._partition_count
                try:
                    self._producer.produce(
                        STREAM, value, b"key-%d" % (self.sent_count % 1000), partition, on_delivery=self._delivered
                    )
                except BufferError:
                    break
                self.sent_count += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed_count += 1
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.offsets[partition].append(offset)
        self.times[partition].append(time.monotonic())

    def acknowledged(self) -> list[int]:
        """End offsets of the acknowledged records."""
        return [offsets[-1] + 1 if offsets else 0 for offsets in self.offsets]


class Watch:
    """Watches the table's ends and keeps (time, ends) of each change."""

    def __init__(self, data: Path) -> None:
        self._catalog = SqlCatalog("bearlake", uri=f"sqlite:///{data / 'catalog.db'}", warehouse="file:///unused")
        self.seen: list[tuple[float, dict[int, int]]] = []

    def look(self) -> dict[int, int]:
        """The current ends."""
        try:
            table = self._catalog.load_table(("streams", STREAM))
        except (NoSuchTableError, NoSuchNamespaceError):
            return {}
        ends = {int(key): int(end) for key, end in json.loads(table.properties.get("bearlake.ends", "{}")).items()}
        if not self.seen or self.seen[-1][1] != ends:
            self.seen.append((time.monotonic(), ends))
        return ends

    def live_bytes(self) -> int:
        """Bytes of the data files in the newest snapshot."""
        snapshot = self._catalog.load_table(("streams", STREAM)).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return int(snapshot.summary.additional_properties["total-files-size"])

    def delays_s(self, load: Load, after: float, before: float) -> list[float]:
        """Seconds from acknowledgement to visibility of records acknowledged in that time, thinned to one in a hundred."""
        delays = []
        for partition, offsets in enumerate(load.offsets):
            ends = [ends.get(partition, 0) for _, ends in self.seen]
            for offset, acked in list(zip(offsets, load.times[partition], strict=True))[::100]:
                if after <= acked < before:
                    index = bisect.bisect_right(ends, offset)
                    delays.append(self.seen[index][0] - acked if index < len(self.seen) else float("inf"))
        return delays


def main() -> None:
    """Measure and print."""
    options = _parser().parse_args()
    if options.seconds < 30:
        sys.exit("freshness: --seconds must be at least 30: the worker takes some to start")
    try:
        with workspace(MEMORY_ROOT) as root:
            found = measure(LakeServer(root / "lake"), options)
    except BenchError as error:
        sys.exit(f"freshness: {error}")
    rows = [[name, report.short(value) if isinstance(value, float) else str(value)] for name, value in found.items()]
    print(report.table(["figure", "value"], rows))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


def measure(server: LakeServer, options: argparse.Namespace) -> dict[str, object]:
    """Run the load, return the figures."""
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic(STREAM, options.partitions)])[STREAM].result(30)
        load = Load(server.address, options.partitions, options.record_bytes, options.mb_per_s * 1e6)
        watch = Watch(server.data)
        start, killed, worker_bytes = time.monotonic(), 0.0, 0
        load.start()
        while (now := time.monotonic()) < start + options.seconds:
            watch.look()
            worker_bytes = max(worker_bytes, _worker_bytes(server))
            if options.kill and not killed and now > start + options.seconds / 2:
                killed = now
                pid = worker_pid(server)
                assert pid is not None, "the compaction worker does not run"
                os.kill(pid, signal.SIGKILL)
            time.sleep(max(0.0, now + LOOK_S - time.monotonic()))
        load.is_stopping.set()
        load.join(90)
        stopped = time.monotonic()
        while time.monotonic() < stopped + AFTER_LOAD_S:
            watch.look()
            time.sleep(LOOK_S)
        sizes = _sizes(server.data)
        complete_s = _await_complete(watch, load, stopped)
        found = _figures(options, load, watch, sizes, start, killed)
        usage = processes.usage(server.pid)
        return found | {
            "complete after the load's end s": complete_s,
            "CPU-s of all server processes": usage.cpu_s,
            "memory of the worker with its JVM and executors (PSS), max MiB": worker_bytes / 2**20,
        }
    finally:
        server.stop()


def _figures(
    options: argparse.Namespace,
    load: Load,
    watch: Watch,
    sizes: dict[str, int],
    start: float,
    killed: float,
) -> dict[str, object]:
    found: dict[str, object] = {
        "records acknowledged": sum(len(offset) for offset in load.offsets),
        "records failed": load.failed_count,
        "MB/s acknowledged": sum(len(partition_offsets) for partition_offsets in load.offsets)
        * options.record_bytes
        / options.seconds
        / 1e6,
        "commits of the table seen": len(watch.seen),
    }
    warm = start + 20  # the worker starts itself again
    spans = {"freshness": (warm, killed or float("inf"))}
    if killed:
        spans |= {
            "freshness, worker killed": (killed - 10, killed + 30),
            "freshness, after that": (killed + 30, float("inf")),
        }
    for name, (after, before) in spans.items():
        delays = sorted(watch.delays_s(load, after, before)) or [float("nan")]
        found[f"{name}: p50 s"] = statistics.median(delays)
        found[f"{name}: p99 s"] = delays[int(len(delays) * 0.99)]
        found[f"{name}: max s"] = delays[-1]
    found |= {f"bytes of {name} 10 s after the load's end": size for name, size in sizes.items()}
    found["(WAL + table) / table"] = (sizes["wal"] + sizes["table"]) / max(1, sizes["table"])
    raw = sum(len(partition_offsets) for partition_offsets in load.offsets) * options.record_bytes
    live = watch.live_bytes()  # the folder also has merged files until the snapshots that name them expire
    found |= {
        "bytes of the newest snapshot": live,
        "compression: record bytes / bytes of the newest snapshot": raw / live,
    }
    return found


def _await_complete(watch: Watch, load: Load, stopped: float) -> float:
    wanted = load.acknowledged()
    while time.monotonic() < stopped + DRAIN_TIMEOUT_S:
        ends = watch.look()
        if all(ends.get(index, 0) >= end for index, end in enumerate(wanted)):
            return watch.seen[-1][0] - stopped
        time.sleep(LOOK_S)
    raise BenchError(f"the table has {watch.look()} of {wanted} {DRAIN_TIMEOUT_S} s after the end of the load")


def _sizes(data: Path) -> dict[str, int]:
    folder = data / "objects"
    return {name: processes.directory_bytes(folder / name) for name in ("wal", "table", "kept")}


def _worker_bytes(server: LakeServer) -> int:
    pid = worker_pid(server)
    return 0 if pid is None else processes.proportional_bytes(pid)


def worker_pid(server: BearlakeServer) -> int | None:
    """The process that is `bearlake serve compactor`, a child of the server."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"compactor" in words and parent == server.pid:
                return int(entry.name)
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--mb-per-s", type=float, default=20)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--kill", action="store_true", help="kill the worker in the middle")
    parser.add_argument("--json", metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
