"""A Pulsar server gets SIGTERM while a client sends a message each millisecond and consumes it: what the client observes.

No error, no loss, no duplicate; reports the longest gaps. By the Python client (C++ underneath) and the Java
client. A calm machine's figures are those of `bench/pulsar.py`.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from conformance import packages
from conformance.java_tools import SHORT_LIVED
from faults.cluster import Cluster, Server, Stores, running
from faults.waiting import pause, until

pulsar = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

from faults.pulsar_load import PulsarConsumer, PulsarProducer, served_by  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

JAVA_SOURCES = Path(__file__).resolve().parents[1] / "clients" / "pulsar_java"
TIMEOUT_S = 90.0
GAP_MS_MAX = 10_000
"""Far above figures on an idle machine: the test fails if a move does not work, not if it is slow."""

Tell = Callable[[object], None]


class Outcome(NamedTuple):
    """The program's observations: counts, and the longest times without a receipt and without a message since the last mark."""

    sent: int
    failed: int
    receipts: int
    receipts_twice: int
    receipts_gap_ms: int
    messages: int
    messages_twice: int
    messages_gap_ms: int


class Traffic(Protocol):
    """A producer and a Shared consumer at work."""

    def mark(self) -> None:
        """Begin a new measurement of gaps."""

    def stop(self) -> Outcome:
        """Let pending operations finish."""

    def close(self) -> None:
        """End at once, if it runs."""


class PythonTraffic:
    """By threads of this process."""

    def __init__(self, addresses: list[str], topic: str, folder: Path) -> None:
        self._producer = PulsarProducer("python", addresses, topic, folder, per_second=1000)
        self._consumer = PulsarConsumer(
            "reader", addresses, topic, folder, subscription="python", kind=pulsar.ConsumerType.Shared
        )
        self._since_s = 0.0
        for client in (self._consumer, self._producer):
            client.start()
        until(self._is_moving, TIMEOUT_S, "messages come back")

    def _is_moving(self) -> bool:
        self._producer.raise_failure()
        self._consumer.raise_failure()
        return len(self._consumer.read) > 0

    def mark(self) -> None:
        """Measure gaps from now on."""
        self._since_s = time.monotonic()

    def stop(self) -> Outcome:
        """Stop sending, receive the rest, and return the counts."""
        self._producer.stop()
        numbers: set[int] = set()

        def is_complete() -> bool:
            self._consumer.raise_failure()
            numbers.update(read.name.number for read in list(self._consumer.read))
            return len(numbers) >= self._producer.sent_count - len(self._producer.failed)

        until(is_complete, TIMEOUT_S, "all messages come")
        self._consumer.stop()
        receipts = [record.at_s for record in self._producer.acknowledged]
        reads = self._consumer.read
        return Outcome(
            sent=self._producer.sent_count,
            failed=len(self._producer.failed),
            receipts=self._producer.acknowledged_count,
            receipts_twice=self._producer.acknowledged_count
            - len({record.name for record in self._producer.acknowledged}),
            receipts_gap_ms=self._gap_ms(receipts),
            messages=len(numbers),
            messages_twice=len(reads) - len(numbers),
            messages_gap_ms=self._gap_ms([read.at_s for read in reads]),
        )

    def close(self) -> None:
        """Let the clients end without waiting for them."""
        self._producer.begin_stop()
        self._consumer.begin_stop()

    def _gap_ms(self, at_s: list[float]) -> int:
        return round(max(after - before for before, after in pairwise(at_s) if after > self._since_s) * 1000)


class JavaTraffic:
    """By a process of its own."""

    def __init__(self, addresses: list[str], topic: str, folder: Path) -> None:
        try:
            jars = packages.obtain_jars(JAVA_SOURCES / "pom.xml", "pulsar-jars")
            classes = packages.obtain_java_program(JAVA_SOURCES, jars)
        except (packages.ToolMissing, packages.ObtainFailed) as absent:
            pytest.skip(f"PULSAR'S JAVA CLIENT NOT TESTED: {absent}")
        log = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        url = "pulsar://" + ",".join(addresses)
        command = ["java", *SHORT_LIVED, log, "-cp", f"{classes}:{jars}/*", "PulsarTraffic", url, topic]
        with (folder / "java.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        assert self._said() == "running"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def mark(self) -> None:
        """Measure gaps from now on."""
        self._tell("mark")

    def _tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")

    def stop(self) -> Outcome:
        """Stop sending, receive the rest, and return the counts."""
        self._tell("stop")
        words = self._said().split()
        counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return Outcome(**{name.replace("-", "_"): count for name, count in counts.items()})

    def close(self) -> None:
        """Let the clients end without waiting for them."""
        with self._process as process:
            process.kill()


@pytest.fixture
def cluster(folder: Path, stores: Stores) -> Iterator[Cluster]:
    """Two servers."""
    # Clients on a busy machine send their grouped acknowledgements late.
    patient = {"streams.subscriptions.last_ack_wait_ms": 5_000}
    with running(Cluster(folder, stores, patient)) as made:
        for name in ("one", "two"):
            made.add(name, role="pulsar").start()
        yield made


def serving(cluster: Cluster, topic: str) -> Server:
    """The server that look-ups name for a topic."""
    address = served_by(cluster["one"], topic)
    return next(server for server in cluster.servers.values() if server.address("pulsar") == address)


@pytest.mark.parametrize("client", [PythonTraffic, JavaTraffic], ids=["python", "java"])
def test_a_move_is_a_short_gap(
    client: Callable[..., Traffic], cluster: Cluster, folder: Path, load_s: float, tell: Tell
) -> None:
    addresses = [server.address("pulsar") for server in cluster.servers.values()]
    traffic = client(addresses, "moved", folder)
    try:
        pause(load_s)
        leaving = serving(cluster, "moved")
        traffic.mark()
        ended_s = leaving.terminate()
        pause(load_s / 2)
        outcome = traffic.stop()
    finally:
        traffic.close()

    tell(f"{client.__name__}: {outcome}; the server ended after {ended_s:.1f} s")
    assert (outcome.failed, outcome.receipts_twice, outcome.messages_twice) == (0, 0, 0)
    assert outcome.sent == outcome.receipts == outcome.messages
    assert max(outcome.receipts_gap_ms, outcome.messages_gap_ms) < GAP_MS_MAX
