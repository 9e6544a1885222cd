"""Compares key compaction with transactions with a real Apache Kafka: one plan, two servers, the same (key, value, offset) afterwards.

    .venv/bin/python bench/key_compaction_transactions.py [--phases 4] [--seed 1] [--postgresql] [--folder FOLDER]

A plan has random batches with few keys and many tombstones, some of them in transactions of three producers, which commit or abort, and may
stay open from one phase to the next. Servers are stopped or killed and started again in the middle. Both servers get the same plan from the
same program (librdkafka); `bearlake up` compacts and cleans with Spark. With `--postgresql`, its metadata and Iceberg catalog are in
PostgreSQL. After each phase both are read from the beginning as a consumer of committed records, until they have what a model says: the
newest committed record of each key, below the last stable offset and Kafka's active segment. While a transaction is open, Kafka may have
more: it does not clean the segment in which the transaction began. In the end, SQL must find the same rows.

Ends with status 1 at the first difference, and with status 0 and the word SKIPPED if Java, Maven or confluent-kafka are missing.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.freshness import LakeServer
from bench.key_compaction_plan import End, Found, Model, Restart, Send, Step
from bench.peer_kafka import KafkaPeer
from bench.stores import Postgresql

from bench import java_peer, processes

TOPIC = "compacted"
TIMEOUT_S = 180.0
CLEAN_TIMEOUT_S = 600.0
POLL_S = 1.0
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "86400000",
}
KAFKA_SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "10485760",
}
BEARLAKE_SETTINGS = {
    "BEARLAKE_COMPACTION__KEY_COMPACTION__CHECK_MS": "200",
    "BEARLAKE_COMPACTION__KEY_COMPACTION__HISTORY_PAUSE_MS": "0",
}


class Server(Protocol):
    """A server that can be started again over its data, at the same address."""

    address: str

    def start(self) -> None:
        """Start."""

    def stop(self) -> None:
        """Stop, and delete the data."""

    def restart(self, *, is_kill: bool) -> None:
        """Stop or kill, and start again."""


class Kafka(KafkaPeer):
    """The real broker."""

    def restart(self, *, is_kill: bool) -> None:
        """See `Server`."""
        assert self._process is not None
        _end_process(self._process, is_kill=is_kill)
        self._process = None
        self.start()


class Bearlake(LakeServer):
    """`bearlake up` at a fixed port."""

    environment = BEARLAKE_SETTINGS

    def __init__(self, directory: Path, port: int, postgresql: Postgresql | None) -> None:
        super().__init__(directory)
        self._port = port
        self._postgresql = postgresql

    @override
    def words(self, ready: Path) -> Sequence[str | Path]:
        """See `BearlakeServer.words`."""
        words = list(super().words(ready))
        words[words.index("--kafka-port") + 1] = str(self._port)
        if self._postgresql is not None:
            words += ["--metadata-url", self._postgresql.url(), "--catalog-url", self._postgresql.url()]
        return words

    def rows(self) -> set[int]:
        """Return the offsets of the table's rows, as SQL finds them."""
        query = [self._command, "sql", "--json", f"select _offset from {TOPIC}"]
        if self._postgresql is None:
            query += ["--data-dir", self.data]
        else:
            query += ["--metadata-url", self._postgresql.url(), "--catalog-url", self._postgresql.url()]
            query += ["--object-store-url", f"file://{self.data}/objects"]
        found = subprocess.run([str(word) for word in query], check=True, capture_output=True, text=True)
        return {row["_offset"] for row in json.loads(found.stdout)}

    def restart(self, *, is_kill: bool) -> None:
        """See `Server`."""
        assert self._process is not None
        _end_process(self._process, is_kill=is_kill)
        self._process = None
        (self.directory / "ready.json").unlink(missing_ok=True)
        self.start()


