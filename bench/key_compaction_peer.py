"""Compares what key compaction leaves with a real Apache Kafka: from the same records and tombstones, the same (key, value, offset).

    .venv/bin/python bench/key_compaction_peer.py [--phases 3] [--seed 1] [--folder FOLDER]

Each phase produces random batches to one partition of both, restarts the broker in between, rolls Kafka's active segment with one more
record, and lets both clean once: Kafka by its `min.cleanable.dirty.ratio`, Bearlake's work items directly. Below the active segment,
which Kafka never cleans, both must have exactly the same records. One stream keeps its tombstones for a day, the other for no time
(`delete.retention.ms`). Ends with status 1 at the first difference, and with status 0 and the word SKIPPED if Java, Maven or confluent-
kafka are missing.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from bench.peer_kafka import KafkaPeer

from bench import java_peer
from fixtures.cleaned_log import CleanedLog, Sent

CLEAN_TIMEOUT_S = 300
POLL_S = 1.0
ROLL_MS = 1_000
NEVER, AT_ONCE = "1.0", "0.0"
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.cleaner.threads": "1", "log.cleaner.dedupe.buffer.size": "10485760"}
DAY_MS = "86400000"


class Kafka:
    """A topic of one partition in the real broker."""

    def __init__(self, peer: KafkaPeer, topic: str, delete_retention_ms: str) -> None:
        self.peer = peer
        self.topic = topic
        self._delete_retention_ms = delete_retention_ms

    def create(self) -> None:
        """Create the topic, which is not cleaned yet."""
        from confluent_kafka.admin import NewTopic

        configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": NEVER,
            "delete.retention.ms": self._delete_retention_ms,
            "segment.ms": "50",
            "message.timestamp.before.max.ms": str(2**62),
        }
        admin = self._admin()  # must live until the answer is there
        admin.create_topics([NewTopic(self.topic, 1, 1, config=configs)])[self.topic].result(60)

    def produce(self, batches: list[list[Sent]]) -> None:
        """Produce each batch as one."""
        from confluent_kafka import Producer

        producer: Any = Producer(
            {"bootstrap.servers": self.peer.address, "linger.ms": 50, "message.timeout.ms": 120_000}
        )
        for batch in batches:
            for key, value, timestamp in batch:
                producer.produce(self.topic, key=key, value=value, timestamp=timestamp, partition=0)
            if producer.flush(120):
                raise SystemExit("Kafka did not take the records")

    def clean(self, expected: set[tuple[int, Sent]], end: int) -> set[tuple[int, Sent]]:
        """Let the cleaner run once; return what is below `end` once that is `expected`, or when the time is up."""
        self._set_ratio(AT_ONCE)
        until = time.monotonic() + CLEAN_TIMEOUT_S
        while (found := self._read(end)) != expected and time.monotonic() < until:
            time.sleep(POLL_S)
        self._set_ratio(NEVER)
        return found

    def _read(self, end: int) -> set[tuple[int, Sent]]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer: Any = Consumer(
            {"bootstrap.servers": self.peer.address, "group.id": "reader", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        found: set[tuple[int, Sent]] = set()
        try:
            while True:
                message = consumer.poll(60)
                if message is None or message.error():
                    raise SystemExit(f"Kafka does not give its records: {message and message.error()}")
                if message.offset() >= end:
                    return found
                found.add((message.offset(), Sent(message.key(), message.value(), message.timestamp()[1])))
        finally:
            consumer.close()

    def _set_ratio(self, ratio: str) -> None:
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        admin = self._admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)

    def _admin(self) -> Any:  # Any: the library's types are incomplete
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.peer.address})


def batches_of(randomness: random.Random, now_ms: int) -> list[list[Sent]]:
    """Return random batches with few keys and many tombstones."""
    return [
        [
            Sent(
                b"k%d" % randomness.randrange(40),
                None if randomness.random() < 0.25 else randomness.randbytes(randomness.randrange(1, 60)),
                now_ms,
            )
            for _ in range(randomness.randrange(1, 30))
        ]
        for _ in range(randomness.randrange(3, 8))
    ]


async def compare(peer: "RestartingPeer", delete_retention_ms: str, options: argparse.Namespace) -> None:
    """Run all phases on one topic."""
    randomness = random.Random(options.seed)
    kafka = Kafka(peer, f"compacted-{delete_retention_ms}", delete_retention_ms)
    ours = CleanedLog(configs={"delete.retention.ms": delete_retention_ms})
    kafka.create()
    now_ms = int(time.time() * 1000)
    for phase in range(options.phases):
        first, second = batches_of(randomness, now_ms), batches_of(randomness, now_ms)
        kafka.produce(first)
        if options.restarts:
            peer.restart()
        kafka.produce(second)
        # Later than the segment's first record by more than segment.ms: this record rolls the segment.
        roll = [[Sent(b"roll", b"%d" % phase, now_ms + ROLL_MS * (phase + 1))]]
        kafka.produce(roll)
        await ours.produce({0: [*first, *second]})
        end = ours.wal.ends[0]
        await ours.clean(now_ms + phase)
        left = {(offset, sent) for (_, offset), sent in (await ours.served()).items()}
        theirs = kafka.clean(left, end)
        await ours.produce({0: roll})
        print(
            f"delete.retention.ms={delete_retention_ms}, phase {phase}: {end:,} offsets, {len(left):,} records left,"
            f" {len(left ^ theirs)} differences",
            flush=True,
        )
        if left != theirs:
            print("only here:", sorted(left - theirs)[:5], "only in Kafka:", sorted(theirs - left)[:5])
            raise SystemExit(1)


class RestartingPeer(KafkaPeer):
    """A broker that can be stopped and started over its data."""

    def restart(self) -> None:
        """Stop the broker and start it again, at another address."""
        from bench import processes

        assert self._process is not None
        processes.stop(self._process)
        self._process = None
        self.start()


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restarts", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bearlake-key-compaction-peer")
    options = parser.parse_args()
    if java_peer.is_missing("confluent_kafka"):
        return
    peer = RestartingPeer(options.folder, settings=SETTINGS)
    try:
        peer.start()
        for delete_retention_ms in (DAY_MS, "0"):
            asyncio.run(compare(peer, delete_retention_ms, options))
    finally:
        peer.stop()


if __name__ == "__main__":
    main()
