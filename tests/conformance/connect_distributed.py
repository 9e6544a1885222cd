"""Kafka Connect's distributed worker, whose connectors, offsets and states are in three topics with key compaction.

`bearlake up` compacts and cleans the topics. Once each key is there only once, the server, its worker and Connect are killed. A new Connect
finds its connectors and their offsets in what is left: lines that are appended now arrive, each once, and no earlier line again.
"""

import json
import shutil
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conformance import packages
from conformance.compacting_server import CompactingServer, waits_for
from fixtures.ports import free_port

LINE_COUNT = 2_000
MORE_COUNT = 500
PAUSE_COUNT = 3
TOPIC_NAMES = ("connect-config", "connect-offsets", "connect-status")
REQUEST_TIMEOUT_S = 90
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")

WORKER = """\
bootstrap.servers={bootstrap}
group.id=connect
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-config
config.storage.replication.factor=1
config.storage.min.cleanable.dirty.ratio=0.01
config.storage.table.freshness_ms=200
config.storage.table.on_compaction=latest
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=3
offset.storage.min.cleanable.dirty.ratio=0.01
offset.storage.table.freshness_ms=200
offset.storage.table.on_compaction=latest
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=2
status.storage.min.cleanable.dirty.ratio=0.01
status.storage.table.freshness_ms=200
status.storage.table.on_compaction=latest
offset.flush.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
plugin.path={folder}/plugins
listeners=http://127.0.0.1:{port}
"""


class Distributed:
    """One run. Data is in `folder`, output in `logs`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, running: ExitStack) -> None:
        self._folder, self._logs, self._running = folder, logs, running
        self._server = CompactingServer(folder, logs, running)
        self._port = free_port()
        self._lines: list[str] = []

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        self._write_files()
        self._server.start()
        with ExitStack() as connect:
            self._start_connect(connect)
            self._append(LINE_COUNT)
            for name, configs in self._connectors().items():
                self._ask(f"connectors/{name}/config", "PUT", configs)
            if not waits_for(self._has_all):
                return f"{len(self._read())} of {len(self._lines)} lines have arrived"
            for _ in range(PAUSE_COUNT):  # several versions of states and configs
                self._ask("connectors/source/pause", "PUT")
                waits_for(lambda: self._is("PAUSED", "source"))
                self._ask("connectors/source/resume", "PUT")
                waits_for(lambda: self._is("RUNNING", "source"))
            for topic in TOPIC_NAMES:
                if not waits_for(lambda topic=topic: self._server.has_each_key_once(topic)):  # type: ignore[misc]
                    return f"{topic} still has several records of a key"
        self._server.kill()
        self._server.start()
        with ExitStack() as connect:
            self._start_connect(connect)
            if not waits_for(lambda: self._is("RUNNING", "source") and self._is("RUNNING", "sink")):
                return "the connectors do not run again"
            self._append(MORE_COUNT)
            if not waits_for(self._has_all):
                return f"{len(self._read())} of {len(self._lines)} lines have arrived after the restart"
        arrived = self._read()
        return "" if sorted(arrived) == sorted(self._lines) else f"{len(arrived)} of {len(self._lines)} lines arrived"

    def _connectors(self) -> dict[str, dict[str, str]]:
        kinds = {"source": "FileStreamSourceConnector", "sink": "FileStreamSinkConnector"}
        common = {
            name: {"connector.class": f"org.apache.kafka.connect.file.{kind}", "tasks.max": "1"}
            for name, kind in kinds.items()
        }
        common["source"] |= {"file": str(self._folder / "in.txt"), "topic": "lines"}
        common["sink"] |= {"file": str(self._folder / "out.txt"), "topics": "lines"}
        return common

    def _write_files(self) -> None:
        plugin = self._folder / "plugins" / "file"
        plugin.mkdir(parents=True)
        for jar in packages.obtain_kafka_jars().glob("connect-file-*.jar"):
            shutil.copy(jar, plugin)
        text = WORKER.format(bootstrap=self._server.bootstrap, folder=self._folder, port=self._port)
        (self._folder / "worker.properties").write_text(text, encoding="utf-8")

    def _start_connect(self, running: ExitStack) -> None:
        """Start Connect, which is killed when `running` ends, and return when it answers."""
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        class_path = f"{packages.obtain_kafka_jars()}/*"
        command = ["java", *JAVA_OPTIONS, logging, "-cp", class_path, main, self._folder / "worker.properties"]
        process = self._server.run("connect", command)
        running.callback(process.wait)
        running.callback(process.kill)
        assert waits_for(lambda: self._ask("connectors") is not None), f"Connect does not answer, see {self._logs}"

    def _append(self, count: int) -> None:
        lines = [f"line {len(self._lines) + number}" for number in range(count)]
        self._lines += lines
        with (self._folder / "in.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _read(self) -> list[str]:
        file = self._folder / "out.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def _has_all(self) -> bool:
        return len(self._read()) >= len(self._lines)

    def _is(self, state: str, name: str) -> bool:
        """Whether a connector and its only task have this state."""
        found = self._ask(f"connectors/{name}/status")
        states = [] if found is None else [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
        return states == [state, state]

    def _ask(self, path: str, method: str = "GET", body: dict[str, str] | None = None) -> Any:
        """Return what Connect answers; None if it does not, or refuses because it is starting."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            method=method,
            data=content,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.loads(answer.read() or b"{}")
        except (urllib.error.URLError, ConnectionError):
            return None
