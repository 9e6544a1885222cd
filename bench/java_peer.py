"""Common parts of the peers: published jars, one process in Java on loopback, its data wiped at the end.

Jars come through Maven as ordinary dependencies into `.cache/bench/`. Each peer can also be run by hand (`run_by_hand`).
"""

import argparse
import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.errors import BenchError

from bench import processes

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "bench"
PROGRAMS = ("java", "mvn")
START_TIMEOUT_S = 120
END_SIGNALS = {signal.SIGINT, signal.SIGTERM}
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = out
appender.console.type = Console
appender.console.name = out
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
"""


class JavaPeer:
    """One broker with its data below `directory`; a subclass defines what is started and when it serves."""

    name: str
    title: str
    """The peer's name in messages."""
    jars: Path
    kept_log: Path
    """Folder for the log when the data directory is wiped."""
    remaining_bytes_max: int
    """Data directory size below which deleted topics count as gone."""
    removal_timeout_s: int

    def __init__(self, directory: Path, settings: Mapping[str, str] | None, port: int) -> None:
        """`settings` override the configuration; port 0: a free one."""
        self.directory = directory
        self.address = ""
        self._settings = dict(settings or {})
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker; it must have been started."""
        if self._process is None:
            raise BenchError(f"the {self.title} broker was not started")
        return self._process.pid

    @property
    def where(self) -> str:
        """Address for clients."""
        return self.address

    def start(self) -> None:
        """Start; returns once the broker serves. Raises BenchError that names the log."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the broker and wipe its data; no-op if the server does not run."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
            self._save_log()
        shutil.rmtree(self.directory, ignore_errors=True)

    def prepare_next_run(self) -> None:
        """Wait until the data of deleted topics is removed, so that the removal is not part of the next run."""
        end = time.monotonic() + self.removal_timeout_s
        while processes.directory_bytes(self.directory) > self.remaining_bytes_max:
            if time.monotonic() > end:
                raise BenchError(f"{self.title} did not remove deleted topics from {self.directory}")
            time.sleep(0.2)

    def counters(self) -> None:
        """A peer has no object store to count."""
        return

    def _prepare(self) -> None:
        """Return the data directory after writing the logging configuration into it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOGGING)

    def _write_config(self, name: str, defaults: Mapping[str, str]) -> Path:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in {**defaults, **self._settings}.items()))
        return path

    def _java(self, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return ["java", *options, logging, "-cp", f"{self.jars}/*", *words]

    def _serve(self, command: list[str], is_serving: Callable[[], bool]) -> None:
        """Start `command`; return once `is_serving`. Raises BenchError that names the log if the broker does not serve in time."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
            )
        try:
            self._wait_until(is_serving)
        except BaseException:
            processes.stop(self._process)
            raise

    def _wait_until(self, is_serving: Callable[[], bool]) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if not processes.is_alive(self.pid):
                raise BenchError(f"the {self.title} broker ended; see {self._save_log()}")
            if is_serving():
                return
            time.sleep(0.05)
        raise BenchError(f"the {self.title} broker does not answer; see {self._save_log()}")

    @property
    def _log_path(self) -> Path:
        return self.directory / "broker.log"

    def _save_log(self) -> Path:
        """Copy the log out of the data directory, which will be wiped."""
        shutil.copyfile(self._log_path, self.kept_log)
        return self.kept_log


def fetch_jars(pom: Path, jars: Path) -> None:
    """Copy the jars of `pom` into `jars`, unless the folder already has the jars of this version of the file."""
    stamp = jars / "pom.xml"
    if stamp.exists() and stamp.read_bytes() == pom.read_bytes():
        return
    if not all(map(shutil.which, PROGRAMS)):
        raise BenchError("the peer needs Maven and Java 17: install them, or measure with --side bearlake")
    shutil.rmtree(jars, ignore_errors=True)
    copy = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*copy, f"-DoutputDirectory={jars}"], check=True, timeout=600)
    shutil.copyfile(pom, stamp)


def is_missing(*packages: str) -> bool:
    """Return whether a comparison with a Java peer cannot run, and print what it lacks: Java, Maven, or one of these Python packages."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    missing += [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"SKIPPED: not compared with the peer, because {', '.join(missing)} are missing", file=sys.stderr)
    return bool(missing)


def free_ports(count: int = 2) -> list[int]:
    """Return `count` different free ports of the loopback address."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


def run_by_hand(
    description: str | None,
    config: str,
    fetch: Callable[[], None],
    make: Callable[[Path, dict[str, str], int], JavaPeer],
) -> None:
    """The command line `fetch`, `run --data DIR`; `--set` adds lines to `config`; `make` takes directory, lines, port."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="only obtain the jars")
    run = commands.add_parser("run", help="serve until Ctrl-C, then wipe the data")
    run.add_argument("--data", type=Path, required=True, help="directory of its own: it is wiped at the end")
    run.add_argument("--port", type=int, default=0)
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=f"line of {config}")
    options = parser.parse_args()
    if options.command == "fetch":
        fetch()
        return
    if options.data.exists():
        sys.exit(f"{options.data} exists; name a new directory, it is wiped at the end")
    peer = make(options.data, dict(line.split("=", 1) for line in options.set), options.port)
    try:
        peer.start()
        print(f"{peer.title} at {peer.where}, pid {peer.pid}; Ctrl-C stops it and wipes {options.data}", flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        signal.sigwait(END_SIGNALS)
    finally:
        peer.stop()
