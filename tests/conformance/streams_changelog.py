"""A state store of Kafka Streams, restored from a changelog with key compaction, while servers and workers are killed.

An application keeps the newest value of each key in a store. `bearlake up` compacts and cleans the store's changelog. Once each key is
there only once, the server and its worker are killed, and an instance of the application without local state must restore
the same store from what is left.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance import packages, processes
from fixtures.ports import free_port

APPLICATION = "ChangelogApplication"
INPUT, CHANGELOG = "input", "changelog-newest-changelog"
PARTITION_COUNT = 2
RECORD_COUNT = 10_000
KEY_COUNT = 300
TOMBSTONE_RATE = 0.15
PHASES = ("1", "2")
START_TIMEOUT_S = 120
TIMEOUT_S = 240
POLL_S = 0.5
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")
SETTINGS = {"BEARLAKE_COMPACTION__KEY_COMPACTION__CHECK_MS": "500"}

Store = dict[str, str]


class Changelog:
    """One run. Data is in `folder`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, class_path: str, running: ExitStack) -> None:
        self._folder, self._logs, self._class_path, self._running = folder, logs, class_path, running
        self._bootstrap = f"127.0.0.1:{free_port()}"
        self._expected: Store = {}
        self._randomness = random.Random(1)

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        server = self._server()
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(INPUT, PARTITION_COUNT, 1)])[INPUT].result(START_TIMEOUT_S)
        for phase in PHASES:
            self._produce(phase)
            _, store = self._application(phase, f"worked-{phase}")
            if store != self._expected:
                return f"phase {phase}: the store differs from the input in {_differences(store, self._expected)}"
            if not self._waits_for(self._is_cleaned):
                return f"phase {phase}: the changelog still has several records of a key after {TIMEOUT_S} s"
            processes.end_group(server)
            server = self._server()
            restored, store = self._application(phase, f"restored-{phase}")
            if store != self._expected:
                return f"phase {phase}: the restored store differs in {_differences(store, self._expected)}"
            if not len(store) <= restored <= KEY_COUNT + PARTITION_COUNT:
                return f"phase {phase}: {restored} records were restored for {len(store)} keys"
        return ""

    def _produce(self, phase: str) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20})
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
        command = [APPLICATION, self._bootstrap, str(self._folder / name), INPUT, phase]
        process = self._java(name, *command)
        assert process.wait(TIMEOUT_S) == 0, f"{name} ended with {process.returncode}, see {self._logs}"
        lines = [line.split(" ") for line in (self._logs / f"{name}.log").read_text(encoding="utf-8").splitlines()]
        (restored,) = [int(words[1]) for words in lines if words[0] == "RESTORED"]
        return restored, {words[1]: words[2] for words in lines if words[0] == "STORE"}

    def _is_cleaned(self) -> bool:
        """Whether the changelog has at most one record of each key."""
        keys: list[bytes] = []
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "look", "enable.partition.eof": True})
        consumer.assign(
            [TopicPartition(CHANGELOG, partition, OFFSET_BEGINNING) for partition in range(PARTITION_COUNT)]
        )
        ended = 0
        while ended < PARTITION_COUNT:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the changelog cannot be read"
            if message.error():
                ended += 1
            else:
                keys.append(message.key() or b"")
        consumer.close()
        return len(keys) == len(set(keys))

    def _waits_for(self, holds: Callable[[], bool]) -> bool:
        until = time.monotonic() + TIMEOUT_S
        while not holds():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def _server(self) -> "subprocess.Popen[bytes]":
        """Start server and worker, and return when they serve."""
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        ports = [f"--{name}-port=0" for name in ("admin", "rest", "registry", "grpc", "pulsar", "pulsar-http")]
        process = self._start(
            "server",
            [
                *(Path(sys.executable).parent / "bearlake", "up", "--no-tour", "--data-dir", self._folder / "data"),
                *("--kafka-port", self._bootstrap.rpartition(":")[2], "--ready-file", ready, *ports),
            ],
        )
        assert self._waits_for(ready.exists), f"the server does not serve, see {self._logs}"
        return process

    def _java(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        return self._start(name, ["java", *JAVA_OPTIONS, logging, "-cp", self._class_path, *arguments])

    def _start(self, name: str, command: list[str | Path]) -> "subprocess.Popen[bytes]":
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **SETTINGS},
                start_new_session=True,
            )
        self._running.callback(processes.end_group, process)
        return process


def hash_of(key: str) -> int:
    """A number for the key that is the same in every process."""
    return sum(key.encode())


def _differences(found: Store, expected: Store) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return f"{len(keys)} keys, such as {keys[:3]}"
