"""Kafka Connect with the file connectors: lines of a file → topic → another file.

`connect_distributed.py` has the distributed worker; the others are standalone (`connect_standalone.py`).

20,000 lines make the round trip; then the worker is started again after 1,000 more lines were appended, and only those
may be sent: source offsets come from Connect's own file, sink offsets from the sink's consumer group.
"""

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conformance import packages
from conformance.connect_distributed import Distributed
from conformance.connect_standalone import worker
from conformance.outcomes import Context, Outcome

DISTRIBUTED = "distributed_on_compacted_topics"
LINE_COUNT = 20_000
MORE_COUNT = 1_000
TIMEOUT_S = 90
POLL_INTERVAL_S = 0.2

WORKER = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=1000
plugin.path={directory}/plugins
listeners=http://127.0.0.1:{port}
"""
SOURCE = """\
name={name}-source
connector.class=org.apache.kafka.connect.file.FileStreamSourceConnector
tasks.max=1
file={directory}/in.txt
topic={name}
"""
SINK = """\
name={name}-sink
connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector
tasks.max=1
file={directory}/out.txt
topics={name}
"""


def run(context: Context) -> Iterator[Outcome]:
    """Run the cases. The first two share one directory: the second continues where the first stopped."""
    directory = context.logs / "connect"
    shutil.rmtree(directory, ignore_errors=True)
    _write_files(directory, context.bootstrap, f"conformance-connect-{uuid.uuid4().hex[:8]}")
    written: list[str] = []
    for name, count in (("file_round_trip", LINE_COUNT), ("restart_continues", MORE_COUNT)):
        begin = time.monotonic()
        lines = [f"line {len(written) + number} {'x' * (number % 50)}" for number in range(count)]
        written += lines
        with (directory / "in.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        problem = _wait_for_lines(directory, written, directory / f"{name}.log")
        seconds = time.monotonic() - begin
        yield Outcome(test=name, state="fail" if problem else "pass", seconds=seconds, note=problem)
    if DISTRIBUTED in context.selected():
        begin = time.monotonic()
        logs = directory / DISTRIBUTED
        logs.mkdir()
        with tempfile.TemporaryDirectory(prefix="bearlake-conformance-") as folder, ExitStack() as running:
            problem = Distributed(Path(folder), logs, running).run()
        seconds = time.monotonic() - begin
        yield Outcome(test=DISTRIBUTED, state="fail" if problem else "pass", seconds=seconds, note=problem)


def _wait_for_lines(directory: Path, written: list[str], log: Path) -> str:
    """Run a worker until the sink's file holds `written`, each line once; returns the failure, or nothing."""
    with worker(directory, ("source", "sink"), log) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and len(_read(directory)) < len(written):
            try:
                return f"the worker ended with {process.wait(timeout=POLL_INTERVAL_S)}, see {log}"
            except subprocess.TimeoutExpired:
                continue
        if not _stop_connectors(directory):
            return f"the connectors do not stop, see {log}"
    arrived = _read(directory)
    if sorted(arrived) != sorted(written):
        return f"{len(written)} lines written, {len(arrived)} arrived, {len(set(arrived))} of them different, see {log}"
    return ""


def _stop_connectors(directory: Path) -> bool:
    """Stop both connectors; return whether they stopped. Their tasks commit and flush their data, so the file is final (KIP-875).

    SIGTERM is not used: Jetty's shutdown hook and Connect's race, and on a busy machine the worker hangs in `Server.join`.
    """
    base = f"http://127.0.0.1:{(directory / 'port').read_text()}/connectors"
    deadline = time.monotonic() + TIMEOUT_S
    names = _ask(base)
    for name in names:
        _ask(f"{base}/{name}/stop", "PUT")
    while time.monotonic() < deadline:
        found = [_ask(f"{base}/{name}/status") for name in names]
        if all(connector["connector"]["state"] == "STOPPED" and not connector["tasks"] for connector in found):
            return len(found) == 2
        time.sleep(POLL_INTERVAL_S)
    return False


def _ask(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read() or b"null")


def _write_files(directory: Path, bootstrap: str, name: str) -> None:
    """Properties, and a plugin directory with the file connectors alone: scanning all jars takes ten seconds."""
    plugin = directory / "plugins" / "file"
    plugin.mkdir(parents=True)
    for jar in packages.obtain_kafka_jars().glob("connect-file-*.jar"):
        shutil.copy(jar, plugin)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (directory / "port").write_text(str(port))
    for kind, text in (("worker", WORKER), ("source", SOURCE), ("sink", SINK)):
        filled = text.format(bootstrap=bootstrap, directory=directory, name=name, port=port)
        (directory / f"{kind}.properties").write_text(filled, encoding="utf-8")


def _read(directory: Path) -> list[str]:
    file = directory / "out.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
