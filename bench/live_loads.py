"""What does a load of the warehouse `live` cost, at one stream and at many: time, CPU time of the server, objects that it writes?

    python bench/live_loads.py [--streams 1] [--rows 3000] [--rounds 30] [--partitions 4] [--record-bytes 100]

`bearlake up` without compaction, so that the tail only grows. First, each stream gets rows and one load, which creates its table. Each
round then appends `--rows` rows to a stream, loads its table, and loads it again when nothing is new. Rounds go through the streams in
turn. Loads of one table are at least `live.build_pause_ms` apart, so that none waits for it. CPU time is that of the whole server during
the load; what the server does beside is in it.
"""

import argparse
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import processes, report

TIMEOUT_S = 120.0
CREATED_AT_ONCE = 100
PAUSE_S = 0.15


@dataclass(slots=True)
class Loads:
    """Loads of one kind."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    object_count: int = 0
    object_bytes: int = 0

    def row(self, name: str) -> list[str]:
        """Return the table's row."""
        count = len(self.wall_s)
        ordered = sorted(self.wall_s)
        figures = (
            1000 * statistics.median(ordered),
            1000 * ordered[min(count - 1, count * 95 // 100)],
            1000 * self.cpu_s / count,
            self.object_count / count,
            self.object_bytes / count / 1000,
        )
        return [name, str(count), *(report.short(figure) for figure in figures)]


class Lake:
    """A server with streams, and one producer."""

    def __init__(self, server: BearlakeServer, options: argparse.Namespace) -> None:
        """`server` runs."""
        self._server = server
        self._options = options
        self._producer = confluent_kafka.Producer({"bootstrap.servers": server.address, "linger.ms": 5, "log_level": 0})
        self._failed_count = 0
        self.names = [f"loads-{number}" for number in range(options.streams)]

    def create(self) -> None:
        """Create the streams."""
        admin = AdminClient({"bootstrap.servers": self._server.address, "log_level": 0})
        for start in range(0, len(self.names), CREATED_AT_ONCE):
            topics = [NewTopic(name, self._options.partitions) for name in self.names[start : start + CREATED_AT_ONCE]]
            for created in admin.create_topics(topics).values():
                created.result(TIMEOUT_S)

    def append(self, name: str) -> None:
        """Append rows to a stream, and return when they are acknowledged."""
        value = b"x" * self._options.record_bytes
        for number in range(self._options.rows):
            key, partition = b"key-%d" % number, number % self._options.partitions
            self._producer.produce(name, value, key, partition, on_delivery=self._delivered)
        if self._producer.flush(TIMEOUT_S) or self._failed_count:
            raise BenchError("records were not acknowledged")

    def load(self, name: str, loads: Loads) -> None:
        """Load a stream's table, and add what it cost."""
        url = f"{self._server.listeners['catalog']}/v1/live/namespaces/streams/tables/{name}"
        before, cpu_s, began_s = self._objects(), processes.usage(self._server.pid).cpu_s, time.monotonic()
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            answer.read()
        loads.wall_s.append(time.monotonic() - began_s)
        loads.cpu_s += processes.usage(self._server.pid).cpu_s - cpu_s
        new = self._objects().items() - before.items()
        loads.object_count += len(new)
        loads.object_bytes += sum(size for _, size in new)

    def _delivered(self, error: object, _: object) -> None:
        """Count a record that was not appended."""
        self._failed_count += error is not None

    def _objects(self) -> dict[Path, int]:
        """Return the sizes of the objects of views."""
        tail = self._server.directory / "data" / "objects" / "tail"
        return {found: found.stat().st_size for found in tail.rglob("*") if found.is_file()}


def measure(lake: Lake, rounds: int) -> Iterable[tuple[str, Loads]]:
    """Return the loads by kind."""
    first, new, none = Loads(), Loads(), Loads()
    lake.create()
    for name in lake.names:
        lake.append(name)
        lake.load(name, first)
    for number in range(rounds):
        name = lake.names[number % len(lake.names)]
        lake.append(name)
        time.sleep(PAUSE_S)
        lake.load(name, new)
        time.sleep(PAUSE_S)
        lake.load(name, none)
    return (("the first, creates the table", first), ("new rows", new), ("nothing new", none))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3000, help="new rows of a load")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--record-bytes", type=int, default=100)
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            server = BearlakeServer(root / "lake")
            server.start()
            try:
                found = measure(Lake(server, options), options.rounds)
            finally:
                server.stop()
    except BenchError as error:
        sys.exit(f"live_loads: {error}")
    heads = ["load", "loads", "p50 ms", "p95 ms", "CPU ms", "objects", "kB written"]
    print(report.table(heads, [loads.row(name) for name, loads in found]))


if __name__ == "__main__":
    main()
