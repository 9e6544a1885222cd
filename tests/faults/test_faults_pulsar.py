"""Pulsar servers get SIGKILL at random, or SIGTERM, under load on a Shared and a Key_Shared subscription of one topic.

Nothing is lost, each message is stored once, a key's messages come in order, and no error reaches a program. A killed server's consumers
receive unacknowledged messages again, and those whose acknowledgement was not saved yet; after a drain nothing is received twice.
`BEARLAKE_TEST_FAULTS_SECONDS=75` with `pytest -o timeout=2400` makes ten minutes of it.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from faults.checking import Log, check
from faults.cluster import Cluster, Server, Stores, running
from faults.waiting import pause, until

pulsar = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

from faults.pulsar_load import PulsarConsumer, PulsarProducer, Received, names, read_log, received, served_by  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

TOPIC = "faults"
PARTITION_COUNT = 4
SERVER_COUNT = 3
KILL_COUNT = 8
TIMEOUT_S = 60.0
RESUME_S_MAX = 20.0
DRAIN_S_MAX = 22.0
"""`server.drain_ms` is 20 s; the rest is for the process to end."""
SETTINGS = {
    "pulsar.auto_create_partition_count": PARTITION_COUNT,
    "server.heartbeat_ms": 500,
    "server.timeout_ms": 3000,
}
WATCHFUL = {**SETTINGS, "server.heartbeat_ms": 250, "server.timeout_ms": 1000}
"""What `docs/pulsar.md` recommends if clients must continue within 2 s. Clients reconnect 0.1, 0.3, 0.7, 1.5 and 3.1 s after a
connection has broken, so a dead server must be detected before the fourth attempt."""
KINDS = {"shared": pulsar.ConsumerType.Shared, "keyed": pulsar.ConsumerType.KeyShared}
"""The subscriptions."""

Tell = Callable[[object], None]


@dataclass
class Load:
    """The clients of one run."""

    addresses: list[str]
    producers: list[PulsarProducer]
    consumers: dict[str, list[PulsarConsumer]]
    """By subscription."""

    @classmethod
    def of(cls, addresses: list[str], folder: Path) -> Self:
        consumers = {
            name: [
                PulsarConsumer(f"{name}-{at}", addresses, TOPIC, folder, subscription=name, kind=kind)
                for at in range(2)
            ]
            for name, kind in KINDS.items()
        }
        return cls(addresses, [PulsarProducer(f"p{at}", addresses, TOPIC, folder) for at in range(2)], consumers)

    def join(self, name: str, addresses: list[str], folder: Path) -> list[PulsarConsumer]:
        """One more consumer of each subscription, which has been started."""
        joined = []
        for subscription, kind in KINDS.items():
            options = {"subscription": subscription, "kind": kind}
            consumer = PulsarConsumer(f"{subscription}-{name}", addresses, TOPIC, folder, **options)
            self.consumers[subscription].append(consumer)
            consumer.start()
            joined.append(consumer)
        return joined

    def everybody(self) -> list[PulsarProducer | PulsarConsumer]:
        return [*self.producers, *(consumer for group in self.consumers.values() for consumer in group)]

    def achieved(self) -> dict[str, int]:
        """Messages with a receipt by producer, messages received by subscription."""
        sent = {producer.name: producer.acknowledged_count for producer in self.producers}
        return sent | {name: sum(len(consumer.read) for consumer in group) for name, group in self.consumers.items()}

    def resumed(self, since_s: float) -> dict[str, float]:
        """Wait until each producer got a receipt and each subscription got a message, both sent after `since_s`, in every partition.

        Returns the seconds until the last partition, by producer and subscription.
        """
        starts = {producer.name: len(producer.acknowledged) for producer in self.producers}
        read_starts = {consumer.name: len(consumer.read) for group in self.consumers.values() for consumer in group}
        found: dict[tuple[str, int], float] = {}

        def is_complete() -> bool:
            for client in self.everybody():
                client.raise_failure()
            fresh = [
                record
                for producer in self.producers
                for record in producer.acknowledged[starts[producer.name] :]
                if record.sent_s > since_s
            ]
            for record in fresh:
                found.setdefault((record.name.producer, record.partition), record.at_s - since_s)
            new = {record.name for record in fresh}
            for name, group in self.consumers.items():
                for read in (read for consumer in group for read in consumer.read[read_starts[consumer.name] :]):
                    if read.name in new:
                        before_s = found.setdefault((name, read.partition), read.at_s - since_s)
                        found[name, read.partition] = min(before_s, read.at_s - since_s)
            return len(found) == (len(self.producers) + len(self.consumers)) * PARTITION_COUNT

        until(is_complete, TIMEOUT_S, f"all go on; until now {found}")
        return {name: max(found[name, at] for at in range(PARTITION_COUNT)) for name, _ in found}

    def finish(self) -> Log:
        """Stop the producers, let the consumers have everything, stop them; the log."""
        for producer in self.producers:
            producer.begin_stop()
        for producer in self.producers:
            producer.stop()
        log = read_log(self.addresses, TOPIC)
        for name, group in self.consumers.items():
            until(partial(self._has_all, group, log), TIMEOUT_S, f"{name} has everything")
        for group in self.consumers.values():
            for consumer in group:
                consumer.stop()
        return log

    @staticmethod
    def _has_all(group: list[PulsarConsumer], log: Log) -> bool:
        return not received(group, log).missing


@contextmanager
def loaded(cluster: Cluster, folder: Path) -> Iterator[Load]:
    """Three servers and clients of them, at work."""
    servers = [cluster.add(f"s{at}", role="pulsar") for at in range(SERVER_COUNT)]
    for server in servers:
        server.start()
    load = Load.of([server.address("pulsar") for server in servers], folder)
    try:
        for client in load.everybody():
            client.start()
        load.resumed(time.monotonic())
        yield load
    finally:
        for client in load.everybody():
            client.begin_stop()


def assert_exact(load: Load, log: Log, tell: Tell) -> dict[str, Received]:
    """Every message with a receipt is stored once, at the receipt's position, and was received; messages of a key in order."""
    producers = load.producers
    acknowledged = [record for producer in producers for record in producer.acknowledged]
    again = {name for producer in producers for name in producer.acknowledged_as_duplicates}
    unknown = {name for producer in producers for name in producer.unknown}
    counts = check(acknowledged, unknown | again, log, {})  # the receipt of a duplicate has no offset
    counts.unknown -= len(again)
    found = {name: received(group, log) for name, group in load.consumers.items()}
    said = {name: f"{counts.message_count:,}, twice {counts.duplicate_count:,}" for name, counts in found.items()}
    tell(f"{counts}; receipts as duplicates {len(again):,}; received {said}")
    counts.assert_exact()
    assert not again - names(log)
    assert not any(producer.failed for producer in producers)
    assert not any(producer.unknown for producer in producers)
    for consumed in found.values():
        assert not consumed.missing
    assert not found["keyed"].out_of_order
    return found


