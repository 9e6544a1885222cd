"""Load by Kafka's own client: an idempotent `VerifiableProducer` from the jars of Maven Central, in a process of its own.

It prints JSON lines with the place of each acknowledged record. Its values are `producer.number`, its keys repeat.
"""

import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance import packages
from conformance.java_tools import SHORT_LIVED, TOOLS
from faults.checking import Acknowledged, Name, name_of
from faults.load import KEY_COUNT, LOG_LINES, client_id

STOP_TIMEOUT_S = 150.0
PROPERTIES = {
    "enable.idempotence": "true",
    "retries": "2147483647",  # the tool itself sets 0, to show every error
    "delivery.timeout.ms": "120000",
    "request.timeout.ms": "30000",
}


class JavaProducer:
    """The producer `number`; looks like `load.Producer`."""

    def __init__(
        self, number: int, bootstrap: str, stream: str, folder: Path, *, per_second: int, zone: str = ""
    ) -> None:
        try:
            self._jars = packages.obtain_kafka_jars()
        except (packages.ToolMissing, packages.ObtainFailed) as absent:
            pytest.skip(str(absent))
        self.name = str(number)
        self.complaints: Counter[str] = Counter()
        self.acknowledged: list[Acknowledged] = []
        self.failed: dict[Name, str] = {}
        self._errors = folder / f"java-{number}.err"
        properties = folder / f"java-{number}.properties"
        lines = {**PROPERTIES, "client.id": client_id(f"java-{number}", zone)}
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._command = [
            "java", *SHORT_LIVED, f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}",
            "-cp", f"{self._jars}/*", f"{TOOLS}.VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", stream,
            "--throughput", str(per_second), "--value-prefix", self.name, "--repeating-keys", str(KEY_COUNT),
            "--command-config", str(properties),
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)

    @property
    def log(self) -> Sequence[str]:
        """The end of what it logged."""
        return self._errors.read_text(errors="replace").splitlines()[-LOG_LINES:]

    @property
    def unknown(self) -> set[Name]:
        """Records whose delivery failed; the tool ends only when it knows of all others."""
        return set(self.failed)

    def start(self) -> None:
        """Start the Java process."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener.start()

    def begin_stop(self) -> None:
        """SIGTERM: it sends what it has, and ends."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Wait for its end."""
        assert self._process is not None
        self.begin_stop()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
        self._listener.join(STOP_TIMEOUT_S)

    def raise_failure(self) -> None:
        """Fail if the program has ended."""
        assert self._process is not None
        assert self._process.poll() is None, f"VerifiableProducer ended: {self._errors.read_text()[-2000:]}"

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._note(json.loads(line) if line.startswith("{") else {})

    def _note(self, said: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if said.get("name") == "producer_send_success":
            name = name_of(said["value"].encode())
            # The program does not report when it sent the record: callers may assume at most one second ago.
            place = said["partition"], said["offset"]
            self.acknowledged.append(Acknowledged(*place, name, now_s - 1.0, now_s, is_sent_told=False))
        elif said.get("name") == "producer_send_error":
            self.failed[name_of(said["value"].encode())] = re.sub(r".*\.", "", said.get("exception", "?"))
