"""`bearlake up` with its compaction worker, which cleans soon, for tests of what clients keep in topics with key compaction."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from conformance import processes
from fixtures.ports import free_port

TIMEOUT_S = 240
POLL_S = 0.5
SETTINGS = {"BEARLAKE_COMPACTION__KEY_COMPACTION__CHECK_MS": "500"}


class CompactingServer:
    """The server and what runs beside it. Data is in `folder`, output in `logs`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, running: ExitStack) -> None:
        self._folder, self._logs, self._running = folder, logs, running
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = f"127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Start server and worker, and return when they serve."""
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        ports = [
            f"--{name}-port=0" for name in ("admin", "rest", "registry", "catalog", "grpc", "pulsar", "pulsar-http")
        ]
        command = [
            *(Path(sys.executable).parent / "bearlake", "up", "--no-tour", "--data-dir", self._folder / "data"),
            *("--kafka-port", self.bootstrap.rpartition(":")[2], "--ready-file", ready, *ports),
        ]
        self._process = self.run("server", command, SETTINGS)
        assert waits_for(ready.exists), f"the server does not serve, see {self._logs}"

    def kill(self) -> None:
        """Kill server and worker."""
        assert self._process is not None
        processes.end_group(self._process)

    def run(
        self, name: str, command: list[str | Path], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start another program, with its output in `NAME.log`."""
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._running.callback(processes.end_group, process)
        return process

    def has_each_key_once(self, topic: str) -> bool:
        """Whether no partition of the topic has two records of a key."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "look", "enable.partition.eof": True})
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: list[tuple[int | None, bytes | str | None]] = []
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic} cannot be read"
            if message.error():
                ended += 1
            else:
                found.append((message.partition(), message.key()))
        consumer.close()
        return len(found) == len(set(found))


def waits_for(holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> bool:
    """Wait until `holds()`; return whether it did in time."""
    until = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
