"""Clients that use librdkafka: producers, readers that keep their own positions, and group members that commit."""

import json
import time
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import confluent_kafka

from fixtures.kafka_bounds import bounds
from nemesis.recording import digest, now
from nemesis.script import CLEANED_TOPIC, STREAM, Script
from simulator.history.model import KEY_END

KEY_COUNT = 48
TIMEOUT_S = 15.0
WARM_UP_S = 0.5
SESSION_MS = 6_000
GROUP = "committing"
DEFINITE = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "INVALID_RECORD",
        "UNKNOWN_TOPIC_OR_PART",
        "TOPIC_AUTHORIZATION_FAILED",
        "_QUEUE_FULL",
    }
)
REFUSED_COMMITS = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"})
STATISTICS_MS = 250


def shown(callback: Callable[..., None]) -> Callable[..., None]:
    """Wrap a callback so that its error is in the process's log: the library hides the kind of error."""

    @wraps(callback)
    def guarded(*values: Any) -> None:
        try:
            callback(*values)
        except BaseException:
            traceback.print_exc()
            raise

    return guarded


NO_TIMEOUT = {"message.timeout.ms": 0}
"""librdkafka never gives up a record. Otherwise it would begin a new epoch for all partitions, and send again what the servers may have
stored: a record could then be stored twice, also in Apache Kafka (docs/correctness.md)."""


def produce_idempotently(script: Script) -> None:
    """Run one idempotent producer after another."""
    _produce(script, "idempotent", {"enable.idempotence": True, **NO_TIMEOUT})


def produce_plainly(script: Script) -> None:
    """Run producers without idempotence, whose retries may store a record twice."""
    _produce(script, "plain", {"enable.idempotence": False, "acks": "all"})


def produce_short_lived(script: Script) -> None:
    """Run short-lived idempotent producers that send their first records in several requests."""
    _produce(
        script,
        "idempotent",
        {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1, **NO_TIMEOUT},
        life_s=0.5,
    )


def produce_keyed(script: Script) -> None:
    """Run idempotent producers for the topic with key compaction."""
    _produce(script, "idempotent", {"enable.idempotence": True, **NO_TIMEOUT}, topic=CLEANED_TOPIC)


def _produce(
    script: Script, kind: str, settings: dict[str, Any], life_s: float | None = None, topic: str = STREAM
) -> None:
    pace, number, life = script.pace(), 0, 0
    while script.is_running:
        life += 1
        producer = _Producer(script, f"{script.life}-{life}", kind, settings, topic)
        number = producer.warm_up(number)
        pace.burst()
        end_s = time.monotonic() + (life_s or script.lifetime_s())
        while script.is_running and time.monotonic() < end_s and not producer.is_broken:
            producer.send(number)
            number += 1
            pace.step()
        producer.close()


