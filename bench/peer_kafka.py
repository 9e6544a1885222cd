"""The peer: a single-node Apache Kafka from its published jars, on loopback.

Obtains the jars through Maven as ordinary dependencies (pom.xml) into `.cache/bench/`, formats a log directory, starts
broker and controller in one process with a heap of 1 GiB and Kafka's own garbage collector settings, and stops and wipes it. Also runs
alone, for trying things out by hand:

    python bench/peer_kafka.py fetch
    python bench/peer_kafka.py run --data /dev/shm/k        (prints its address, serves until Ctrl-C)
"""

import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.java_peer import CACHE, HERE, START_TIMEOUT_S, JavaPeer, free_ports, run_by_hand

from bench import java_peer

JARS = CACHE / "kafka"
HEAP = "1g"
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
CLUSTER_ID = "QmVhcmxha2VCZW5jaFBlZQ"  # 22 characters of base64; must not begin with "-", which would be an option
API_VERSIONS_V0 = b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\2ok"


class KafkaPeer(JavaPeer):
    """One broker with its data below `directory`; `settings` are added to server.properties and override its values."""

    name = "kafka"
    title = "Kafka"
    jars = JARS
    kept_log = CACHE / "broker.log"
    remaining_bytes_max = 256 << 20  # a few segments and indexes remain
    removal_timeout_s = 20

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        super().__init__(directory, settings, port)

    def start(self) -> None:
        """Format and start; see `JavaPeer.start`."""
        fetch_jars()
        self._prepare()
        logs = self.directory / "logs"
        free, controller = free_ports()
        port = self._port or free
        self._serve_broker(port, properties_of(port, controller, logs), ("--standalone",))

    def _serve_broker(self, port: int, properties: Mapping[str, str], format_options: Sequence[str] = ()) -> None:
        """Format the log directory unless that is done, and start; returns once ApiVersions is answered."""
        path = self._write_config("server.properties", properties)
        if not (Path(properties["log.dirs"]) / "meta.properties").exists():
            storage = ["kafka.tools.StorageTool", "format", *format_options, "-t", CLUSTER_ID, "-c", str(path)]
            subprocess.run(self._java(*storage), check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)
        self.address = f"127.0.0.1:{port}"
        options = (f"-Xms{HEAP}", f"-Xmx{HEAP}", *JVM_OPTIONS)
        self._serve(self._java("kafka.Kafka", str(path), options=options), lambda: _is_serving(port))


def fetch_jars() -> None:
    """Obtain the jars of pom.xml."""
    java_peer.fetch_jars(HERE / "pom.xml", JARS)


def _is_serving(port: int) -> bool:
    """Whether ApiVersions is answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(API_VERSIONS_V0)
            return len(connection.recv(10)) == 10
    except OSError:
        return False


def properties_of(port: int, controller: int, logs: Path) -> dict[str, str]:
    """A single node with defaults, but replication factors of 1 and deleted segments removed at once."""
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(logs),
        "log.segment.delete.delay.ms": "100",
        "log.initial.task.delay.ms": "100",  # otherwise nothing is removed in the first 30 s
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "num.partitions": "4",
    }


def main() -> None:
    """Command line: see the head of the file."""
    run_by_hand(
        __doc__,
        "server.properties",
        fetch_jars,
        lambda directory, settings, port: KafkaPeer(directory, settings=settings, port=port),
    )


if __name__ == "__main__":
    main()
