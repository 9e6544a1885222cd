"""The peer of the Pulsar benchmarks: a single-node Apache Pulsar from its published jars, on loopback.

Obtains the jars through Maven as ordinary dependencies (pulsar_pom.xml) into `.cache/bench/`; starts broker, bookie and metadata store in
one process with a heap of 1 GiB, and stops and wipes it. Also runs alone, for trying things out by hand:

    python bench/peer_pulsar.py fetch
    python bench/peer_pulsar.py run --data /dev/shm/p       (prints its addresses, serves until Ctrl-C)
"""

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.java_peer import CACHE, HERE, JavaPeer, free_ports, run_by_hand

from bench import java_peer, pulsar_topics

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


class PulsarPeer(JavaPeer):
    """One broker with its data below `directory`; `settings` are added to standalone.conf and override its values."""

    name = "pulsar"
    title = "Pulsar"
    jars = JARS
    kept_log = CACHE / "pulsar-broker.log"
    remaining_bytes_max = 2 << 30  # the current journal and entry logs remain
    removal_timeout_s = 40

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        super().__init__(directory, settings, port)
        self.http = ""

    @property
    def where(self) -> str:
        """Addresses of both protocols."""
        return f"{self.address}, {self.http}"

    def start(self) -> None:
        """See `JavaPeer.start`."""
        fetch_jars()
        self._prepare()
        free, http = free_ports()
        port = self._port or free
        config = self._write_config("standalone.conf", _properties(port, http))
        words = ["--config", str(config), "-nfw", "-nss", "-a", "127.0.0.1"]
        words += ["--metadata-dir", str(self.directory / "metadata")]
        words += ["--bookkeeper-dir", str(self.directory / "bookie")]
        options = (f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-XX:MaxDirectMemorySize={DIRECT_MEMORY}", *JVM_OPTIONS)
        self.address, self.http = f"127.0.0.1:{port}", f"http://127.0.0.1:{http}"
        command = self._java("org.apache.pulsar.PulsarStandaloneStarter", *words, options=options)
        self._serve(command, lambda: pulsar_topics.is_served(self.http))


def fetch_jars() -> None:
    """Obtain the jars of pulsar_pom.xml."""
    java_peer.fetch_jars(POM, JARS)


def _properties(port: int, http: int) -> dict[str, str]:
    """A single node with defaults, except one copy of the data, on a bookie in the same process that deletes data soon."""
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
        # as large as Pulsar's largest message with its frame; otherwise broker and bookie retry such an entry forever
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
    run_by_hand(
        __doc__,
        "standalone.conf",
        fetch_jars,
        lambda directory, settings, port: PulsarPeer(directory, settings=settings, port=port),
    )


if __name__ == "__main__":
    main()
