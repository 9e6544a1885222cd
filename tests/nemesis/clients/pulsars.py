"""Clients that use pulsar-client (based on the C++ client): producers with names, consumers of durable subscriptions of every type."""

import time
from typing import Any

import pulsar

from nemesis.recording import now
from nemesis.script import PULSAR_TOPIC, Script

PARTITION_COUNT = 2
TIMEOUT_S = 15
PENDING_MAX = 200
KINDS = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover, pulsar.ConsumerType.KeyShared)


def produce(script: Script) -> None:
    """Run one producer after another for each partition; each has a new name, so no producer continues another one's sequence."""
    pace, number, life = script.pace(), 0, 0
    while script.is_running:
        life += 1
        client = _connect(script)
        try:
            producers = [_Producer(script, client, f"{script.life}-{life}", at) for at in range(PARTITION_COUNT)]
            end_s = time.monotonic() + 2 * script.lifetime_s()
            pace.burst()
            while script.is_running and time.monotonic() < end_s:
                producers[number % PARTITION_COUNT].send(number)
                number += 1
                pace.step()
            for producer in producers:
                producer.wait_for_receipts()
        except pulsar.PulsarException as error:
            script.history.note(f"pulsar producer {error}")
            script.pause(1.0)
        finally:
            _close(script, client)


def _close(script: Script, client: Any) -> None:
    """Close a client whose server may not answer: during an outage the library gives up after `TIMEOUT_S`."""
    try:
        client.close()
    except pulsar.PulsarException as error:
        script.history.note(f"pulsar close {error}")


def _connect(script: Script) -> Any:
    log = str(script.folder / f"{script.name}.library.err")
    return pulsar.Client(
        "pulsar://" + ",".join(script.addresses("pulsar")),
        operation_timeout_seconds=TIMEOUT_S,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, log),
    )


class _Producer:
    def __init__(self, script: Script, client: Any, name: str, partition: int) -> None:
        self._history, self._partition = script.history, partition
        self._name = f"{name}-p{partition}"
        self._under_way = 0
        self._sequence = 0
        self._producer = client.create_producer(
            f"{PULSAR_TOPIC}-partition-{partition}", producer_name=self._name, batching_enabled=False,
            send_timeout_millis=0, max_pending_messages=PENDING_MAX, block_if_queue_full=False,
        )  # fmt: skip

    def send(self, number: int) -> None:
        """Send one message without waiting."""
        name = f"{self._name}.{number}"
        operation = self._history.invoke(
            "produce", log=(PULSAR_TOPIC, self._partition), producer=self._name, kind="idempotent",
            sequence=self._sequence, records=[[name]],
        )  # fmt: skip
        self._sequence += 1
        self._under_way += 1

        def receipt(result: Any, message_id: Any) -> None:
            self._under_way -= 1
            if result == pulsar.Result.Ok:
                entry = message_id.entry_id()
                self._history.ok(operation, offset=entry if entry >= 0 else None)
            elif result == pulsar.Result.ProducerQueueIsFull:
                self._history.fail(operation, str(result))
            else:
                self._history.unknown(operation, str(result))
                self._history.note(f"delivery {result}")

        self._producer.send_async(name.encode(), receipt, partition_key=f"key-{number % 48}")

    def wait_for_receipts(self) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while self._under_way and time.monotonic() < end_s:
            time.sleep(0.02)


def consume(script: Script) -> None:
    """Consume from one subscription per type; the number of the process selects the type."""
    index = int(script.name.rpartition("-")[2]) % len(KINDS)
    while script.is_running:
        client = _connect(script)
        try:
            consumer = client.subscribe(
                PULSAR_TOPIC, f"subscription-{index}", consumer_type=KINDS[index], consumer_name=script.life,
                initial_position=pulsar.InitialPosition.Earliest,
            )  # fmt: skip
            end_s = time.monotonic() + 3 * script.lifetime_s()
            while script.is_running and time.monotonic() < end_s:
                _receive(script, consumer)
        except pulsar.PulsarException as error:
            script.history.note(f"pulsar consumer {error}")
            script.pause(1.0)
        finally:
            _close(script, client)


def _receive(script: Script, consumer: Any) -> None:
    asked = now()
    try:
        message = consumer.receive(200)
    except pulsar.Timeout:
        return
    where = message.message_id()
    offset, name = where.entry_id(), message.data().decode()
    operation = script.history.invoke(
        "read", at=asked, log=(PULSAR_TOPIC, max(0, where.partition())), start=offset, protocol="pulsar"
    )
    script.history.ok(operation, records=[(offset, name)])
    if message.redelivery_count():
        script.history.note("redelivered")
    consumer.acknowledge(message)
