"""Kafka Streams: its authors' smoke test with `exactly_once_v2`, while servers and an instance of the application are killed.

`streams_changelog.py` and `streams_protocol.py` have the other tests.

A driver writes 20,000 records in 90 seconds. Two instances of an application (`StreamsSmokeTest process`) count, sum, join and window
them with state stores, so they use transactions, changelog topics and repartition topics. When they have nothing left to do, the driver
reads the results, and compares them with those that it has worked out itself: none may be missing or wrong.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from conformance import packages, processes
from conformance.outcomes import Context, Outcome
from conformance.streams_changelog import Changelog
from conformance.streams_protocol import StreamsProtocol
from fixtures.ports import free_port

SOURCES = Path(__file__).resolve().parent / "streams"
SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")
TOPICS = (
    *("data", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed"),
    *("dif", "cnt", "avg", "wcnt", "tagg"),
)
PARTITION_COUNT = 5
SERVER_COUNT = 3
START_TIMEOUT_S = 60
TIMEOUT_S = 540
WRITING_S = 90
SECOND_INSTANCE_S = 20
"""When the second instance joins, in seconds after the driver's start."""
KILLS_S = (30, 45, 60, 75, 90)
"""When a server is killed."""
INSTANCE_KILL_S = 52
POLL_S = 0.5
PROPERTIES = """\
bootstrap.servers={bootstrap}
state.dir={state}
processing.guarantee=exactly_once_v2
num.stream.threads=3
"""
CLASSIC_PROPERTIES = """\
acceptable.recovery.lag=9223372036854775807
session.timeout.ms=10000
"""


def run(context: Context) -> Iterator[Outcome]:
    """Run the tests one after the other."""
    jars = packages.obtain_jars(SOURCES / "pom.xml", "streams-jars")
    class_path = f"{packages.obtain_java_program(SOURCES, jars)}:{jars}/*"
    for name in context.selected():
        logs = context.logs / "streams" / name
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bearlake-conformance-") as folder, ExitStack() as running:
            test = TESTS[name](Path(folder), logs, class_path, running)
            problem = test.run()
        yield Outcome(test=name, state="fail" if problem else "pass", seconds=time.monotonic() - begin, note=problem)


class _Smoke:
    """One run. Data is in `folder`; `running` ends all processes."""

    properties = PROPERTIES + CLASSIC_PROPERTIES

    def __init__(self, folder: Path, logs: Path, class_path: str, running: ExitStack) -> None:
        self._folder, self._logs, self._class_path, self._running = folder, logs, class_path, running
        self._ports = [free_port() for _ in range(SERVER_COUNT)]
        self._bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def run(self) -> str:
        """Return what went wrong, or nothing."""
        servers = [self._server(number) for number in range(SERVER_COUNT)]
        self._create_topics()
        first = self._instance(1)
        driver = self._java("driver", "SmokeDriver", self._bootstrap, str(WRITING_S))
        begin = time.monotonic()
        kills, instance_kills = list(KILLS_S), [INSTANCE_KILL_S]
        joins = [SECOND_INSTANCE_S]
        while driver.poll() is None:
            elapsed_s = time.monotonic() - begin
            if elapsed_s > TIMEOUT_S:
                return f"the driver did not end in {TIMEOUT_S} s, see {self._logs}"
            if joins and elapsed_s > joins[0]:
                joins.pop()
                self._instance(2)
            if instance_kills and elapsed_s > instance_kills[0]:
                instance_kills.pop()
                processes.end_group(first)
                self._instance(1)
            if kills and elapsed_s > kills[0]:
                number = (len(KILLS_S) - len(kills)) % SERVER_COUNT
                kills.pop(0)
                processes.end_group(servers[number])
                servers[number] = self._server(number)
            time.sleep(POLL_S)
        lines = (self._logs / "driver.log").read_text(encoding="utf-8", errors="replace").splitlines()
        is_right = driver.returncode == 0 and "SUCCESS" in lines and "ALL-RECORDS-DELIVERED" in lines
        return "" if is_right else f"the driver ended with {driver.returncode}, see {self._logs}"

    def _server(self, number: int) -> subprocess.Popen[bytes]:
        """Start a server, and return when it serves."""
        ready = self._folder / f"ready-{number}.json"
        ready.unlink(missing_ok=True)
        process = self._start(
            f"server-{number}",
            [
                *(Path(sys.executable).parent / "bearlake", "serve", "kafka", "--name", f"k{number}"),
                *("--kafka-port", str(self._ports[number]), "--admin-port", "0", "--ready-file", ready),
                *("--metadata-url", f"sqlite:///{self._folder}/metadata.db"),
                *("--object-store-url", f"file://{self._folder}/objects"),
            ],
        )
        for _ in range(int(START_TIMEOUT_S / POLL_S)):
            if ready.exists():
                return process
            time.sleep(POLL_S)
        raise TimeoutError(f"server {number} does not serve after {START_TIMEOUT_S} s, see {self._logs}")

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topics = [NewTopic(name, num_partitions=PARTITION_COUNT, replication_factor=1) for name in TOPICS]
        for created in admin.create_topics(topics).values():
            created.result(START_TIMEOUT_S)

    def _instance(self, number: int) -> subprocess.Popen[bytes]:
        """Start an instance of the application. It keeps its state for a later one of the same number."""
        properties = self._folder / f"instance-{number}.properties"
        text = self.properties.format(bootstrap=self._bootstrap, state=self._folder / f"instance-{number}")
        properties.write_text(text, encoding="utf-8")
        return self._java(f"instance-{number}", SMOKE_TEST, str(properties), "process")

    def _java(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        return self._start(name, ["java", *JAVA_OPTIONS, logging, "-cp", self._class_path, main, *arguments])

    def _start(self, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._running.callback(processes.end_group, process)
        return process


class _StreamsGroupSmoke(_Smoke):
    """The same with a streams group (KIP-1071)."""

    properties = PROPERTIES + "group.protocol=streams\n"


TESTS: dict[str, type[_Smoke | Changelog | StreamsProtocol]] = {
    "exactly_once_v2_with_kills": _Smoke,
    "exactly_once_v2_with_kills_in_a_streams_group": _StreamsGroupSmoke,
    "restore_from_a_compacted_changelog": Changelog,
    "streams_protocol_with_kills": StreamsProtocol,
}
