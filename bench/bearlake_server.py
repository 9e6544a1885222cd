"""Bearlake as a server under measurement: started as a user starts it, with embedded stores below one directory.

Durability is Bearlake's default: an object is written, fsynced and renamed, its commit is in SQLite, then the request is
acknowledged. On a memory file system fsync is almost free; the disk case shows its cost.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError

from bench import processes

HERE = Path(__file__).resolve().parent
COMMAND = HERE.parent / ".venv" / "bin" / "bearlake"
KEPT_LOG = HERE.parent / ".cache" / "bench" / "bearlake.log"
START_TIMEOUT_S = 60
DATA_BYTES_MAX = 1 << 30
"""A server whose data directory has grown larger than this is restarted between runs with an empty directory."""

# Names on the Prometheus page; values are summed over labels.
OBJECTS_PUT = "bearlake_objects_put_total"
OBJECT_BYTES_PUT = "bearlake_objects_put_bytes_total"
COMMITS = "bearlake_log_commits_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Puts and commits since the server started; None for a metric that the page does not have."""

    objects: float | None
    object_bytes: float | None
    commits: float | None


class BearlakeServer:
    """`bearlake up` (or another command that writes a ready file) with its data below `directory`."""

    name = "bearlake"
    listener = "kafka"
    """Key in the ready file: the listener to which the measured clients connect."""
    environment: Mapping[str, str] = {}
    """Variables of the server, in addition to ours."""

    def __init__(self, directory: Path, *, command: Path = COMMAND, processes_count: int | None = None) -> None:
        self.directory = directory
        self._command = command.absolute()  # the server runs in another folder
        self._processes_count = processes_count
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.admin = ""
        self.listeners: Mapping[str, str] = {}
        """Addresses by listener."""

    @property
    def pid(self) -> int:
        """Process id of the server (the parent, if it runs as several); it must have been started."""
        if self._process is None:
            raise BenchError("the Bearlake server was not started")
        return self._process.pid

    def start(self) -> None:
        """Start; returns once every listener accepts connections. Raises BenchError that names the log."""
        if not self._command.exists():
            raise BenchError(f"{self._command} does not exist: install Bearlake, or name the program with --bearlake")
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready.json"
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in self.words(ready)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip
        try:
            self._wait_until_ready(ready)
        except BaseException:
            processes.stop(self._process)
            raise

    def words(self, ready: Path) -> Sequence[str | Path]:
        """The command line; `ready` is the file to be written once every listener accepts."""
        several = [] if self._processes_count is None else ["--kafka-processes", str(self._processes_count)]
        usage = subprocess.run([self._command, "up", "--help"], capture_output=True, text=True, check=True).stdout
        if "--no-compaction" in usage:  # an older checkout has no compaction
            several.append("--no-compaction")
        if "--grpc-port" in usage:
            several += ["--rest-port", "0", "--registry-port", "0", "--grpc-port", "0"]
        if "--catalog-port" in usage:
            several += ["--catalog-port", "0"]
        if "--console-port" in usage:
            several += ["--console-port", "0"]
        if "--pulsar-http-port" in usage:
            several += ["--pulsar-port", "0", "--pulsar-http-port", "0"]
        ports = ["--kafka-port", "0", "--admin-port", "0", "--no-tour"]
        return [self._command, "up", "--data-dir", self.directory / "data", *ports, "--ready-file", ready, *several]

    def stop(self) -> None:
        """Stop the server and wipe its data; no-op if the server does not run."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
            self._save_log()
        shutil.rmtree(self.directory, ignore_errors=True)

    def terminate(self) -> None:
        """Signal the server to stop, and return at once."""
        os.kill(self.pid, signal.SIGTERM)

    def prepare_next_run(self) -> None:
        """Keep the data directory bounded: deleted streams are swept only after a grace time."""
        if not processes.is_alive(self.pid) or processes.directory_bytes(self.directory) > DATA_BYTES_MAX:
            self.stop()
            self.start()

    def counters(self) -> Counters | None:
        """Read the metrics page; None if the server has none."""
        if not self.admin:
            return None
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as page:
            text = page.read().decode()
        return Counters(
            objects=sum_of(text, OBJECTS_PUT),
            object_bytes=sum_of(text, OBJECT_BYTES_PUT),
            commits=sum_of(text, COMMITS),
        )

    @property
    def _log_path(self) -> Path:
        return self.directory / "bearlake.log"

    def _save_log(self) -> Path:
        """Copy the log of the last server out of the data directory, which is wiped."""
        KEPT_LOG.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._log_path, KEPT_LOG)
        return KEPT_LOG

    def _wait_until_ready(self, ready: Path) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if not processes.is_alive(self.pid):
                raise BenchError(f"{self._command} exited at start; see {self._save_log()}")
            if time.monotonic() > end:
                raise BenchError(f"{self._command} is not ready after {START_TIMEOUT_S} s; see {self._save_log()}")
            time.sleep(0.01)
        listeners = json.loads(ready.read_text())
        self.address = listeners[self.listener]
        self.listeners = listeners
        self.admin = listeners.get("admin", "")


def sum_of(page: str, name: str) -> float | None:
    """Sum of a metric's samples over all labels on a Prometheus text page; None when the page does not have it."""
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith((name + " ", name + "{"))
    ]  # fmt: skip
    return sum(values) if values else None
