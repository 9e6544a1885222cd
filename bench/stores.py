"""The shared stores of a cluster under measurement: PostgreSQL with a synchronous standby, and an S3 server.

All run as processes on loopback with their files below one directory, so that their CPU seconds can be counted. PostgreSQL
fsyncs, and a commit returns once the standby has it on disk, too. The S3 server is Versity S3 Gateway (Apache-2.0, written in Go) over
a folder: it stores one copy and does not fsync. A cloud's object store keeps several copies, and its price includes their cost.
"""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.java_peer import free_ports

from bench import processes

USER = "bearlake"
REGION = "us-east-1"
ACCESS_KEY_ID, SECRET_ACCESS_KEY = "bearlake", "bearlake-secret"
BUCKET = "bench"
START_TIMEOUT_S = 60
POLL_S = 0.02
CACHED_GATEWAY = Path(__file__).resolve().parents[1] / ".cache" / "bin" / "versitygw"
NO_GATEWAY = (
    "no Versity S3 Gateway on PATH or in .cache/bin: "
    "GOBIN=$PWD/.cache/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"
)
NO_POSTGRESQL = "PostgreSQL's programs initdb, postgres and pg_basebackup are missing: install the package `postgresql`"


class Postgresql:
    """PostgreSQL with its files below `directory`; with `has_standby`, commits wait for a second server.

    Under root it runs as another account, which must be able to enter the folders above `directory`.
    """

    def __init__(self, directory: Path, *, has_standby: bool = True, connections_max: int = 400) -> None:
        self.directory = directory
        self.port = 0
        self._connections_max = connections_max
        self._has_standby = has_standby
        self._account = _unprivileged_account()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        """Process ids of primary and standby."""
        return [process.pid for process in self._processes]

    def url(self, database: str = "postgres") -> str:
        """URL of a database of the primary."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Make the files and start; returns once the primary accepts connections. Raises BenchError."""
        self.directory.mkdir(parents=True)
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self.port, standby_port = free_ports()
        primary, standby = self.directory / "primary", self.directory / "standby"
        self._make("initdb", "-D", str(primary), "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        if not self._has_standby:
            self._serve(primary, self.port, {})
            return
        self._serve(primary, self.port, {"synchronous_standby_names": "*"})
        host = ["-h", "127.0.0.1", "-p", str(self.port)]
        self._make("pg_basebackup", "-D", str(standby), "-R", "-c", "fast", "--no-sync", *host)
        self._serve(standby, standby_port, {})

    def stop(self) -> None:
        """Stop both and delete their files; no-op if they do not run."""
        while self._processes:
            process = self._processes.pop()
            process.send_signal(signal.SIGQUIT)  # the files are deleted, so nothing has to be written
            processes.stop(process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _serve(self, files: Path, port: int, more: Mapping[str, str]) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(self.directory),
            "max_connections": str(self._connections_max),
            "shared_buffers": "128MB",
            "log_min_messages": "warning",
            **more,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        log = self.directory / f"{files.name}.log"
        with log.open("ab") as output:
            process = self._run([_program("postgres"), "-D", str(files), *options], stdout=output, stderr=output)
        self._processes.append(process)
        end = time.monotonic() + START_TIMEOUT_S
        while not _is_ready(files / "postmaster.pid", process.pid):
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"PostgreSQL did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(POLL_S)

    def _make(self, name: str, *words: str) -> None:
        process = self._run([_program(name), "-U", USER, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=START_TIMEOUT_S)
        if process.returncode:
            raise BenchError(f"{name}: {output.decode(errors='replace').strip()[-500:]}")

    def _run(self, command: Sequence[str], **streams: Any) -> "subprocess.Popen[bytes]":  # untyped: files or PIPE
        if self._account is not None:  # PostgreSQL does not run as root
            streams |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.Popen(
            command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **streams
        )


class S3Gateway:
    """Versity S3 Gateway over a folder below `directory`, with one bucket; with `has_log`, it logs every request."""

    def __init__(self, directory: Path, *, has_log: bool = False) -> None:
        self.directory = directory
        self.access_log = directory / "access.log" if has_log else None
        """A line per request, in the format of S3's server access logs."""
        self.endpoint = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """Process id of the server."""
        return [] if self._process is None else [self._process.pid]

    @property
    def url(self) -> str:
        """Object store URL for Bearlake."""
        return f"s3://{BUCKET}/bearlake"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_REGION": REGION,
        }

    @property
    def stored_bytes(self) -> int:
        """Bytes that the stored objects occupy."""
        return processes.directory_bytes(self.directory / "buckets")

    def start(self) -> None:
        """Start; returns once it accepts connections. Raises BenchError, also if the program is not installed."""
        program = shutil.which("versitygw") or (str(CACHED_GATEWAY) if CACHED_GATEWAY.is_file() else None)
        if program is None:
            raise BenchError(NO_GATEWAY)
        for folder in (f"buckets/{BUCKET}", "sidecar"):
            (self.directory / folder).mkdir(parents=True)
        (port,) = free_ports(1)
        options = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "--region", REGION]
        options += ["--access-log", str(self.access_log)] if self.access_log else []
        store = ["posix", "--sidecar", str(self.directory / "sidecar"), str(self.directory / "buckets")]
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY_ID, "ROOT_SECRET_KEY": SECRET_ACCESS_KEY}
        log = self.directory / "s3.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [program, *options, *store], env=environment, cwd=self.directory, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self.endpoint = f"http://127.0.0.1:{port}"
        end = time.monotonic() + START_TIMEOUT_S
        while not processes.is_listening(port):
            if self._process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"the S3 server did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop and delete all objects; no-op if it does not run."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)


def _program(name: str) -> str:
    """Path of a PostgreSQL program, beside `initdb`: on Debian, programs on PATH may be wrappers that need other packages."""
    initdb = shutil.which("initdb") or next(
        iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None
    )
    program = Path(os.path.realpath(initdb)).with_name(name) if initdb else None
    if program is None or not program.exists():
        raise BenchError(NO_POSTGRESQL)
    return str(program)


def _is_ready(pid_file: Path, pid: int) -> bool:
    """Whether the server has written that it accepts connections (line 8 of postmaster.pid; line 1 is its process id)."""
    try:
        lines = pid_file.read_text().splitlines()
        return int(lines[0]) == pid and lines[7].strip() == "ready"
    except (OSError, IndexError):
        return False


def _unprivileged_account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    names = {account.pw_name: account for account in pwd.getpwall()}
    found = names.get("postgres") or names.get("nobody")
    if found is None:
        raise BenchError("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")
    return found
