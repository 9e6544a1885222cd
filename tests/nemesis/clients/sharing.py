"""Members of a share group (KIP-932), by librdkafka: they accept most records, release or reject some, and leave in between."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import AcknowledgeType

from nemesis.recording import digest, now
from nemesis.script import STREAM, Script

GROUP = "sharers"
COMMIT_S = 15.0
RELEASED = 0.05
"""The part of records that a member releases."""
REJECTED = 0.02
"""The part of the other records that a member rejects: they are done as accepted ones are."""
SILENT = 0.02
"""The part of polls whose records a member does not acknowledge until their locks have expired."""
BUFFERED_NS = 30 * 10**9
"""A poll returns what the servers sent at most this long before: answers that come late wait in the library, or in a connection."""
LOCK_S = 5.0
"""`streams.groups.share.record_lock_duration_ms` of the run's servers."""


def share(script: Script) -> None:
    """Run one member after another."""
    while script.is_running:
        member = Member(script.addresses("kafka"), script.life, script.history)
        end_s = time.monotonic() + 3 * script.lifetime_s()
        try:
            while script.is_running and time.monotonic() < end_s:
                member.step(
                    released=lambda: script.random.random() < RELEASED,
                    rejected=lambda: script.random.random() < REJECTED,
                    is_silent=script.random.random() < SILENT,
                )
        except confluent_kafka.KafkaException as error:
            script.history.note(f"share member {error.args[0].name()}")
        finally:
            member.close()


class Member:
    """One member. Records that it is about to accept are in the history before the server learns of it."""

    def __init__(self, addresses: Any, name: str, history: Any) -> None:
        self._history = history
        self._consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": ",".join(addresses),
                "client.id": name,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "socket.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 10_000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([STREAM])

    def step(self, *, released: Any = lambda: False, rejected: Any = lambda: False, is_silent: bool = False) -> int:
        """Poll, and acknowledge what comes; returns the number of records. Raises `KafkaException`.

        `released`, `rejected`: whether the next record is released or rejected. `is_silent`: acknowledge late.
        """
        messages, sent = [], now() - BUFFERED_NS
        for message in self._consumer.poll(0.5):
            if message.error() is None:
                messages.append(message)
            else:
                self._history.note(f"share consumer {message.error().name()}")
        if messages and is_silent:
            time.sleep(LOCK_S + 0.5)
        taken: dict[int, list[Any]] = {}
        for message in messages:
            if released():
                self._consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                taken.setdefault(message.partition(), []).append(message)
        operations = {
            partition: self._history.invoke(
                "take", log=(STREAM, partition), group=GROUP, offsets=[message.offset() for message in found], sent=sent
            )
            for partition, found in taken.items()
        }
        for found in taken.values():
            for message in found:
                kind = AcknowledgeType.REJECT if rejected() else AcknowledgeType.ACCEPT
                self._consumer.acknowledge(message, kind)
        if messages:
            self._commit(operations, taken)
        return len(messages)

    def _commit(self, operations: dict[int, int], taken: dict[int, list[Any]]) -> None:
        try:
            results = {part.partition: error for part, error in self._consumer.commit_sync(COMMIT_S).items()}
        except confluent_kafka.KafkaException as raised:
            results = dict.fromkeys(operations, raised)
        for partition, operation in operations.items():
            error = results.get(partition, "no result")
            if error is None:
                self._history.ok(operation, records=[_seen(message) for message in taken[partition]])
            else:
                self._history.unknown(operation, str(error))
                self._history.note(f"share commit {error}")

    def close(self) -> None:
        """Leave the group."""
        try:
            self._consumer.close()
        except confluent_kafka.KafkaException as error:
            self._history.note(f"share close {error.args[0].name()}")


def _seen(message: Any) -> tuple[int, str, str]:
    value = message.value() or b""
    headers = message.headers() or ()
    return message.offset(), value.decode(), digest(message.key(), message.value(), headers, message.timestamp()[1])
