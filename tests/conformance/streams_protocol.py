"""An application of Kafka Streams with `group.protocol=streams` (KIP-1071) counts words, while servers and an instance are killed.

The application has a repartition topic and a store with a changelog, both created by the group's coordinator, and one standby of each task.
Two instances with two threads each work with `exactly_once_v2`. One of them is killed, then each of the three servers, one after the
other. In the end each word must have been counted once.
"""

import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from conformance import packages
from conformance.streams_servers import SERVER_COUNT, Servers

APPLICATION, GROUP = "StreamsProtocol", "words"
INPUT, OUTPUT = "input", "output"
PARTITION_COUNT = 4
LINE_COUNT = 3_000
WORDS = ("bear", "lake", "log", "table", "task")
TIMEOUT_S = 300
STARTING_S = 15
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC")


class StreamsProtocol:
    """One run. Data is in `folder`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, class_path: str, running: ExitStack) -> None:
        self._folder, self._logs, self._class_path = folder, logs, class_path
        self._servers = Servers(folder, logs, running)
        self._expected: Counter[str] = Counter()

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        self._servers.start_all()
        admin = AdminClient({"bootstrap.servers": self._servers.bootstrap})
        for created in admin.create_topics([NewTopic(name, PARTITION_COUNT, 1) for name in (INPUT, OUTPUT)]).values():
            created.result(TIMEOUT_S)
        entry = ConfigEntry("streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        first = self._instance("first")
        self._produce(LINE_COUNT // 3)
        self._instance("second")
        time.sleep(STARTING_S)
        self._produce(LINE_COUNT // 3)
        self._servers.end(first)
        for number in range(SERVER_COUNT):
            self._servers.restart(number)
            self._produce(LINE_COUNT // 9)
        counts = self._counts()
        if counts != self._expected:
            return f"{dict(counts)} instead of {dict(self._expected)}, see {self._logs}"
        failures = [path.name for path in self._logs.glob("*.log") if b"FAILED " in path.read_bytes()]
        return f"{failures} failed, see {self._logs}" if failures else ""

    def _produce(self, line_count: int) -> None:
        producer = Producer({"bootstrap.servers": self._servers.bootstrap, "linger.ms": 20})
        for number in range(line_count):
            words = [WORDS[number % len(WORDS)], WORDS[number // 7 % len(WORDS)]]
            self._expected.update(words)
            producer.produce(INPUT, value=" ".join(words), partition=number % PARTITION_COUNT)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    def _counts(self) -> Counter[str]:
        """Return the newest count of each word, when they are all there or the time is over."""
        settings = {"bootstrap.servers": self._servers.bootstrap, "group.id": "check", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"isolation.level": "read_committed"})
        consumer.subscribe([OUTPUT])
        found: Counter[str] = Counter()
        deadline = time.monotonic() + TIMEOUT_S
        while found != self._expected and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found[message.key().decode()] = int(message.value())
        consumer.close()
        return found

    def _instance(self, name: str) -> "subprocess.Popen[bytes]":
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        arguments = [
            APPLICATION,
            self._servers.bootstrap,
            GROUP,
            str(self._folder / name),
            "exactly_once_v2",
            INPUT,
            OUTPUT,
        ]
        return self._servers.run(name, ["java", *JAVA_OPTIONS, logging, "-cp", self._class_path, *arguments])
