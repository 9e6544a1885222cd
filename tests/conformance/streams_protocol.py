"""An application of Kafka Streams with `group.protocol=streams` (KIP-1071), which servers do not have: its client must say so at once.

The server does not advertise StreamsGroupHeartbeat. So the application's thread ends with an `UnsupportedVersionException`, instead of
waiting for partitions.
"""

from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from conformance import packages
from conformance.compacting_server import CompactingServer

APPLICATION = "StreamsProtocol"
INPUT = "input"
TIMEOUT_S = 120
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC")
REASON = "UnsupportedVersionException"


class StreamsProtocol:
    """One run. Data is in `folder`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, class_path: str, running: ExitStack) -> None:
        self._folder, self._logs, self._class_path = folder, logs, class_path
        self._server = CompactingServer(folder, logs, running)

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        self._server.start()
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap})
        admin.create_topics([NewTopic(INPUT, 1, 1)])[INPUT].result(TIMEOUT_S)
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        arguments = [APPLICATION, self._server.bootstrap, str(self._folder / "state"), INPUT]
        process = self._server.run("application", ["java", *JAVA_OPTIONS, logging, "-cp", self._class_path, *arguments])
        code = process.wait(TIMEOUT_S)
        lines = (self._logs / "application.log").read_text(encoding="utf-8", errors="replace").splitlines()
        reasons = [line for line in lines if line.startswith("FAILED ")]
        if code != 0 or not any(REASON in reason for reason in reasons):
            return f"the application ended with {code} and {reasons}, see {self._logs}"
        return ""
