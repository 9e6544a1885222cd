"""Do readers of the warehouses `live` and `planned` see every acknowledged record exactly once? What does a load cost?

    python bench/live_reads.py [--seconds 60] [--records-per-s 3000] [--engine pyiceberg --engine sql --engine duckdb]
        [--spark JARS]... [--current] [--retention-s 120] [--kill-s 60] [--kill-server-s 100] [--mutation NAME]

`bearlake up` with its compaction worker, and one producer at a steady rate. Each reader asks in a loop, in both warehouses if it can: how
many rows and offsets are there, which rows has a random range of offsets, and with `--current`, which rows has the current table? Before
each question it notes what is acknowledged. In the answer, each partition's offsets must be without gap or repeat, reach at least what
was acknowledged, and begin where retention lets them; rows must be the producer's, and those of the current table the newest of each key
(`live_truth.py`), which a Kafka consumer's replay at the end confirms. One violation makes the exit code 1. With `--kill-s`, the compaction
worker is killed (-9) so often; with `--kill-server-s`, the server, which starts again. `--mutation`: the server has that error on purpose
(`live_mutations.py`).
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.errors import BenchError
from bench.freshness import LakeServer, worker_pid
from bench.live_askers import READ_TIMEOUT_S, Ask, Engine, sql_reader
from bench.live_replay import replay
from bench.live_truth import Truth, check_counts, check_newest, check_rows
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import processes, report

HERE = Path(__file__).resolve().parent
STREAM = "reads"
RANGE_MAX = 200
FAILURES_SHOWN = 12


class KilledServer(LakeServer):
    """A server that can be killed, and starts again on the same ports. `mutation`: its error on purpose."""

    mutation = ""
    environment: Mapping[str, str] = {"BEARLAKE_COMPACTION__SWEEP__TABLE_PAUSE_MS": "5000"}

    @override
    def words(self, ready: Path) -> Sequence[str | Path]:
        """Return the command line: after a kill, with the ports that the server had."""
        words = [str(word) for word in super().words(ready)]
        for option, listener in (("--kafka-port", "kafka"), ("--catalog-port", "catalog")):
            if listener in self.listeners:
                words[words.index(option) + 1] = self.listeners[listener].rpartition(":")[2]
        if self.mutation:
            words[:1] = [sys.executable, str(HERE / "live_mutations.py"), self.mutation]
        return words

    def kill(self) -> None:
        """Kill the server, not its worker, and start another one."""
        assert self._process is not None
        (self.directory / "ready.json").unlink()
        self._process.kill()
        self._process.wait()
        self.start()


class Load(threading.Thread):
    """One idempotent producer at a steady rate, whose records are those of the truth."""

    def __init__(self, bootstrap: str, truth: Truth, records_per_s: float) -> None:
        """`bootstrap`: the server. `records_per_s`: over all partitions of the stream."""
        super().__init__(daemon=True)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "delivery.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        self._truth = truth
        self._per_s = records_per_s
        self._ends = [0] * truth.partition_count
        self._sent: list[tuple[float, int]] = []
        self.failed_count = 0
        self.is_stopping = threading.Event()

    @override
    def run(self) -> None:
        """Produce until `is_stopping`, then wait for what is on its way."""
        start, number = time.monotonic(), 0
        while not self.is_stopping.is_set():
            self._sent.append((time.monotonic(), number))
            while number < int((time.monotonic() - start) * self._per_s):
                truth, partition = self._truth, number % self._truth.partition_count
                try:
                    self._producer.produce(
                        STREAM, truth.value(number), truth.key(number), partition, on_delivery=self._delivered
                    )
                except BufferError:
                    break
                number += 1
            self._producer.poll(0.01)
        self._producer.flush(120)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        """Note the offset of an acknowledged record, or that the run cannot be judged."""
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset != self._ends[partition]:
            self.failed_count += 1  # offsets no longer follow from numbers: the run says nothing
            return
        self._ends[partition] = offset + 1

    def acknowledged(self) -> list[int]:
        """End offsets of the acknowledged records."""
        return list(self._ends)

    def starts_max(self, retention_s: float) -> list[int]:
        """The offsets up to which retention may have removed rows by now, by partition."""
        before_s = time.monotonic() - retention_s
        number = max((number for sent_s, number in list(self._sent) if sent_s < before_s), default=0)
        return [number // self._truth.partition_count + 1 if number else 0] * self._truth.partition_count


@dataclass(slots=True)
class Reader:
    """One engine, and what it found."""

    name: str
    ask: Ask
    warehouses: tuple[str, ...]
    kinds: tuple[str, ...]
    truth: Truth
    retention_s: float
    read_s: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    _rng: random.Random = field(default_factory=lambda: random.Random(7))
    _ends: dict[str, dict[int, int]] = field(default_factory=dict)

    def run(self, load: Load, until_s: float) -> None:
        """Ask until that time."""
        while time.monotonic() < until_s:
            for warehouse in self.warehouses:
                for kind in self.kinds:
                    self._ask(load, warehouse, kind)

    def _ask(self, load: Load, warehouse: str, kind: str) -> None:
        """Ask one question, and note what is wrong with its answer."""
        name = f"{STREAM}_current" if kind == "current" else STREAM
        acknowledged, began_s = load.acknowledged(), time.monotonic()
        question: dict[str, Any] = {"kind": kind, "warehouse": warehouse, "table": f"streams.{name}"}
        if kind == "counts":
            question["floor"] = load.starts_max(self.retention_s / 2)[0] if self.retention_s else 0
        if kind == "range":
            partition = self._rng.randrange(len(acknowledged))
            first, end = self.starts.get(partition, 0), acknowledged[partition]
            if self.retention_s:  # newer than what retention can remove during the question
                first = max(first, load.starts_max(self.retention_s / 2)[partition])
            start = self._rng.randint(first, max(first, end - 1))
            question |= {
                "partition": partition,
                "start": start,
                "end": min(max(start, end), start + self._rng.randint(1, RANGE_MAX)),
            }
        try:
            rows = self.ask(question)
        except Exception as error:  # noqa: BLE001 - a failed read is counted
            self.failed.append(f"{warehouse} {kind}: {repr(error)[:300]}")
            time.sleep(0.2)
            return
        took_s = time.monotonic() - began_s
        self.read_s.setdefault(f"{warehouse} {kind}", []).append(took_s)
        if kind == "counts":
            counts = {row[0]: (row[1], row[2], row[3], row[4], int(row[5])) for row in rows}
            self.starts = {partition: count[2] for partition, count in counts.items()}
            starts_max = load.starts_max(self.retention_s) if self.retention_s else [0] * len(acknowledged)
            found = check_counts(counts, acknowledged, starts_max, question["floor"])
        elif kind == "range":
            given = [(row[0], row[1], row[2], row[3]) for row in rows]
            found = check_rows(self.truth, given, question["partition"], question["start"], question["end"])
        else:
            given = [(row[0], row[1], row[2], row[3]) for row in rows]
            found = check_newest(self.truth, given, self._ends.setdefault(warehouse, {}))
        self.violations += [f"{warehouse} {kind} in {took_s:.1f} s: {text}" for text in found]


def readers_of(server: KilledServer, options: argparse.Namespace, engines: list[Engine]) -> list[Reader]:
    """The readers that were asked for; their processes are in `engines`."""
    url, retention_s = server.listeners["catalog"], options.retention_s
    truth = Truth(options.partitions, options.keys, options.record_bytes)
    kinds = ("counts", "range", "current") if options.current else ("counts", "range")
    both = ("live", "planned")
    found = []

    def add(name: str, python: str, engine: str, warehouses: tuple[str, ...], jars: str = "") -> None:
        """Start an engine with its reader."""
        engines.append(Engine(python, engine, url, jars))
        found.append(Reader(name, engines[-1], warehouses, kinds, truth, retention_s))

    for name in options.engine or ([] if options.spark else ["pyiceberg", "sql"]):
        if name == "sql":
            found.append(Reader("sql", sql_reader(server), ("live",), kinds, truth, retention_s))
        elif name == "duckdb":
            add("duckdb", options.duckdb_python or sys.executable, "duckdb", ("live",))
        else:
            add("pyiceberg", sys.executable, "pyiceberg", both)
    for jars in options.spark:
        add(Path(jars.split(",")[0]).stem, sys.executable, "spark", both, jars)
    return found


def main() -> None:
    """Measure and print."""
    options = _parser().parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            readers, figures = measure(KilledServer(root / "lake"), options)
    except BenchError as error:
        sys.exit(f"live_reads: {error}")
    rows = []
    for reader in readers:
        rows += [
            [reader.name, what, str(len(taken)), report.short(statistics.median(taken)), report.short(max(taken))]
            for what, taken in reader.read_s.items()
        ]
        rows.append([reader.name, f"{len(reader.violations)} violations, {len(reader.failed)} failed", "", "", ""])
    print(report.table(["engine", "question", "reads", "p50 s", "max s"], rows))
    print(report.table(["figure", "value"], [[name, report.short(value)] for name, value in figures.items()]))
    for reader in readers:
        for text in reader.violations[:5]:
            print(f"{reader.name}: {text}", file=sys.stderr)
        for text, count in Counter(reader.failed).most_common(FAILURES_SHOWN):
            print(f"{reader.name}, {count} times: {text}", file=sys.stderr)
    is_replayed = figures["records of a Kafka replay"] >= figures["records acknowledged"]
    has_failed = figures["records failed"] or figures["of them, not those of the producer"]
    is_wrong = has_failed or not is_replayed or any(reader.violations or not reader.read_s for reader in readers)
    sys.exit(1 if is_wrong else 0)


def measure(server: KilledServer, options: argparse.Namespace) -> tuple[list[Reader], dict[str, float]]:
    """Run the load and the readers; return them and the server's figures."""
    server.mutation = options.mutation
    engines: list[Engine] = []
    server.start()
    try:
        configs = {"table.freshness_ms": "2000", "table.retention_ms": str(int(options.retention_s * 1000) or -1)}
        if options.current:
            configs |= {"table.current": "on", "table.current.freshness_ms": "2000"}
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
        admin.create_topics([NewTopic(STREAM, options.partitions, config=configs)])[STREAM].result(30)
        readers = readers_of(server, options, engines)
        load = Load(server.address, readers[0].truth, options.records_per_s)
        load.start()
        until_s = time.monotonic() + options.seconds
        threads = [threading.Thread(target=reader.run, args=(load, until_s), daemon=True) for reader in readers]
        for thread in threads:
            thread.start()
        loads, kills = _look(server, until_s, options)
        for thread in threads:
            thread.join(READ_TIMEOUT_S)
        load.is_stopping.set()
        load.join(130)
        replayed_count, different_count = replay(server.address, STREAM, readers[0].truth)
        tail = server.data / "objects" / "tail"
        starts = [start for reader in readers for start in reader.starts.values()]
        return readers, {
            "records acknowledged": float(sum(load.acknowledged())),
            "records failed": float(load.failed_count),
            "records of a Kafka replay": float(replayed_count),
            "of them, not those of the producer": float(different_count),
            "largest start offset seen": float(max(starts, default=0)),
            "kills": float(kills),
            **_history(server, options),
            "loads of live beside the readers": float(len(loads)),
            "load p50 ms": 1000 * statistics.median(loads),
            "load max ms": 1000 * max(loads),
            "objects under tail/": float(sum(1 for found in tail.rglob("*") if found.is_file())),
            "server CPU-s since its last start": processes.usage(server.pid).cpu_s,
        }
    finally:
        for engine in engines:
            engine.close()
        server.stop()


