"""Copiers: consumers whose transactions have copies of the records that they read, and their group's offsets (KIP-447), by librdkafka.

A copy has the partition of its record, and the record's id before `COPY`. So a copy is lost or made twice if offsets and records of a
transaction do not take effect together, or if a copier whose partition has moved still commits.

librdkafka 2.16 may never return from `send_offsets_to_transaction`, whatever its time limit, if the group's coordinator leaves the list of
brokers while the call waits for a connection to it (its issues 5511 and 5456). A copier then ends its process, as a supervisor of an
application would, and the run starts it again and counts it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka

from nemesis.clients.transactional import TIMEOUT_S, TRANSACTION_MS, commit
from nemesis.recording import Recording, now
from nemesis.script import COPIES_TOPIC, HUNG, TRANSACTIONAL_TOPIC, Script
from simulator.history.copies import COPY

GROUP = "copiers"
SESSION_MS = 6_000
BATCH_COUNT = 20
LOGGED = {"debug": "cgrp,eos", "log_level": 7}
"""What the library writes to `NAME.err`: the steps of its group and of its transactions."""
HANGS_S = 2 * TIMEOUT_S
"""Time after which a call whose limit is `TIMEOUT_S` does not return any more."""
ABORTED = 0.1
"""The part of transactions that the application aborts."""


def copy(script: Script) -> None:
    """Run one copier after another, all with the same transactional id. A copier whose transaction is not committed is replaced."""
    while script.is_running:
        copier = _Copier(script)
        end_s = time.monotonic() + 3 * script.lifetime_s()
        try:
            copier.start()
            while script.is_running and time.monotonic() < end_s and copier.step():
                pass
        except confluent_kafka.KafkaException as error:
            script.history.note(f"copier {error.args[0].name()}")
        finally:
            copier.close()


class _Copier:
    def __init__(self, script: Script) -> None:
        self._script = script
        shared = {"bootstrap.servers": ",".join(script.addresses("kafka")), "client.id": script.life, **LOGGED}
        self._consumer = confluent_kafka.Consumer(
            {
                **shared,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )
        self._producer = confluent_kafka.Producer(
            {**shared, "transactional.id": script.name, "transaction.timeout.ms": TRANSACTION_MS}
        )

    def start(self) -> None:
        """Raises `KafkaException`."""
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([TRANSACTIONAL_TOPIC])

    def step(self) -> bool:
        """Copy what a poll returns, in one transaction; returns whether the copier can go on."""
        messages: list[Any] = []
        for message in self._consumer.consume(BATCH_COUNT, 0.5):
            if message.error() is None:
                messages.append(message)
            else:
                self._script.history.note(f"copier {message.error().name()}")
        return not messages or self._copy(messages)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _copy(self, messages: list[Any]) -> bool:
        history, sequence = self._script.history, now()
        writes = [
            (message.partition(), f"{message.value().decode()}{COPY}{self._script.life}.{sequence}")
            for message in messages
        ]
        operation = history.invoke(
            "transact",
            topic=COPIES_TOPIC,
            producer=self._script.name,
            sequence=sequence,
            writes=writes,
            source=TRANSACTIONAL_TOPIC,
        )
        try:
            self._producer.begin_transaction()
            for partition, name in writes:
                self._producer.produce(COPIES_TOPIC, name.encode(), partition=partition)
            positions = self._consumer.position(self._consumer.assignment())
            with _ended_if_it_hangs(history):
                self._producer.send_offsets_to_transaction(
                    [part for part in positions if part.offset >= 0],
                    self._consumer.consumer_group_metadata(),
                    TIMEOUT_S,
                )
            if self._script.random.random() < ABORTED:
                self._producer.abort_transaction(TIMEOUT_S)
                history.fail(operation, "aborted by the application")
                return False
            commit(self._producer)
        except confluent_kafka.KafkaException as raised:
            history.note(f"copy {raised.args[0].name()}")
            history.unknown(operation, raised.args[0].name())
            return False
        history.ok(operation)
        return True


@contextlib.contextmanager
def _ended_if_it_hangs(history: Recording) -> Iterator[None]:
    """End this process if the block has not returned after `HANGS_S`."""

    def end() -> None:
        history.note("send_offsets_to_transaction does not return")
        os._exit(HUNG)

    timer = threading.Timer(HANGS_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
