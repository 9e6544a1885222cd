"""A move from a real Apache Kafka to Bearlake with everything live, and proof that nothing was lost or doubled.

    python bench/import_live.py [--records 10000000] [--topics 20] [--live-s 30] [--fill-bytes 80] [--json FILE]

1. Kafka gets most of the records: plain topics, topics compacted by key, and topics of transactions, some of which abort.
   Bearlake runs with its compaction worker, so a part of the comparison is with records from Parquet.
2. `bearlake import kafka --follow` runs while producers go on, and while consumer groups read and commit on Kafka. The import is killed
   once, and started again.
3. The producers stop. The import runs once more, without `--follow`, and compares (`--verify`). Then all streams are promoted.
4. Consumers read everything on both sides: offset, timestamp, key and value of each record must be the same. The groups go on at Bearlake
   where they were: each gets exactly the records that it had not committed. Producers write to Bearlake.

Exit code 1: something differs. Needs Java, Maven and about 300 bytes of `/dev/shm` for each record of the default size.
"""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.freshness import LakeServer
from bench.peer_kafka import KafkaPeer
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 3
TIMEOUT_S = 60.0
POLL_S = 0.2
COMMAND_TIMEOUT_S = 3600
CLEANER = {"log.cleaner.backoff.ms": "1000", "log.cleaner.threads": "1", "log.cleaner.dedupe.buffer.size": "16777216"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "2000"}
KEYS = 1_000
"""Keys of a compacted topic."""
BATCH = 100
"""Records of one transaction."""
GROUPS = 4


