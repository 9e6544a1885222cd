"""Check that consumers get from Parquet exactly what they got from the WAL: ten million records, two clients, checksums of everything.

    python bench/same_records.py [--records 10000000] [--partitions 4] [--no-java] [--values avro]

1. `bearlake up` without compaction; librdkafka produces records with keys, values, headers and timestamps of all kinds (nulls, empty
   ones, duplicates, binary, 60 KB values), a producer per compression, two of them idempotent.
2. librdkafka and Kafka's own console consumer (Java) read every partition from the beginning: from the WAL. A checksum per partition
   over offset, timestamp and its type, key, value and headers, in order.
3. The same data folder again, with compaction, until the table has all records and the WAL objects are deleted.
4. Both consumers read again, now from Parquet. The checksums must be the same; SQL must count the same number of rows.

With `--values avro`, `protobuf` or `json`, values are of a registered schema, usual, unusual and bad ones (`avro_values.py` and others),
and the table has their typed columns and leaves out what they give back (`table.value.mode=elide`).
"""

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.freshness import LakeServer
from bench.loading import JARS
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import avro_values, bearlake_server, json_values, processes, protobuf_values

STREAM = "same"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000
TIMEOUT_S = 1_800.0
Sums = dict[str, str]
Values: TypeAlias = Callable[[int], bytes | None]
T = TypeVar("T")
TYPED = {"avro": avro_values, "protobuf": protobuf_values, "json": json_values}
"""Formats of schemas → where their values are."""


class WalServer(bearlake_server.BearlakeServer):
    """`bearlake up` without compaction, whose data folder remains after it stops."""

    def halt(self) -> None:
        """Stop the server and keep its data."""
        assert self._process is not None
        processes.stop(self._process)
        self._process = None
        (self.directory / "ready.json").unlink()


class TableServer(LakeServer):
    """The same with compaction."""


def main() -> None:
    """Run all steps; exit code 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--values", choices=["raw", *TYPED], default="raw")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            sys.exit(0 if compare(root / "same", options) else 1)
    except BenchError as error:
        sys.exit(f"same_records: {error}")


def compare(directory: Path, options: argparse.Namespace) -> bool:
    """Run all steps; return whether everything was the same."""
    readers: dict[str, Callable[[str, int], Sums]] = {"librdkafka": read_librdkafka}
    if not options.no_java:
        readers["java"] = read_java
    wal = WalServer(directory)
    wal.start()
    admin = AdminClient({"bootstrap.servers": wal.address, "log_level": 0})
    configs = {"retention.ms": "-1"}  # timestamps are spread over all times
    values: Values = raw_value
    if options.values in TYPED:
        configs["table.value.mode"] = "elide"
        typed = TYPED[options.values]
        values = partial(typed.value_of, typed.register(wal.listeners["registry"], f"{STREAM}-value"))
    admin.create_topics([NewTopic(STREAM, options.partitions, config=configs)])[STREAM].result(30)
    timed("produce", lambda: produce(wal.address, options.records, options.partitions, values))
    before = {
        name: timed(f"read the WAL, {name}", lambda r=read: r(wal.address, options.partitions))
        for name, read in readers.items()
    }
    wal.halt()
    table = TableServer(directory)
    table.start()
    try:
        timed("compact and sweep", lambda: await_compacted(table))
        after = {
            name: timed(f"read Parquet, {name}", lambda r=read: r(table.address, options.partitions))
            for name, read in readers.items()
        }
        rows = timed("count by SQL", lambda: count_rows(table.data))
        if options.values in TYPED:
            print("rows with columns, and of them without their value:", count_typed(table.data))
    finally:
        table.stop()
    for name in readers:
        for part, found in before[name].items():
            verdict = "same" if after[name].get(part) == found else f"DIFFERENT: {after[name].get(part)}"
            print(f"{name:<11} partition {part}: {found} {verdict}")
    print(f"rows in the table: {rows:,}, records produced: {options.records:,}")
    return before == after and rows == options.records


def timed(what: str, work: Callable[[], T]) -> T:
    """Return the work's result; print how long it took."""
    start = time.monotonic()
    result = work()
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
    return result


