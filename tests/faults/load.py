"""Load by librdkafka: idempotent producers, readers that keep their own positions, and members of a group, each in its own thread.

Clients run with their library's defaults, unless a test says otherwise, and refresh their metadata more often.
An error from which
the library recovers by itself counts as a complaint; an error on which it gives up is a failure.
"""

import abc
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from typing_extensions import override

from faults.checking import Acknowledged, Log, Name, Read, name_of
from faults.waiting import until
from fixtures.kafka_bounds import bounds

CLIENT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 150.0
POLL_S = 0.05
KEY_COUNT = 96
LOG_LINES = 300
LOG_LINE_LENGTH = 240


def client_id(name: str, zone: str) -> str:
    """The client id that names the client's zone: the client is directed to servers in the zone while there are any."""
    return f"{name},zone_id={zone}" if zone else name


class _Lines(logging.Handler):
    """Keeps lines in memory."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record)[:LOG_LINE_LENGTH])


class Client(abc.ABC):
    """A thread with a client in it."""

    def __init__(self, name: str, bootstrap: str, zone: str, more: dict[str, Any]) -> None:
        self.name = name
        self.complaints: Counter[str] = Counter()
        """Errors that the library reported and recovered from, by name."""
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        """The last lines of the library's log."""
        self._settings = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id(name, zone),
            # librdkafka drops a pending metadata request to a server that the previous answer no longer names, and asks again only
            # at its next refresh (seen with 2.16: a client with a zone that starts at a server of another zone).
            "topic.metadata.refresh.interval.ms": 10_000,
            "error_cb": self._complained,
            "logger": self._logger(),
            **more,
        }
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin_stop(self) -> None:
        """Ask it to stop."""
        self._is_stopping.set()

    def stop(self) -> None:
        """Stop it, wait for its end, and fail if it has failed."""
        self.begin_stop()
        self._thread.join(STOP_TIMEOUT_S)
        assert not self._thread.is_alive(), f"client {self.name} does not end"
        self.raise_failure()

    def raise_failure(self) -> None:
        """Fail if it has failed."""
        if self._failure is not None:
            raise AssertionError(f"client {self.name} failed: {self._failure!r}") from self._failure

    @abc.abstractmethod
    def run(self) -> None:
        """The thread's work until it is asked to stop."""

    @property
    def goes_on(self) -> bool:
        """Whether the client has neither failed nor been asked to stop."""
        return not self._is_stopping.is_set() and self._failure is None

    def _logger(self) -> logging.Logger:
        logger = logging.Logger(self.name)  # noqa: LOG001 - not one of the process: it goes with the client
        handler = _Lines(self.log)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
        return logger

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as failure:  # noqa: BLE001 - raised again in the test's thread
            self._failure = failure

    def _complained(self, error: Any) -> None:
        self.complaints[error.name()] += 1
        if error.fatal():
            self._failure = confluent_kafka.KafkaException(error)


