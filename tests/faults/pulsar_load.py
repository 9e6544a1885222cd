"""Load from pulsar-client (based on the C++ client). Producers never give up. Each producer and each consumer has its own thread.

A client knows the addresses of all servers. Messages are unbatched and have keys, so Key_Shared subscriptions keep the
order of each key. Errors that the library handles are only in its log; every error that reaches the program is a failure.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import requests
from typing_extensions import override

from faults.checking import Acknowledged, Log, Name, Read, name_of
from faults.cluster import Server
from faults.load import Client
from faults.waiting import pause, until

KEY_COUNT = 96
POLL_MS = 100
TIMEOUT_S = 60
PENDING_MAX = 1_000


class PulsarClient(Client):
    """A thread with a client of all servers."""

    def __init__(self, name: str, addresses: Sequence[str], folder: Path) -> None:
        super().__init__(name, "", "", {})
        self._url = "pulsar://" + ",".join(addresses)
        self._library_log = str(folder / f"{name}.log")

    def connect(self) -> Any:
        """Return a new client of the library, which logs to a file."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, self._library_log)
        return pulsar.Client(self._url, operation_timeout_seconds=TIMEOUT_S, logger=logger)


class PulsarProducer(PulsarClient):
    """Sends `per_second` messages per second, those of a key to one partition, and waits for receipts without a time limit."""

    def __init__(self, name: str, addresses: Sequence[str], topic: str, folder: Path, *, per_second: int = 300) -> None:
        super().__init__(name, addresses, folder)
        self._topic = topic
        self._per_second = per_second
        self.acknowledged: list[Acknowledged] = []
        self.acknowledged_as_duplicates: set[Name] = set()
        """Messages that were resent and stored once: the receipt has no offset."""
        self.failed: dict[Name, str] = {}
        self.sent_count = 0

    @property
    def acknowledged_count(self) -> int:
        """Number of acknowledged records, including those acknowledged as duplicates."""
        return len(self.acknowledged) + len(self.acknowledged_as_duplicates)

    @property
    def unknown(self) -> set[Name]:
        """Messages that were sent and not acknowledged."""
        known = {record.name for record in self.acknowledged} | self.acknowledged_as_duplicates
        return {Name(self.name, at) for at in range(self.sent_count)} - known

    @override
    def run(self) -> None:
        client = self.connect()
        options = {"send_timeout_millis": 0, "max_pending_messages": PENDING_MAX, "block_if_queue_full": True}
        producer = client.create_producer(self._topic, producer_name=self.name, batching_enabled=False, **options)
        start = time.monotonic()
        while self.goes_on:
            due = int((time.monotonic() - start) * self._per_second) + 1
            while self.sent_count < due and self.goes_on:
                self._send(producer)
            pause(0.005)
        until(lambda: self.acknowledged_count + len(self.failed) == self.sent_count, TIMEOUT_S, "all have receipts")
        client.close()

    def _send(self, producer: Any) -> None:
        number, sent_s = self.sent_count, time.monotonic()
        name = Name(self.name, number)
        self.sent_count += 1

        def receipt(result: Any, message_id: Any) -> None:
            if result != pulsar.Result.Ok:
                self.failed[name] = str(result)
            elif message_id.entry_id() < 0:
                self.acknowledged_as_duplicates.add(name)
            else:
                partition, offset = message_id.partition(), message_id.entry_id()
                self.acknowledged.append(Acknowledged(partition, offset, name, sent_s, time.monotonic()))

        producer.send_async(b"%s.%d" % (self.name.encode(), number), receipt, partition_key=key_of(name))


class PulsarConsumer(PulsarClient):
    """Receives and acknowledges, one by one."""

    def __init__(
        self, name: str, addresses: Sequence[str], topic: str, folder: Path, *, subscription: str, kind: Any
    ) -> None:
        super().__init__(name, addresses, folder)
        self._topic = topic
        self.subscription = subscription
        self._kind = kind
        self.read: list[Read] = []

    @override
    def run(self) -> None:
        client = self.connect()
        consumer = client.subscribe(
            self._topic,
            self.subscription,
            consumer_type=self._kind,
            consumer_name=self.name,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        while self.goes_on:
            try:
                message = consumer.receive(POLL_MS)
            except pulsar.Timeout:
                continue
            self.read.append(read_of(message))
            consumer.acknowledge(message)
        consumer.close()
        client.close()


def key_of(name: Name) -> str:
    """A message's key, used by its producer alone, so that the messages of a key are in the order of their numbers."""
    return f"{name.producer}-{name.number % KEY_COUNT}"


def read_of(message: Any) -> Read:
    """Return a received message as a `Read`."""
    message_id = message.message_id()
    return Read(message_id.partition(), message_id.entry_id(), name_of(message.data()), time.monotonic())


def served_by(server: Server, topic: str) -> str:
    """`host:port` of the server that this server returns for a look-up of the topic."""
    route = f"{server.address('pulsar_http')}/lookup/v2/topic/persistent/public/default/{topic}"
    found = requests.get(route, timeout=TIMEOUT_S).json()
    return str(found["brokerUrl"]).removeprefix("pulsar://")


def read_log(addresses: Sequence[str], topic: str) -> Log:
    """All messages of the topic, by partition."""
    client = pulsar.Client("pulsar://" + ",".join(addresses), operation_timeout_seconds=TIMEOUT_S)
    found: dict[int, list[Read]] = {}
    try:
        for at, partition in enumerate(client.get_topic_partitions(topic)):
            reader = client.create_reader(partition, pulsar.MessageId.earliest)
            reads = found.setdefault(at, [])
            while reader.has_message_available():
                message = reader.read_next(TIMEOUT_S * 1000)
                reads.append(read_of(message)._replace(partition=at))
            reader.close()
    finally:
        client.close()
    return found


class Received(NamedTuple):
    """What all consumers of a subscription received."""

    message_count: int
    duplicate_count: int
    missing: Sequence[Name]
    """Messages that were stored but never received."""
    out_of_order: Sequence[str]
    """Messages received for the first time after a later message of the same key."""


def received(consumers: Sequence[PulsarConsumer], log: Log) -> Received:
    """Compare what the consumers of a subscription received with the log."""
    reads = sorted((read for consumer in consumers for read in consumer.read), key=lambda read: read.at_s)
    seen: set[Name] = set()
    last: dict[str, Name] = {}
    out_of_order = []
    for read in reads:
        if read.name in seen:
            continue
        seen.add(read.name)
        before = last.get(key_of(read.name))
        if before is not None and before.number > read.name.number:
            out_of_order.append(f"{read} behind {before}")
        last[key_of(read.name)] = read.name
    missing = sorted(names(log) - seen)
    return Received(len(seen), len(reads) - len(seen), missing, out_of_order)


def names(log: Mapping[int, Sequence[Read]]) -> set[Name]:
    """The messages in the log."""
    return {read.name for reads in log.values() for read in reads}