def assert_all_is_acknowledged(load: Load) -> None:
    """A new consumer of a subscription gets nothing: all acknowledgements are saved."""
    client = pulsar.Client("pulsar://" + ",".join(load.addresses))
    try:
        for name in load.consumers:
            consumer = client.subscribe(TOPIC, name, consumer_type=pulsar.ConsumerType.Shared)
            with pytest.raises(pulsar.Timeout):
                consumer.receive(500)
            consumer.close()
    finally:
        client.close()


def test_servers_are_killed_at_random(folder: Path, stores: Stores, load_s: float, tell: Tell) -> None:
    choose = random.Random(6)
    slowest: dict[str, float] = {}
    with running(Cluster(folder, stores, WATCHFUL)) as cluster, loaded(cluster, folder) as load:
        for _ in range(KILL_COUNT):
            pause(load_s * choose.uniform(0.5, 1.5))
            server = cluster[choose.choice(list(cluster.servers))]
            server.kill()
            found = load.resumed(time.monotonic())
            slowest = {name: max(slowest.get(name, 0.0), value) for name, value in found.items()}
            server.start()
        log = load.finish()
        tell(
            f"{KILL_COUNT} kills; on again after at most { ({name: round(value, 1) for name, value in slowest.items()}) } s"
        )
        assert_exact(load, log, tell)
        assert_all_is_acknowledged(load)

    assert max(slowest.values()) < RESUME_S_MAX


def test_a_server_that_was_paused_is_fenced(folder: Path, stores: Stores, load_s: float, tell: Tell) -> None:
    """Other servers take over its partitions when consumers connect; acknowledgements to the first server then have no effect.

    Its producers notice when it does not answer a PING, which the library sends every 30 s.
    """
    with running(Cluster(folder, stores, SETTINGS)) as cluster, loaded(cluster, folder) as load:
        pause(load_s)
        address = served_by(cluster["s0"], f"{TOPIC}-partition-0")
        server = next(server for server in cluster.servers.values() if server.address("pulsar") == address)
        server.stop_running()
        others = [other for other in cluster.servers.values() if other is not server]
        until(partial(_serve_all_partitions, others), TIMEOUT_S, f"{server.name} counts as dead")
        comers = load.join("beside", [other.address("pulsar") for other in others], folder)
        taken_s = until(partial(_have_all_partitions, comers), 2 * TIMEOUT_S, "its partitions are served by others")
        server.go_on()
        load.resumed(time.monotonic())
        log = load.finish()
        tell(f"messages of its partitions after {taken_s:.1f} s")
        assert_exact(load, log, tell)
        assert_all_is_acknowledged(load)


def _serve_all_partitions(servers: list[Server]) -> bool:
    named = {served_by(servers[0], f"{TOPIC}-partition-{at}") for at in range(PARTITION_COUNT)}
    return named <= {server.address("pulsar") for server in servers}


def _have_all_partitions(consumers: list[PulsarConsumer]) -> bool:
    for consumer in consumers:
        consumer.raise_failure()
    return all(len({read.partition for read in list(consumer.read)}) == PARTITION_COUNT for consumer in consumers)


def test_a_server_drains_and_no_message_is_received_twice(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    # Clients on a busy machine send their grouped acknowledgements late.
    patient = {**SETTINGS, "streams.subscriptions.last_ack_wait_ms": 5_000}
    with running(Cluster(folder, stores, patient)) as cluster, loaded(cluster, folder) as load:
        ended_s = {}
        for name in list(cluster.servers)[:2]:
            pause(load_s)
            load.resumed(time.monotonic())
            ended_s[name] = cluster[name].terminate()
            load.resumed(time.monotonic())
            cluster[name].start()
        log = load.finish()
        gaps = {producer.name: gap_ms(producer) for producer in load.producers}
        tell(f"ended after {ended_s} s; longest time without a receipt {gaps} ms")
        found = assert_exact(load, log, tell)
        assert_all_is_acknowledged(load)

    assert max(ended_s.values()) < DRAIN_S_MAX
    assert [counts.duplicate_count for counts in found.values()] == [0, 0]


def gap_ms(producer: PulsarProducer) -> int:
    """The longest time (ms) between two receipts."""
    return round(max(after.at_s - before.at_s for before, after in pairwise(producer.acknowledged)) * 1000)
