"""The peer: a single-node Apache Kafka from its published jars, on loopback.

Obtains the jars through Maven as ordinary dependencies (pom.xml) into `.cache/bench/`, formats a log directory, starts
broker and controller in one process with a heap of 1 GiB and Kafka's own garbage collector settings, and stops and wipes it. Also runs
alone, for trying things out by hand:

    python bench/peer_kafka.py fetch
    python bench/peer_kafka.py run --data /dev/shm/k        (prints its address, serves until Ctrl-C)
"""

import argparse
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.errors import BenchError

from bench import processes

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "bench"
JARS = CACHE / "kafka"
HEAP = "1g"
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
START_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 20
SETTLED_BYTES = 256 << 20
"""Data directory size below which deleted topics count as gone (a few segments and indexes remain)."""
CLUSTER_ID = "QmVhcmxha2VCZW5jaFBlZQ"  # 22 characters of base64; must not begin with "-", which would be an option
END_SIGNALS = {signal.SIGINT, signal.SIGTERM}
API_VERSIONS_V0 = b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\2ok"
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = out
appender.console.type = Console
appender.console.name = out
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
"""


class KafkaPeer:
    """One broker with its data below `directory`; `settings` are added to server.properties and win."""

    name = "kafka"

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.directory = directory
        self._settings = dict(settings or {})
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    @property
    def pid(self) -> int:
        """Process id of the broker; it must have been started."""
        if self._process is None:
            raise BenchError("the Kafka broker was not started")
        return self._process.pid

    def start(self) -> None:
        """Format and start; returns once the broker answers. Raises BenchError with the log's place if it does not."""
        fetch_jars()
        logs = self.directory / "logs"
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOGGING)
        broker, controller = free_ports()
        broker = self._port or broker
        properties = self.directory / "server.properties"
        lines = (_properties(broker, controller, logs) | self._settings).items()
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines))
        if not (logs / "meta.properties").exists():
            storage = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(properties)]
            subprocess.run(self._java(*storage), check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(properties), options=(f"-Xms{HEAP}", f"-Xmx{HEAP}", *JVM_OPTIONS)),
                stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        self.address = f"127.0.0.1:{broker}"
        try:
            self._wait_until_serving(broker)
        except BaseException:
            processes.stop(self._process)
            raise

    def stop(self) -> None:
        """Stop the broker and wipe its data; nothing happens when it does not run."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def settle(self) -> None:
        """Wait until the segments of deleted topics are gone, so that their removal is not part of the next run."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while processes.directory_bytes(self.directory) > SETTLED_BYTES:
            if time.monotonic() > end:
                raise BenchError(f"Kafka did not remove deleted topics from {self.directory}")
            time.sleep(0.2)

    def counters(self) -> None:
        """Kafka has no object store to count."""
        return

    @property
    def _log_path(self) -> Path:
        return self.directory / "broker.log"

    def _java(self, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return ["java", *options, logging, "-cp", f"{JARS}/*", *words]

    def _wait_until_serving(self, port: int) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if not processes.is_alive(self.pid):
                raise BenchError(f"the Kafka broker ended; see {self._save_log()}")
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as connection:
                    connection.settimeout(2)
                    connection.sendall(API_VERSIONS_V0)
                    if len(connection.recv(10)) == 10:
                        return
            except OSError:
                time.sleep(0.05)
        raise BenchError(f"the Kafka broker does not answer; see {self._save_log()}")

    def _save_log(self) -> Path:
        """Copy the log out of the data directory, which will be wiped."""
        kept = CACHE / "broker.log"
        shutil.copyfile(self._log_path, kept)
        return kept


def fetch_jars() -> None:
    """Copy the jars of pom.xml into `.cache/bench/kafka`, unless the ones of this very pom.xml are there."""
    stamp = JARS / "pom.xml"
    pom = HERE / "pom.xml"
    if stamp.exists() and stamp.read_bytes() == pom.read_bytes():
        return
    if not shutil.which("mvn") or not shutil.which("java"):
        raise BenchError("the peer needs Maven and Java 17: install them, or measure with --side bearlake")
    shutil.rmtree(JARS, ignore_errors=True)
    copy = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*copy, f"-DoutputDirectory={JARS}"], check=True, timeout=600)
    shutil.copyfile(pom, stamp)


def free_ports() -> tuple[int, int]:
    """Two ports of the loopback address that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _properties(port: int, controller: int, logs: Path) -> dict[str, str]:
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
        "log.initial.task.delay.ms": "100",  # else nothing is removed in the first 30 s
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="only obtain the jars")
    run = commands.add_parser("run", help="serve until Ctrl-C, then wipe the data")
    run.add_argument("--data", type=Path, required=True, help="directory of its own: it is wiped at the end")
    run.add_argument("--port", type=int, default=0)
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="line of server.properties")
    options = parser.parse_args()
    if options.command == "fetch":
        fetch_jars()
        return
    if options.data.exists():
        sys.exit(f"{options.data} exists; name a new directory, it is wiped at the end")
    peer = KafkaPeer(options.data, settings=dict(line.split("=", 1) for line in options.set), port=options.port)
    try:
        peer.start()
        print(f"Kafka at {peer.address}, pid {peer.pid}; Ctrl-C stops it and wipes {options.data}", flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        signal.sigwait(END_SIGNALS)
    finally:
        peer.stop()


if __name__ == "__main__":
    main()