def main() -> None:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--live-s", type=float, default=30)
    parser.add_argument(
        "--fill-bytes", type=int, default=80, help="of each value, beside the topic's name and the number"
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            found = Move(root, options).run()
    except (BenchError, AssertionError) as error:
        sys.exit(f"import_live: {error}")
    print(json.dumps(found, indent=2))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


class Move:
    """One move of all topics."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._root = root
        self._kafka = KafkaPeer(root / "kafka", settings=CLEANER)
        self._lake = LakeServer(root / "bearlake")
        count = options.topics
        self._compacted = [f"move-compacted-{index}" for index in range(count // 5)]
        self._transactional = [f"move-transactions-{index}" for index in range(count // 5)]
        self._plain = [f"move-plain-{index}" for index in range(count - 2 * (count // 5))]
        self._topics = [*self._plain, *self._compacted, *self._transactional]
        self._halt = threading.Event()
        self._errors: list[str] = []

    def run(self) -> dict[str, object]:
        """Return figures. Raises `BenchError`, `AssertionError`."""
        self._kafka.start()
        self._lake.start()
        try:
            self._create()
            began = time.monotonic()
            self._write(self._options.records // self._options.topics, lambda: True)
            write_s, began = time.monotonic() - began, time.monotonic()
            self._live()
            live_s, began = time.monotonic() - began, time.monotonic()
            last = self._import("--json", "--verify")
            last_s = time.monotonic() - began
            _run([COMMAND, "import", "promote", *self._topics, "--data-dir", self._data])
            found = json.loads(last)
            different = sum(item["different"] for item in found["compared"])
            assert (found["lag"], found["ended"], different) == (0, {}, 0), found
            began = time.monotonic()
            records = self._compare()
            compare_s = time.monotonic() - began
            left = self._move_groups()
            self._write(10, lambda: True, self._lake.address)
            return {
                "topics": len(self._topics), "records": records, "write_s": round(write_s, 1), "live_s": round(live_s, 1),
                "last_import_s": round(last_s, 1), "compare_s": round(compare_s, 1),
                "same_batches": sum(item["same_batches"] for item in found["compared"]),
                "groups": found["groups"], "records_left_to_groups": left, "differences": different,
            }  # fmt: skip
        finally:
            self._lake.stop()
            self._kafka.stop()

    @property
    def _data(self) -> Path:
        return self._lake.directory / "data"

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.address})
        compacted = set(self._compacted)
        made = [NewTopic(name, PARTITIONS, 1, config=COMPACTED if name in compacted else {}) for name in self._topics]
        for future in admin.create_topics(made).values():
            future.result(TIMEOUT_S)

    def _write(self, count: int, may_go_on: Callable[[], bool], address: str = "") -> None:
        """Write up to `count` records to each topic."""
        address = address or self._kafka.address
        plain = [*self._plain, *self._compacted]
        producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "enable.idempotence": True})
        others = [_transactional(address, name) for name in self._transactional]
        for start in range(0, count, BATCH):
            for name in plain:
                for number in range(start, min(start + BATCH, count)):
                    key = number % KEYS if name in self._compacted else number
                    _send(producer, name, b"%d" % key, self._value(name, number))
            for name, other in zip(self._transactional, others, strict=True):
                other.begin_transaction()
                for number in range(start, min(start + BATCH, count)):
                    _send(other, name, b"%d" % number, self._value(name, number))
                other.flush(TIMEOUT_S)  # an abort would drop what is not sent yet
                (other.abort_transaction if start // BATCH % 4 == 3 else other.commit_transaction)(TIMEOUT_S)
            if not may_go_on():
                break
        if producer.flush(TIMEOUT_S):
            raise BenchError("the producer could not write everything")

    def _value(self, name: str, number: int) -> bytes:
        return b"%s/%d/%s" % (name.encode(), number, b"x" * self._options.fill_bytes)

    def _live(self) -> None:
        """Import while producers and groups are at work; the import is killed halfway."""
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._go_on, self._consume)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                process = subprocess.Popen(
                    [str(word) for word in [*self._words(), "--follow"]], stdin=subprocess.DEVNULL
                )
                try:
                    process.wait(self._options.live_s / 2)
                except subprocess.TimeoutExpired:
                    pass
                else:
                    raise BenchError(f"the import ended with {process.returncode}")
                finally:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
        finally:
            self._halt.set()
            for thread in threads:
                thread.join()
        if self._errors:
            raise BenchError("; ".join(self._errors))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            self._errors.append(repr(error))

    def _go_on(self) -> None:
        while not self._halt.is_set():
            self._write(BATCH * 20, lambda: not self._halt.is_set())

    def _consume(self) -> None:
        """Groups read and commit on Kafka until the producers stop."""
        consumers = [_consumer(self._kafka.address, f"group-{index}") for index in range(GROUPS)]
        for index, consumer in enumerate(consumers):
            consumer.subscribe(self._topics[index::GROUPS])
        while not self._halt.is_set():
            for consumer in consumers:
                if any(message.error() is None for message in consumer.consume(2_000, 0.2)):
                    consumer.commit(asynchronous=False)
        for consumer in consumers:
            consumer.close()

    def _words(self) -> list[str | Path]:
        return [
            COMMAND, "import", "kafka", "--from", self._kafka.address, "--topics", "move-.*", "--data-dir", self._data,
        ]  # fmt: skip

    def _import(self, *more: str) -> str:
        return _run([*self._words(), *more])

    def _compare(self) -> int:
        """Read everything on both sides; return the number of records."""
        count = 0
        for name in self._topics:
            for partition in range(PARTITIONS):
                place = TopicPartition(name, partition, 0)
                there, here = (_digest(address, place) for address in (self._kafka.address, self._lake.address))
                if name in self._compacted:  # each side may clean further while it is read: the newest values count
                    assert there[2] == here[2], f"{name}, partition {partition}: other newest values"
                else:
                    assert there == here, f"{name}, partition {partition}: {there[:2]} at Kafka, {here[:2]} at Bearlake"
                count += there[0]
        return count

    def _move_groups(self) -> int:
        """Let the groups read the rest at Bearlake; return the number of records that they got."""
        got = 0
        for index in range(GROUPS):
            names = self._topics[index::GROUPS]
            places = [TopicPartition(name, partition) for name in names for partition in range(PARTITIONS)]
            source = _consumer(self._kafka.address, f"group-{index}")
            committed = {(at.topic, at.partition): at.offset for at in source.committed(places, TIMEOUT_S)}
            source.close()
            consumer = _consumer(self._lake.address, f"group-{index}")
            here = {(at.topic, at.partition): at.offset for at in consumer.committed(places, TIMEOUT_S)}
            assert here == committed, f"group-{index}: {here} at Bearlake, {committed} at Kafka"
            consumer.assign(consumer.committed(places, TIMEOUT_S))
            got += _drain(consumer, len(places), committed)
        return got


def _send(producer: Producer, name: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(name, value, key)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _transactional(address: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _consumer(address: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )


def _some(consumer: Consumer) -> Sequence[Message]:
    """Return the next messages. A call of the client waits until it has all that it may have, or for its time: so its time is short."""
    for _ in range(int(TIMEOUT_S / POLL_S)):
        if found := consumer.consume(10_000, POLL_S):
            return found
    raise BenchError("a consumer got no answer")


def _digest(address: str, place: TopicPartition) -> tuple[int, str, dict[bytes, bytes]]:
    """Number and digest of the records of a partition, and the newest value of each key (of few keys)."""
    consumer = _consumer(address, "digest")
    consumer.assign([place])
    digest, count, newest = hashlib.sha256(), 0, {}
    try:
        while True:
            for message in _some(consumer):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return count, digest.hexdigest(), newest
                count += 1
                digest.update(
                    b"%d %d %b %b\n" % (message.offset(), message.timestamp()[1], message.key(), message.value())
                )
                if len(newest) < 2 * KEYS:
                    newest[message.key()] = message.value()
    finally:
        consumer.close()


def _drain(consumer: Consumer, partition_count: int, committed: dict[tuple[str, int], int]) -> int:
    """Read to the end of all partitions; each must begin where the group was, and ascend."""
    ended: set[tuple[str, int]] = set()
    count, last = 0, dict(committed)
    while len(ended) < partition_count:
        for message in _some(consumer):
            place = (message.topic(), message.partition())
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(place)
                continue
            assert message.offset() >= last[place], f"{place}: offset {message.offset()} after {last[place]}"
            last[place] = message.offset() + 1
            count += 1
    consumer.close()
    return count


def _run(words: Sequence[str | Path]) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
    )
    if done.returncode:
        raise BenchError(
            f"{' '.join(map(str, words[1:3]))} ended with {done.returncode}: {done.stderr[-800:]}{done.stdout[-500:]}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