def produce(bootstrap: str, count: int, partition_count: int, values: Values) -> None:
    """Produce all records, with a producer per compression. Raises `BenchError` if a record is not acknowledged."""
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    producers = [
        confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": index % 2 == 0,
                "linger.ms": 20,
                "log_level": 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for index, codec in enumerate(CODECS)
    ]
    for number in range(count):
        producer = producers[number // 1_000 % len(CODECS)]
        key, headers, timestamp = record(number)
        while True:
            try:
                producer.produce(
                    STREAM,
                    values(number),
                    key,
                    number % partition_count,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=headers,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    left = sum(producer.flush(TIMEOUT_S) for producer in producers)
    if left or failed:
        raise BenchError(f"{left} records are not acknowledged, {len(failed)} failed: {failed[:1]}")


def record(number: int) -> tuple[bytes | None, list[tuple[str, bytes | None]], int]:
    """Key, headers and timestamp (ms) of a record; the kinds alternate."""
    key = (None, b"", b"key-%d" % (number % 1_000), struct.pack(">Q", number))[number % 4]
    headers: list[tuple[str, bytes | None]] = []
    if number % 5 == 0:
        headers = [
            ("trace", b"%d" % number),
            ("trace", b"again"),
            ("empty", b""),
            ("null", None),
            ("größe", b"\x00\xff"),
        ]
    return key, headers, BASE_MS + (number * 7919) % 100_000_000


def raw_value(number: int) -> bytes | None:
    """Value of a record; the kinds alternate."""
    if number % 100_003 == 0:
        return b"\xff\x00large" * 8_600
    kind = number % 7
    return None if kind == 0 else b"" if kind == 1 else b"value %d " % number * (1 + number % 13)


def read_librdkafka(bootstrap: str, partition_count: int) -> Sums:
    """Checksums per partition over every part of a message."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    parts = [confluent_kafka.TopicPartition(STREAM, index, 0) for index in range(partition_count)]
    ends = {part.partition: consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts}
    sums = {index: hashlib.sha256() for index in ends}
    consumer.assign(parts)
    left = sum(ends.values())
    deadline = time.monotonic() + TIMEOUT_S
    while left:
        if time.monotonic() > deadline:
            raise BenchError(f"{left} records were not consumed")
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                raise BenchError(f"consumer: {message.error()}")
            found = (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
            sums[message.partition()].update(repr(found).encode())
            left -= 1
    consumer.close()
    return {str(index): f"{ends[index]} {digest.hexdigest()[:16]}" for index, digest in sums.items()}


def read_java(bootstrap: str, partition_count: int) -> Sums:
    """Checksums of what Kafka's console consumer prints: offset, timestamp and type, headers, key and value."""
    shown = [f"print.{what}=true" for what in ("offset", "timestamp", "headers", "key", "value", "epoch")]
    properties = [word for property_ in shown for word in ("--formatter-property", property_)]
    asking = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    sums = {}
    for index in range(partition_count):
        _, end = asking.get_watermark_offsets(confluent_kafka.TopicPartition(STREAM, index), timeout=30)
        words = ["java", "-Xmx512m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
        words += ["--bootstrap-server", bootstrap, "--topic", STREAM, "--partition", str(index), "--offset", "earliest"]
        words += ["--max-messages", str(end), "--timeout-ms", "60000", *properties]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        found, size = hashlib.sha256(), 0
        while chunk := process.stdout.read(1 << 20):
            found.update(chunk)
            size += len(chunk)
        process.wait(60)
        sums[str(index)] = f"{size} bytes {found.hexdigest()[:16]}"
    return sums


def await_compacted(server: TableServer) -> None:
    """Wait until there is no backlog and the WAL objects are gone."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{server.admin}/v1/compaction/backlog", timeout=30) as answer:
            waiting = json.load(answer)["record_count"]
        if waiting == 0 and processes.directory_bytes(server.data / "objects" / "wal") == 0:
            return
        time.sleep(0.5)
    raise BenchError(f"{waiting} records are still not compacted after {TIMEOUT_S} s")


def count_rows(data: Path) -> int:
    """Count the rows of the table with `bearlake sql`; each offset must be there once."""
    row = _asked(
        data, f"select count(*) as rows, count(distinct _offset * 1024 + _partition_id) as offsets from {STREAM}"
    )
    if row["rows"] != row["offsets"]:
        raise BenchError(f"{row['rows']} rows have {row['offsets']} different offsets")
    return int(row["rows"])


def count_typed(data: Path) -> tuple[int, int]:
    """Count the rows whose values have columns, and of them those whose value is left out."""
    typed = "_schema_id is not null and _error is null"
    row = _asked(
        data,
        f"select count(*) filter ({typed}) as typed, count(*) filter ({typed} and _value is null) as elided from {STREAM}",
    )
    return int(row["typed"]), int(row["elided"])


def _asked(data: Path, statement: str) -> dict[str, int]:
    done = subprocess.run(
        [COMMAND, "sql", statement, "--json", "--data-dir", data], capture_output=True, check=True, timeout=600
    )
    (row,) = json.loads(done.stdout)
    return dict(row)


if __name__ == "__main__":
    main()
