"""The peer of the Pulsar benchmarks: a single-node Apache Pulsar from its published jars, on loopback.

Obtains the jars through Maven as ordinary dependencies (pulsar_pom.xml) into `.cache/bench/`; starts broker, bookie and metadata store in
one process with a heap of 1 GiB, and stops and wipes it. Also runs alone, for trying things out by hand:

    python bench/peer_pulsar.py fetch
    python bench/peer_pulsar.py run --data /dev/shm/p       (prints its addresses, serves until Ctrl-C)
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.errors import BenchError
from bench.peer_kafka import CACHE, END_SIGNALS, LOGGING, free_ports

from bench import processes, pulsar_topics

HERE = Path(__file__).resolve().parent
JARS = CACHE / "pulsar"
POM = HERE / "pulsar_pom.xml"
HEAP = "1g"
DIRECT_MEMORY = "2g"
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_OPENED = (
    "java.base/java.io", "java.base/java.nio", "java.base/java.util.zip", "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform", "java.base/sun.net", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
JVM_OPTIONS = (
    "-XX:+UseZGC",
    *(word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j.shutdownHookEnabled=false",
    f"-Dbookkeeper.metadata.bookie.drivers={_DRIVERS}BookieDriver",
    f"-Dbookkeeper.metadata.client.drivers={_DRIVERS}ClientDriver",
)
START_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 40
SETTLED_BYTES = 2 << 30
"""Data directory size below which deleted topics count as gone: the journal and the entry logs that are being written remain."""


class PulsarPeer:
    """One broker with its data below `directory`; `settings` are added to standalone.conf and win."""

    name = "pulsar"

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.http = ""

    @property
    def pid(self) -> int:
        """Process id of the broker; it must have been started."""
        if self._process is None:
            raise BenchError("the Pulsar broker was not started")
        return self._process.pid

    def start(self) -> None:
        """Start; returns once the broker serves. Raises BenchError with the log's place if it does not."""
        fetch_jars()
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOGGING)
        port, http = free_ports()
        config = self.directory / "standalone.conf"
        config.write_text(
            "".join(f"{key}={value}\n" for key, value in (_properties(port, http) | self._settings).items())
        )
        stores = [
            "--metadata-dir",
            str(self.directory / "metadata"),
            "--bookkeeper-dir",
            str(self.directory / "bookie"),
        ]
        words = ["--config", str(config), "-nfw", "-nss", "-a", "127.0.0.1", *stores]
        memory = (f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-XX:MaxDirectMemorySize={DIRECT_MEMORY}")
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("org.apache.pulsar.PulsarStandaloneStarter", *words, options=(*memory, *JVM_OPTIONS)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        self.address, self.http = f"127.0.0.1:{port}", f"http://127.0.0.1:{http}"
        try:
            self._wait_until_serving()
        except BaseException:
            processes.stop(self._process)
            raise

    def stop(self) -> None:
        """Stop the broker and wipe its data; nothing happens when it does not run."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
            self._save_log()
        shutil.rmtree(self.directory, ignore_errors=True)

    def settle(self) -> None:
        """Wait until the ledgers of deleted topics are gone, so that their removal is not part of the next run."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while processes.directory_bytes(self.directory) > SETTLED_BYTES:
            if time.monotonic() > end:
                raise BenchError(f"Pulsar did not remove deleted topics from {self.directory}")
            time.sleep(0.2)

    def counters(self) -> None:
        """Pulsar has no object store to count."""
        return

    @property
    def _log_path(self) -> Path:
        return self.directory / "broker.log"

    def _java(self, *words: str, options: tuple[str, ...]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return ["java", *options, logging, "-cp", f"{JARS}/*", *words]

    def _wait_until_serving(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if not processes.is_alive(self.pid):
                raise BenchError(f"the Pulsar broker ended; see {self._save_log()}")
            if pulsar_topics.is_served(self.http):
                return
            time.sleep(0.1)
        raise BenchError(f"the Pulsar broker does not answer; see {self._save_log()}")

    def _save_log(self) -> Path:
        """Copy the log out of the data directory, which will be wiped."""
        kept = CACHE / "pulsar-broker.log"
        shutil.copyfile(self._log_path, kept)
        return kept


def fetch_jars() -> None:
    """Copy the jars of pulsar_pom.xml into `.cache/bench/pulsar`, unless the ones of this very file are there."""
    stamp = JARS / "pom.xml"
    if stamp.exists() and stamp.read_bytes() == POM.read_bytes():
        return
    if not shutil.which("mvn") or not shutil.which("java"):
        raise BenchError("the peer needs Maven and Java 17: install them, or measure with --side bearlake")
    shutil.rmtree(JARS, ignore_errors=True)
    copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*copy, f"-DoutputDirectory={JARS}"], check=True, timeout=600)
    shutil.copyfile(POM, stamp)


def _properties(port: int, http: int) -> dict[str, str]:
    """A single node with defaults, but one copy of the data, on a bookie in the same process that gives deleted data back soon."""
    return {
        "clusterName": "standalone",
        "brokerServicePort": str(port),
        "webServicePort": str(http),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "loadBalancerEnabled": "false",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        # as large as Pulsar's largest message with its frame: else one such entry makes broker and bookie try for ever
        "nettyMaxFrameSizeBytes": str(5 * 1024 * 1024 + 10 * 1024),
        "journalSyncData": "false",
        "journalMaxSizeMB": "256",
        "journalMaxBackups": "0",
        "gcWaitTime": "5000",
        "logSizeLimit": str(256 << 20),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "managedLedgerMaxSizePerLedgerMbytes": "512",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
        "dbStorage_writeCacheMaxSizeMb": "128",
        "dbStorage_readAheadCacheMaxSizeMb": "64",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }


def main() -> None:
    """Command line: see the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="only obtain the jars")
    run = commands.add_parser("run", help="serve until Ctrl-C, then wipe the data")
    run.add_argument("--data", type=Path, required=True, help="directory of its own: it is wiped at the end")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="line of standalone.conf")
    options = parser.parse_args()
    if options.command == "fetch":
        fetch_jars()
        return
    if options.data.exists():
        sys.exit(f"{options.data} exists; name a new directory, it is wiped at the end")
    peer = PulsarPeer(options.data, settings=dict(line.split("=", 1) for line in options.set))
    try:
        peer.start()
        print(
            f"Pulsar at {peer.address}, {peer.http}, pid {peer.pid}; Ctrl-C stops it and wipes {options.data}",
            flush=True,
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        signal.sigwait(END_SIGNALS)
    finally:
        peer.stop()


if __name__ == "__main__":
    main()