def _history(server: KilledServer, options: argparse.Namespace) -> dict[str, float]:
    """How many snapshots the tables have, and how many of them are merges."""
    found = {}
    for table in (STREAM, f"{STREAM}_current")[: 2 if options.current else 1]:
        url = f"{server.listeners['catalog']}/v1/namespaces/streams/tables/{table}"
        with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as answer:
            snapshots = json.load(answer)["metadata"].get("snapshots", [])
        operations = [snapshot["summary"]["operation"] for snapshot in snapshots]
        found |= {
            f"{operation} snapshots of {table}": float(operations.count(operation))
            for operation in sorted(set(operations))
        }
    return found


def _look(server: KilledServer, until_s: float, options: argparse.Namespace) -> tuple[list[float], int]:
    """Load the table once a second, and kill; return the seconds of each load, and how often something was killed."""
    path = f"{server.listeners['catalog']}/v1/live/namespaces/streams/tables/{STREAM}"
    worker_s = server_s = time.monotonic()
    loads, kills = [], 0
    while (now := time.monotonic()) < until_s:
        with suppress(OSError):
            with urllib.request.urlopen(path, timeout=READ_TIMEOUT_S) as answer:
                answer.read()
            loads.append(time.monotonic() - now)
        if options.kill_s and now > worker_s + options.kill_s and (pid := worker_pid(server)) is not None:
            os.kill(pid, signal.SIGKILL)
            worker_s, kills = now, kills + 1
        if options.kill_server_s and now > server_s + options.kill_server_s:
            server.kill()
            server_s, kills = now, kills + 1
        time.sleep(max(0.0, now + 1 - time.monotonic()))
    return loads, kills


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--records-per-s", type=float, default=3000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--engine", action="append", choices=["pyiceberg", "sql", "duckdb"])
    parser.add_argument("--spark", action="append", default=[], help="Spark with these jars, separated by commas")
    parser.add_argument(
        "--duckdb-python",
        default="",
        help="a Python with duckdb and the wheels of its extensions avro, httpfs and iceberg (1.5.5 has them)",
    )
    parser.add_argument("--current", action="store_true", help="with a current table")
    parser.add_argument("--retention-s", type=float, default=0, help="table.retention_ms in seconds; 0: none")
    parser.add_argument(
        "--kill-s", type=float, default=0, help="seconds between kills of the compaction worker; 0: none"
    )
    parser.add_argument("--kill-server-s", type=float, default=0, help="seconds between kills of the server; 0: none")
    parser.add_argument("--mutation", default="", help="an error of the server, by its name in live_mutations.py")
    return parser


if __name__ == "__main__":
    main()