class Side:
    """One server and the producers of its plan."""

    def __init__(self, name: str, server: Server, configs: Mapping[str, str], *, is_coarse: bool = False) -> None:
        """`is_coarse`: a segment with a record of an open transaction is not cleaned at all."""
        self.is_coarse = is_coarse
        self.name = name
        self.server = server
        self._configs = configs
        self._producers: dict[str | None, Any] = {}
        self._begun: set[str] = set()

    def create(self) -> None:
        """Start the server and create the topic; a record without a key is refused as by Kafka."""
        from confluent_kafka import KafkaError, Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self.server.start()
        admin: Any = AdminClient({"bootstrap.servers": self.server.address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config={**CONFIGS, **self._configs})])[TOPIC].result(TIMEOUT_S)
        errors: list[Any] = []
        producer: Any = Producer({"bootstrap.servers": self.server.address, "log_level": 0})
        producer.produce(TOPIC, value=b"no key", on_delivery=lambda error, _: errors.append(error))
        producer.flush(TIMEOUT_S)
        if [error and error.code() for error in errors] != [KafkaError.INVALID_RECORD]:
            raise SystemExit(f"{self.name} took a record without a key: {errors}")

    def act(self, step: Step, end: int) -> None:
        """Take the step; return when the log ends at `end`."""
        if isinstance(step, Restart):
            self.server.restart(is_kill=step.is_kill)
        elif isinstance(step, End):
            producer = self._producer(step.name)
            self._begun.discard(step.name)
            (producer.commit_transaction if step.is_commit else producer.abort_transaction)(TIMEOUT_S)
        else:
            self._send(step)
        _wait(lambda: self._high() == end, f"{self.name}: the log does not end at {end}")

    def read(self) -> Found:
        """Read the topic from its beginning as a consumer of committed records."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

        consumer = self._consumer({"isolation.level": "read_committed", "enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: Found = set()
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise SystemExit(f"{self.name} does not give its records")
                if message.error() is None:
                    found.add((message.offset(), message.key(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return found
                elif not message.error().retriable():
                    raise SystemExit(f"{self.name} does not give its records: {message.error()}")
        finally:
            consumer.close()

    def left(self, expected: Found, most: Found, bound: int) -> Found:
        """Return what is left below `bound` once that is `expected` or more, but no more than `most`, or when the time is up."""
        until = time.monotonic() + CLEAN_TIMEOUT_S
        while True:
            found = {record for record in self.read() if record[0] < bound}
            if expected <= found <= most or time.monotonic() > until:
                return found
            time.sleep(POLL_S)

    def _send(self, step: Send) -> None:
        producer = self._producer(step.name)
        if step.name is not None and step.name not in self._begun:
            self._begun.add(step.name)
            producer.begin_transaction()
        for key, value, timestamp in step.batch:
            producer.produce(TOPIC, key=key, value=value, timestamp=timestamp, partition=0)
        if producer.flush(TIMEOUT_S):
            raise SystemExit(f"{self.name} did not take the records")

    def _producer(self, name: str | None) -> Any:  # Any: the library's types are incomplete
        from confluent_kafka import Producer

        if name not in self._producers:
            configs = {"bootstrap.servers": self.server.address, "log_level": 0, "enable.idempotence": True}
            if name is not None:
                configs |= {"transactional.id": name, "transaction.timeout.ms": 900_000}
            self._producers[name] = Producer(configs)
            if name is not None:
                self._producers[name].init_transactions(TIMEOUT_S)
        return self._producers[name]

    def _consumer(self, configs: Mapping[str, Any]) -> Any:
        from confluent_kafka import Consumer

        address = {"bootstrap.servers": self.server.address, "log_level": 0}
        return Consumer({**address, "group.id": "reader", "enable.auto.commit": False, **configs})

    def _high(self) -> int:
        """Return the end of the log, -1 if the server does not tell."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer({"isolation.level": "read_uncommitted"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
        except KafkaException:
            return -1
        finally:
            consumer.close()
        return int(end)


def _end_process(process: Any, *, is_kill: bool) -> None:
    if is_kill:
        os.killpg(process.pid, signal.SIGKILL)  # the process has a session of its own
        process.wait(TIMEOUT_S)
    else:
        processes.stop(process)


def _wait(is_done: Callable[[], bool], complaint: str) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not is_done():
        if time.monotonic() > until:
            raise SystemExit(complaint)
        time.sleep(0.02)


def compare(sides: Sequence[Side], bearlake: Bearlake, options: argparse.Namespace) -> None:
    """Run the phases."""
    model = Model(random.Random(options.seed), int(time.time() * 1000))
    for side in sides:
        side.create()
    for number in range(options.phases + 1):
        for step in model.last_phase(number) if number == options.phases else model.phase(number):
            for side in sides:
                side.act(step, model.end)
        bound = model.stable_end(model.end - 1)
        expected = model.left(bound)
        most = {side.name: model.below(bound) if side.is_coarse and model.open else expected for side in sides}
        found = {side.name: side.left(expected, most[side.name], bound) for side in sides}
        differences = sum(len(expected - left) + len(left - most[name]) for name, left in found.items())
        print(
            f"phase {number}: {model.end:,} offsets, {len(model.open)} open transactions, cleaned below {bound:,}:"
            f" {len(expected)} records left, {differences} differences; so far {model.counts}",
            flush=True,
        )
        for name, left in found.items():
            if not expected <= left <= most[name]:
                print(f"{name}: too many {sorted(left - most[name])[:5]}, missing {sorted(expected - left)[:5]}")
        if differences:
            raise SystemExit(1)
    rows = {offset for offset in bearlake.rows() if offset < bound}
    expected_rows = {offset for offset, *_ in expected}
    print(f"table: {len(rows)} rows, {len(rows ^ expected_rows)} differences")
    if rows != expected_rows:
        raise SystemExit(1)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bearlake-key-compaction")
    options = parser.parse_args()
    if java_peer.is_missing("confluent_kafka"):
        return
    kafka_port, port = java_peer.free_ports()
    kafka = Kafka(options.folder / "kafka", settings=KAFKA_SETTINGS, port=kafka_port)
    postgresql = Postgresql(options.folder / "postgresql", has_standby=False) if options.postgresql else None
    bearlake = Bearlake(options.folder / "bearlake", port, postgresql)
    sides = [
        Side("kafka", kafka, {"segment.ms": "50"}, is_coarse=True),
        Side("bearlake", bearlake, {"table.freshness_ms": "200", "table.on_compaction": "latest"}),
    ]
    try:
        if postgresql is not None:
            postgresql.start()
        compare(sides, bearlake, options)
    finally:
        kafka.stop()
        bearlake.stop()
        if postgresql is not None:
            postgresql.stop()


if __name__ == "__main__":
    main()
