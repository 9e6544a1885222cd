"""A state store of Kafka Streams, restored from a changelog with key compaction, while servers and workers are killed.

An application keeps the newest value of each key in a store. `bearlake up` compacts and cleans the store's changelog. Once each key is
there only once, the server and its worker are killed, and an instance of the application without local state must restore
the same store from what is left.
"""

import random
import subprocess
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conformance import packages
from conformance.compacting_server import TIMEOUT_S, CompactingServer, waits_for

APPLICATION = "ChangelogApplication"
INPUT, CHANGELOG = "input", "changelog-newest-changelog"
PARTITION_COUNT = 2
RECORD_COUNT = 10_000
KEY_COUNT = 300
TOMBSTONE_RATE = 0.15
PHASES = ("1", "2")
START_TIMEOUT_S = 120
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")

Store = dict[str, str]


class Changelog:
    """One run. Data is in `folder`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, class_path: str, running: ExitStack) -> None:
        self._folder, self._logs, self._class_path = folder, logs, class_path
        self._server = CompactingServer(folder, logs, running)
        self._expected: Store = {}
        self._randomness = random.Random(1)

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        self._server.start()
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap})
        admin.create_topics([NewTopic(INPUT, PARTITION_COUNT, 1)])[INPUT].result(START_TIMEOUT_S)
        for phase in PHASES:
            self._produce(phase)
            _, store = self._application(phase, f"worked-{phase}")
            if store != self._expected:
                return f"phase {phase}: the store differs from the input in {_differences(store, self._expected)}"
            if not waits_for(lambda: self._server.has_each_key_once(CHANGELOG)):
                return f"phase {phase}: the changelog still has several records of a key after {TIMEOUT_S} s"
            self._server.kill()
            self._server.start()
            restored, store = self._application(phase, f"restored-{phase}")
            if store != self._expected:
                return f"phase {phase}: the restored store differs in {_differences(store, self._expected)}"
            if not len(store) <= restored <= KEY_COUNT + PARTITION_COUNT:
                return f"phase {phase}: {restored} records were restored for {len(store)} keys"
        return ""

    def _produce(self, phase: str) -> None:
        producer = Producer({"bootstrap.servers": self._server.bootstrap, "linger.ms": 20})
        for number in range(RECORD_COUNT):
            key = f"k{self._randomness.randrange(KEY_COUNT)}"
            value = None if self._randomness.random() < TOMBSTONE_RATE else f"{phase}-{number}"
            if value is None:
                self._expected.pop(key, None)
            else:
                self._expected[key] = value
            producer.produce(INPUT, key=key, value=value, partition=hash_of(key) % PARTITION_COUNT)
            producer.poll(0)
        for partition in range(PARTITION_COUNT):
            self._expected[f"end{partition}"] = phase
            producer.produce(INPUT, key=f"end{partition}", value=phase, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

    def _application(self, phase: str, name: str) -> tuple[int, Store]:
        """Run an instance without local state until it has all input; return how many records it restored, and its store."""
        command = [APPLICATION, self._server.bootstrap, str(self._folder / name), INPUT, phase]
        process = self._java(name, *command)
        assert process.wait(TIMEOUT_S) == 0, f"{name} ended with {process.returncode}, see {self._logs}"
        lines = [line.split(" ") for line in (self._logs / f"{name}.log").read_text(encoding="utf-8").splitlines()]
        (restored,) = [int(words[1]) for words in lines if words[0] == "RESTORED"]
        return restored, {words[1]: words[2] for words in lines if words[0] == "STORE"}

    def _java(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        return self._server.run(name, ["java", *JAVA_OPTIONS, logging, "-cp", self._class_path, *arguments])


def hash_of(key: str) -> int:
    """A number for the key that is the same in every process."""
    return sum(key.encode())


def _differences(found: Store, expected: Store) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return f"{len(keys)} keys, such as {keys[:3]}"
