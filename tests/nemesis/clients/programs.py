"""Idempotent producers of Kafka's Java client and of franz-go, as programs that this process controls.

A program reads `NUMBER PARTITION TIMESTAMP_MS KEY VALUE` lines from standard input, sends each record, and writes `ok NUMBER OFFSET` or
`error NUMBER REASON` to standard output. So the history has every record before the program gets it.
"""

import contextlib
import subprocess
import threading
import time
from collections.abc import Sequence

from conformance import packages
from conformance.java_tools import SHORT_LIVED
from nemesis import tools
from nemesis.recording import digest
from nemesis.script import STREAM, Script

JAVA_SOURCE = tools.FRANZ_GO.parent / "java" / "KafkaLoad.java"
KEY_COUNT = 48
CLOSE_S = 20.0
DEFINITE = ("RecordTooLargeException", "MESSAGE_TOO_LARGE")


def produce_by_java(script: Script) -> None:
    """Produce with Kafka's Java client."""
    jars = packages.obtain_kafka_jars()
    logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    _produce(script, ["java", *SHORT_LIVED, logging, "-cp", f"{jars}/*", str(JAVA_SOURCE)], life_s=40.0)


def produce_by_franz_go(script: Script) -> None:
    """Produce with franz-go."""
    _produce(script, [str(tools.obtain_franz_go())], life_s=15.0)


def _produce(script: Script, command: Sequence[str], *, life_s: float) -> None:
    pace, number, life = script.pace(), 0, 0
    while script.is_running:
        life += 1
        program = _Program(script, f"{script.life}-{life}", command)
        pace.burst()
        end_s = time.monotonic() + life_s * script.random.uniform(0.3, 2.0)
        while script.is_running and time.monotonic() < end_s and program.is_alive:
            program.send(number)
            number += 1
            pace.step()
        program.close()


class _Program:
    """One process of the program with one producer."""

    def __init__(self, script: Script, name: str, command: Sequence[str]) -> None:
        self._history, self._name = script.history, name
        self._partition_count = script.partition_count
        self._sequences = [0] * script.partition_count
        self._operations: dict[int, int] = {}
        self._process = subprocess.Popen(
            [*command, ",".join(script.addresses("kafka")), STREAM, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: int) -> None:
        """Send one record."""
        assert self._process.stdin is not None
        key = f"key-{number % KEY_COUNT}"
        partition = number % KEY_COUNT % self._partition_count
        value, timestamp_ms = f"{self._name}.{number}.{partition}", int(time.time() * 1000)
        self._operations[number] = self._history.invoke(
            "produce", log=(STREAM, partition), producer=self._name, kind="idempotent",
            sequence=self._sequences[partition],
            records=[[value, digest(key.encode(), value.encode(), (), timestamp_ms)]],
        )  # fmt: skip
        self._sequences[partition] += 1
        try:
            self._process.stdin.write(f"{number} {partition} {timestamp_ms} {key} {value}\n")
        except BrokenPipeError:
            self._history.note("the program ended")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, number, rest = [*line.rstrip("\n").split(" ", 2), "", ""][:3]
            operation = self._operations.pop(int(number), None)
            if operation is None:
                continue
            if word == "ok":
                self._history.ok(operation, offset=int(rest) if int(rest) >= 0 else None)
            elif any(name in rest for name in DEFINITE):
                self._history.fail(operation, rest)
            else:
                self._history.unknown(operation, rest)
                self._history.note(f"delivery {rest.split(':')[0]}")

    def close(self) -> None:
        """Close the program's input, so that it sends its remaining records and ends; records without an answer are unknown."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(CLOSE_S)
        self._listener.join(CLOSE_S)