class Producer(Client):
    """An idempotent producer that sends `per_second` records per second, to all partitions in turn."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        stream: str,
        partition_count: int,
        *,
        zone: str = "",
        per_second: int = 400,
        padding_bytes: int = 0,
        **more: Any,
    ) -> None:
        """`padding_bytes` lengthens values; `more` are settings of librdkafka with `_` for `.`."""
        super().__init__(name, bootstrap, zone, {"enable.idempotence": True, **_dotted(more)})
        self._stream = stream
        self._partition_count = partition_count
        self._per_second = per_second
        self._padding = b"." + b"x" * padding_bytes if padding_bytes else b""
        self.acknowledged: list[Acknowledged] = []
        self.failed: dict[Name, str] = {}
        """Records whose delivery was reported as failed, with the error."""
        self.sent_count = 0

    @property
    def unknown(self) -> set[Name]:
        """Records that were sent and not acknowledged."""
        return {Name(self.name, at) for at in range(self.sent_count)} - {record.name for record in self.acknowledged}

    @override
    def run(self) -> None:
        producer = confluent_kafka.Producer(self._settings)
        start = time.monotonic()
        while self.goes_on:
            due = int((time.monotonic() - start) * self._per_second) + 1
            while self.sent_count < due and self.goes_on and self._send(producer):
                pass
            producer.poll(0.005)
        left = producer.flush(STOP_TIMEOUT_S)
        assert left == 0, f"{left} records are neither acknowledged nor failed"

    def _send(self, producer: Any) -> bool:
        number, sent_s = self.sent_count, time.monotonic()
        key = number % KEY_COUNT
        partition = key % self._partition_count  # a key has one partition, as with the usual partitioners
        name = Name(self.name, number)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                now_s = time.monotonic()
                self.acknowledged.append(Acknowledged(message.partition(), message.offset(), name, sent_s, now_s))
            else:
                self.failed[name] = error.name()

        value = b"%s.%d.%d" % (self.name.encode(), number, partition) + self._padding
        try:
            producer.produce(self._stream, value, f"key-{key}", partition, on_delivery=delivered)
        except BufferError:
            return False  # the library's queue is full: backpressure has reached the client
        self.sent_count += 1
        return True


class Reader(Client):
    """Reads all partitions from the start and keeps its own positions; commits nothing."""

    def __init__(
        self, name: str, bootstrap: str, stream: str, partition_count: int, *, zone: str = "", **more: Any
    ) -> None:
        own = {"group.id": f"unused-{name}", "enable.auto.commit": False, "auto.offset.reset": "error"}
        super().__init__(name, bootstrap, zone, {**own, **_dotted(more)})
        self._stream = stream
        self._partition_count = partition_count
        self.read: list[Read] = []

    @override
    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.assign(
            [confluent_kafka.TopicPartition(self._stream, index, 0) for index in range(self._partition_count)]
        )
        while self.goes_on:
            self.read += taken(consumer)
        consumer.close()


class Member(Client):
    """A member of a consumer group with automatic commits every second."""

    def __init__(self, name: str, bootstrap: str, stream: str, group: str, *, zone: str = "", **more: Any) -> None:
        own = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000, "debug": "cgrp"}
        super().__init__(name, bootstrap, zone, {**own, "on_commit": self._committed, **_dotted(more)})
        self._stream = stream
        self.read: list[Read] = []
        self.assignments: list[tuple[float, list[int]]] = []
        """(when, partitions) of every assignment."""
        self.commit_errors: Counter[str] = Counter()
        self.commits: list[float] = []
        """When commits succeeded."""

    @override
    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([self._stream], on_assign=self._assigned)
        while self.goes_on:
            self.read += taken(consumer)
        consumer.close()

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        self.assignments.append((time.monotonic(), sorted(partition.partition for partition in partitions)))

    def _committed(self, error: Any, _: Any) -> None:
        if error is None:
            self.commits.append(time.monotonic())
        else:
            self.commit_errors[error.name()] += 1


def taken(consumer: Any) -> list[Read]:
    """The records that a consumer has now; raises fatal errors."""
    found = []
    for message in consumer.consume(500, POLL_S):
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        found.append(Read(message.partition(), message.offset(), name_of(message.value()), time.monotonic()))
    return found


DESTROY_BROKER = -137
"""librdkafka's `RD_KAFKA_RESP_ERR__DESTROY_BROKER`."""


def create_stream(
    addresses: Sequence[str], name: str, partition_count: int, configs: dict[str, str] | None = None
) -> None:
    """A stream that the servers at all `addresses` know when this returns."""
    admin = AdminClient({"bootstrap.servers": addresses[0], "log_level": 0})
    new = NewTopic(name, partition_count, config=configs or {})
    until(partial(_is_created, admin, new), CLIENT_TIMEOUT_S, f"stream {name} is created")
    for address in addresses:
        until(partial(_knows, address, name), CLIENT_TIMEOUT_S, f"{address} knows stream {name}")


def _is_created(admin: AdminClient, new: NewTopic) -> bool:
    """Create the topic; False if the library gave the request up with its server.

    Servers that have just started may not list each other yet, and the library drops a server that the newest list lacks.
    """
    try:
        admin.create_topics([new], operation_timeout=CLIENT_TIMEOUT_S)[new.topic].result(CLIENT_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        if code == DESTROY_BROKER:
            return False
        # The library repeats a request whose answer was late or lost; the first one may have created the topic.
        if code != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    return True


def _knows(address: str, name: str) -> bool:
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic=name, timeout=CLIENT_TIMEOUT_S).topics[name]
    return found.error is None and bool(found.partitions)


def read_log(bootstrap: str, stream: str, partition_count: int) -> Log:
    """Everything that the stream holds now, read by a new client."""
    settings = {"group.id": "unused-log", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    found: dict[int, list[Read]] = {partition: [] for partition in range(partition_count)}
    parts = [confluent_kafka.TopicPartition(stream, partition, 0) for partition in range(partition_count)]
    try:
        ends = {part.partition: _end(bootstrap, part) for part in parts}
        consumer.assign(parts)

        def is_complete() -> bool:
            for read in taken(consumer):
                found[read.partition].append(read)
            return all(
                found[partition] and found[partition][-1].offset + 1 >= end for partition, end in ends.items() if end
            )

        until(is_complete, CLIENT_TIMEOUT_S, f"stream {stream} is read up to {ends}")
    finally:
        consumer.close()
    return {partition: reads[: ends[partition]] for partition, reads in found.items()}


def _end(bootstrap: str, part: Any) -> int:
    found: list[int] = []

    def is_known() -> bool:
        with contextlib.suppress(confluent_kafka.KafkaException):  # while the server that is asked leaves
            found.append(bounds(bootstrap, part, CLIENT_TIMEOUT_S / 10)[1])
        return bool(found)

    until(is_known, CLIENT_TIMEOUT_S, f"the end of {part} is known")
    return found[0]


def _dotted(more: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in more.items()}