class _Producer:
    """One producer of the library; every record is one operation of the history."""

    def __init__(self, script: Script, name: str, kind: str, settings: dict[str, Any], topic: str) -> None:
        self._history, self._random, self._topic = script.history, script.random, topic
        self._name, self._kind = name, kind
        self._partition_count = script.partition_count
        self.is_broken = False
        self._sequences = [0] * script.partition_count
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(script.addresses("kafka")),
                "client.id": name,
                "topic.metadata.refresh.interval.ms": 10_000,
                "linger.ms": script.random.choice((0, 0, 5, 50)),
                "batch.num.messages": script.random.choice(
                    (1, 1, 3, 1000)
                ),  # small values: several batches are in flight at once
                "message.timeout.ms": 60_000,
                "log_level": 0,
                "error_cb": shown(self._complain),
                **settings,
            }
        )

    def warm_up(self, number: int) -> int:
        """Send a record to half of the partitions to open connections, so that first records of other partitions leave one by one.

        Returns the next record's number.
        """
        for partition in self._random.sample(range(self._partition_count), self._partition_count // 2):
            self.send(number, partition)
            number += 1
        end_s = time.monotonic() + WARM_UP_S
        while time.monotonic() < end_s:
            self._poll(0.05)
        return number

    def send(self, number: int, partition: int | None = None) -> None:
        """Send one record, by default to the partition of its key."""
        key = number % KEY_COUNT
        partition = key % self._partition_count if partition is None else partition
        name, timestamp_ms = f"{self._name}.{number}.{partition}", int(time.time() * 1000)
        if self._topic == CLEANED_TOPIC:
            name = f"key-{key}{KEY_END}{name}"
        value = name.encode()
        operation = self._history.invoke(
            "produce", log=(self._topic, partition), producer=self._name, kind=self._kind,
            sequence=self._sequences[partition],
            records=[[name, digest(b"key-%d" % key, value, (), timestamp_ms)]],
        )  # fmt: skip
        self._sequences[partition] += 1

        @shown
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                # Without an offset: a later answer implied the delivery, and the library knows no offset.
                has_offset = message.offset() is not None and message.offset() >= 0
                self._history.ok(operation, offset=message.offset() if has_offset else None)
                if not has_offset:
                    self._history.note("acknowledged implicitly")
            elif error.name() in DEFINITE:
                self._history.fail(operation, error.name())
            else:
                self._history.unknown(operation, error.name())
                self._history.note(f"delivery {error.name()}")

        try:
            self._producer.produce(
                self._topic, value, b"key-%d" % key, partition, timestamp=timestamp_ms, on_delivery=delivered
            )
        except BufferError:
            self._history.fail(operation, "_QUEUE_FULL")
        except confluent_kafka.KafkaException as error:
            self._history.fail(
                operation, error.args[0].name()
            )  # the library did not accept the record, so it was never sent
            self.is_broken = True
        self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        """Run the library's callbacks. A fatal error ends this producer; the next producer replaces it."""
        try:
            self._producer.poll(timeout_s)
        except confluent_kafka.KafkaException as error:
            self._history.note(f"fatal {error.args[0].name()}")
            self.is_broken = True

    def close(self) -> None:
        """Wait until sent records are acknowledged; the outcome of the others is unknown."""
        left = self._producer.flush(TIMEOUT_S)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
            self._history.note(f"closed with {left} records under way")

    def _complain(self, error: Any) -> None:
        self._history.note(f"complaint {error.name()}")
        self.is_broken = self.is_broken or error.fatal()


def read(script: Script) -> None:
    """Read all partitions from the start; a restarted process continues at the stored positions, or starts again."""
    reader = _Reader(script)
    while script.is_running:
        reader.poll()
        if script.random.random() < 0.02:
            reader.ask_for_bounds()
    reader.close()


class _Reader:
    def __init__(self, script: Script) -> None:
        self._script, self._history = script, script.history
        self._state = script.folder / f"{script.name}.positions"
        self._next = dict.fromkeys(range(script.partition_count), 0)
        if self._state.exists() and script.random.random() < 0.7:
            found = [line.split() for line in self._state.read_text().splitlines()]
            self._next |= {int(pair[0]): int(pair[1]) for pair in found if len(pair) == 2}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(script.addresses("kafka")),
                "client.id": script.life,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 10_000,
                "log_level": 0,
            }
        )
        parts = [confluent_kafka.TopicPartition(STREAM, at, offset) for at, offset in self._next.items()]
        self._consumer.assign(parts)

    def poll(self) -> None:
        """Record what was read, one operation per partition."""
        asked = now()
        for partition, records in by_partition(self._consumer.consume(500, 0.2), self._history.note).items():
            operation = self._history.invoke(
                "read", at=asked, log=(STREAM, partition), start=self._next[partition], protocol="kafka"
            )
            self._history.ok(operation, records=records)
            self._next[partition] = records[-1][0] + 1
        self._state.write_text("".join(f"{at} {offset}\n" for at, offset in self._next.items()))

    def ask_for_bounds(self) -> None:
        """Ask for the start and end of a partition."""
        partition = self._script.random.randrange(self._script.partition_count)
        operation = self._history.invoke("bounds", log=(STREAM, partition), protocol="kafka")
        try:
            part = confluent_kafka.TopicPartition(STREAM, partition)
            start, end = bounds(",".join(self._script.addresses("kafka")), part, TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            self._history.unknown(operation, error.args[0].name())
            return
        self._history.ok(operation, start=start, end=end)

    def close(self) -> None:
        self._consumer.close()


def by_partition(messages: Sequence[Any], note: Any) -> dict[int, list[tuple[int, str, str]]]:
    """Return (offset, id, digest) of messages by partition; errors go to `note`."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    for message in messages:
        if message.error() is not None:
            note(f"consumer {message.error().name()}")
            if message.error().name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
                note(f"out of range: {message.topic()}/{message.partition()} {message.offset()}")
            continue
        content = digest(message.key(), message.value(), message.headers() or (), message.timestamp()[1])
        seen = (message.offset(), (message.value() or b"").decode("utf-8", "replace"), content)
        found.setdefault(message.partition(), []).append(seen)
    return found


def be_member(script: Script) -> None:
    """Run group members that commit what they read, and leave at random times."""
    while script.is_running:
        member = _Member(script)
        end_s = time.monotonic() + 3 * script.lifetime_s()
        while script.is_running and time.monotonic() < end_s:
            member.poll()
        member.close()


class SentCommits:
    """How many OffsetCommit requests the library has sent, from its statistics.

    librdkafka repeats a commit by itself if the coordinator was not available or the connection broke, and reports only the last
    answer. The earlier attempt may have taken effect. So a refusal is definite only if the call has sent a single request.
    """

    def __init__(self) -> None:
        self.at_us = 0
        """Time of the newest statistics (CLOCK_MONOTONIC)."""
        self._sent = 0
        self._counted: int | None = 0
        self._called = 0

    def take(self, statistics: str) -> None:
        """Take the library's statistics. Source: librdkafka, STATISTICS.md (`ts`, `brokers.*.req`)."""
        found = json.loads(statistics)
        self.at_us = found["ts"]
        self._sent = sum(broker.get("req", {}).get("OffsetCommit", 0) for broker in found["brokers"].values())

    def call(self) -> None:
        """Record that a commit was requested."""
        self._called += 1

    def were_single(self, *, is_current: bool) -> bool:
        """Return whether each call since the last use of this method has sent one request. Use it after each call that failed: a
        successful call has sent at least one request, a failed call perhaps none. `is_current`: the statistics are newer than the
        end of the call.
        """
        were_single = is_current and self._counted is not None and self._sent - self._counted == self._called
        self._counted, self._called = (self._sent if is_current else None), 0
        return were_single


class _Member:
    def __init__(self, script: Script) -> None:
        self._history = script.history
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._sent = SentCommits()
        self._waiting: list[Any] = []
        self._waiting_since = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(script.addresses("kafka")),
                "client.id": script.life,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1_500,
                "topic.metadata.refresh.interval.ms": 10_000,
                "log_level": 0,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": shown(self._sent.take),
            }
        )
        self._consumer.subscribe([STREAM], on_assign=self._assigned)

    def _assigned(self, consumer: Any, parts: Sequence[Any]) -> None:
        self._next, self._committed, self._waiting = {}, {}, []
        for part in parts:
            operation = self._history.invoke("committed", group=GROUP, log=(STREAM, part.partition))
            try:
                found = consumer.committed([part], timeout=TIMEOUT_S)[0]
            except confluent_kafka.KafkaException as error:
                self._history.unknown(operation, error.args[0].name())
                continue
            if found.error is None:
                self._history.ok(operation, offset=found.offset if found.offset >= 0 else None)
            else:
                self._history.unknown(operation, found.error.name())

    def poll(self) -> None:
        """Read, record and commit."""
        asked = self._waiting_since if self._waiting else now()
        found, self._waiting = self._waiting, []
        for partition, records in by_partition(found or self._consumer.consume(200, 0.2), self._history.note).items():
            operation = self._history.invoke(
                "read", at=asked, log=(STREAM, partition), start=records[0][0], protocol="kafka"
            )
            self._history.ok(operation, records=records)
            self._commit(partition, records[-1][0] + 1)

    def _commit(self, partition: int, offset: int) -> None:
        operation = self._history.invoke("commit", group=GROUP, log=(STREAM, partition), offset=offset)
        self._sent.call()
        try:
            part = confluent_kafka.TopicPartition(STREAM, partition, offset)
            found = self._consumer.commit(offsets=[part], asynchronous=False)[0].error
        except confluent_kafka.KafkaException as error:
            found = error.args[0]
        if found is None:
            self._history.ok(operation)
            return
        end = now()
        was_single = self._sent.were_single(is_current=self._has_statistics_since(end))
        if was_single and found.name() in REFUSED_COMMITS:
            self._history.fail(operation, found.name(), at=end)
        else:
            self._history.unknown(operation, found.name(), at=end)
            self._history.note(f"commit {found.name()}{'' if was_single else ', sent again or perhaps'}")

    def _has_statistics_since(self, time_ns: int) -> bool:
        """Wait for the library's next statistics; records that arrive meanwhile are kept for the next `poll`."""
        end_s = time.monotonic() + TIMEOUT_S
        while self._sent.at_us * 1000 <= time_ns and time.monotonic() < end_s:
            asked = now()
            if found := self._consumer.consume(1, 0.05):
                self._waiting_since = self._waiting_since if self._waiting else asked
                self._waiting += found
        return self._sent.at_us * 1000 > time_ns

    def close(self) -> None:
        self._consumer.close()
