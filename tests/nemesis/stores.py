"""The two stores of a run, each on its own small disk: PostgreSQL with a synchronous standby, and an S3-compatible server.

Commits wait for the standby, so a fail-over loses no acknowledged commit, as the product requires of its database.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from faults.waiting import until
from fixtures import s3
from fixtures.ports import free_port
from fixtures.postgresql import PostgresqlServer

WAIT_S = 60.0
DATABASE = "lake"
SETTINGS = {"max_connections": 120, "max_wal_size": "256MB", "wal_keep_size": "64MB", "synchronous_commit": "on"}
MEBIBYTE = 1 << 20
PARTS = ("buckets", "sidecar")
"""Folders of the S3 server: its objects, and their attributes."""
FILL_TRIES = 12
FULL_BYTES = 1 << 20
"""A disk with less free space counts as full: neither a WAL segment nor a table file fits."""


class Disk:
    """A folder on a tmpfs of limited size if the process may mount one, else an ordinary folder that cannot become full."""

    def __init__(self, folder: Path, size_bytes: int, *, can_mount: bool) -> None:
        self.folder = folder
        self._size_bytes = size_bytes
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        self.can_be_full = can_mount and self._mount(f"size={size_bytes}", "-t", "tmpfs", "tmpfs", str(folder))

    def fill(self) -> int:
        """Shrink the free space to almost nothing; return the used bytes. Several attempts are needed if others write at the same time."""
        for attempt in range(FILL_TRIES):
            stat = os.statvfs(self.folder)
            used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
            if self._mount(f"remount,size={used + (stat.f_frsize << attempt)}", str(self.folder)):
                return used
        raise AssertionError("the disk cannot be made smaller")

    def is_full(self) -> bool:
        """Whether nearly nothing is free."""
        stat = os.statvfs(self.folder)
        return stat.f_bfree * stat.f_frsize < FULL_BYTES

    def free(self) -> None:
        """Restore the original size."""
        self._mount(f"remount,size={self._size_bytes}", str(self.folder))

    def end(self) -> None:
        """Unmount the disk."""
        if self.can_be_full:
            self.can_be_full = False
            subprocess.run(["umount", "-l", str(self.folder)], check=False, timeout=WAIT_S)

    def _mount(self, options: str, *words: str) -> bool:
        return subprocess.run(["mount", "-o", options, *words], capture_output=True, timeout=WAIT_S).returncode == 0


class Postgresql:
    """A primary and its synchronous standby. `address` is that of the primary; the links of `cluster.py` lead to it."""

    def __init__(self, parent: Path, *, with_standby: bool) -> None:
        self._parent = parent
        self.primary = PostgresqlServer(settings=SETTINGS, parent=parent, port=free_port())
        self.standby: PostgresqlServer | None = None
        self.with_standby = with_standby

    @property
    def address(self) -> str:
        """`host:port` of the primary."""
        return f"127.0.0.1:{self.primary.port}"

    def start(self) -> None:
        """Start the primary, create the database, and add the standby if the test wants one."""
        self.primary.start()
        self.execute(f"create database {DATABASE}", database="postgres")
        if self.with_standby:
            self.add_standby()

    def add_standby(self) -> None:
        """Start a new standby; commits wait for it from now on."""
        self.standby = PostgresqlServer(settings=SETTINGS, parent=self._parent, port=free_port(), copy_of=self.primary)
        self.standby.start()
        self.execute("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()", database="postgres")
        until(self.is_synchronous, WAIT_S, "the standby is synchronous")

    def is_synchronous(self) -> bool:
        """Return whether commits wait for a standby that has received all commits."""
        with contextlib.suppress(Exception):
            found = self.execute(
                "select 1 from pg_stat_replication where sync_state in ('sync', 'quorum') and state = 'streaming'"
                " and pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn) < 1000000",
                database="postgres",
            )
            return bool(found)
        return False

    def fail_over(self) -> None:
        """Kill the primary with all its backends, and promote the standby. Cut the links first."""
        assert self.standby is not None
        old, self.primary, self.standby = self.primary, self.standby, None
        kill_tree(old)
        old.remove()
        # Promotion commits nothing; later commits wait for the next standby.
        self.execute("select pg_promote(true, 20)", database="postgres", timeout_s=25.0)

    def ensure_running(self) -> None:
        """Restart the servers that have ended; create a standby if there should be one."""
        for server in (self.primary, self.standby):
            if server is not None and (server.pid is None or not is_running(server.pid)):
                server.kill()
                server.start()
        if self.with_standby and self.standby is None:
            self.add_standby()
        if self.with_standby:
            until(self.is_synchronous, WAIT_S, "the standby is synchronous")

    def execute(self, *statements: str, database: str = DATABASE, timeout_s: float = 4.0) -> list[Any]:
        """Run administrative statements directly on the primary, not through a link; return the rows of the last statement."""
        return asyncio.run(_execute(self.primary.url(database), statements, timeout_s))

    def backends(self, application: str = "bearlake") -> list[int]:
        """Return the process ids of the backends that serve this application."""
        rows = self.execute(f"select pid from pg_stat_activity where application_name = '{application}'")
        return [row["pid"] for row in rows]

    def set_clock(self, offset_ms: int) -> int:
        """Shift the store's clock by this offset; return its actual difference from the machine's clock in ms."""
        self.execute(
            "create or replace function bearlake.now_ms() returns bigint language sql volatile parallel safe as"
            f" $$ select (extract(epoch from clock_timestamp()) * 1000)::bigint + {offset_ms} $$"
        )
        rows = self.execute(
            "select bearlake.now_ms() - (extract(epoch from clock_timestamp()) * 1000)::bigint as difference"
        )
        return int(rows[0]["difference"])

    def end(self) -> None:
        """Kill the servers and delete their files."""
        for server in (self.standby, self.primary):
            if server is not None:
                if server.pid is not None:
                    signal_all(tree_of(server.pid), signal.SIGCONT)
                server.remove()


async def _execute(url: str, statements: Sequence[str], timeout_s: float) -> list[Any]:
    connection = await asyncpg.connect(url, timeout=timeout_s, command_timeout=timeout_s)
    try:
        for statement in statements:
            rows = await connection.fetch(statement)
        return list(rows)
    finally:
        connection.terminate()


class Storage:
    """The S3-compatible server on its own disk."""

    def __init__(self, folder: Path, program: str, *, copy_of: Path | None = None) -> None:
        """`copy_of`: the folder of another server, which may be at work; the new server begins with the objects that are there now."""
        self._folder = folder
        self._program = program
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.server = s3.S3Server(kind="versitygw", endpoint=f"http://{self.address}", folder=folder)
        self.process: subprocess.Popen[bytes] | None = None
        self.bucket = "lake"
        for part in PARTS:
            (folder / part).mkdir(parents=True)
            if copy_of is not None:
                _link_all(copy_of / part, folder / part)
        if copy_of is None:
            self.server.make_bucket(self.bucket)

    def copy(self, folder: Path) -> "Storage":
        """Return a server, not started, that begins with the objects that this one has now."""
        return Storage(folder, self._program, copy_of=self._folder)

    def start(self) -> None:
        """Start the S3 server."""
        options = ["--port", self.address, "--keep-alive", "--quiet", "--region", s3.REGION]
        store = ["posix", "--sidecar", str(self._folder / "sidecar"), str(self._folder / "buckets")]
        keys = {"ROOT_ACCESS_KEY": s3.ACCESS_KEY_ID, "ROOT_SECRET_KEY": s3.SECRET_ACCESS_KEY}
        with (self._folder.parent / "s3.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, *options, *store],
                env={**os.environ, **keys}, cwd=self._folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert s3.wait_until_it_answers(self.server.endpoint, self.process), "the S3 server does not start"

    def kill(self) -> None:
        """Kill the S3 server; its files stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)
        self.process = None

    @property
    def base(self) -> str:
        """The location to which keys are relative."""
        return f"s3://{self.bucket}/bearlake"

    def keys(self, prefix: str) -> list[str]:
        """Return all keys below a prefix, read from the server's files."""
        root = self._folder / "buckets" / self.bucket / "bearlake"
        return [str(path.relative_to(root)) for path in (root / prefix).rglob("*") if path.is_file()]

    def end(self) -> None:
        """Kill the S3 server if it runs."""
        if self.process is not None:
            self.kill()

    def remove(self) -> None:
        """Kill the S3 server if it runs, and delete its files."""
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)


def _link_all(source: Path, target: Path) -> None:
    """Make hard links to all files, without those that vanish meanwhile: the S3 server never changes a file, and replaces it at most."""
    for folder, _, names in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(exist_ok=True, parents=True)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (here / name).hardlink_to(Path(folder) / name)


def tree_of(pid: int) -> list[int]:
    """Return the ids of the process and of all its descendants, parents first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    return []


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to those of these processes that are still alive."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Return whether the process is stopped (SIGSTOP)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def is_running(pid: int) -> bool:
    """Return whether the process has not ended; a zombie process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def kill_tree(server: PostgresqlServer) -> None:
    """Kill a PostgreSQL server and all its backends with SIGKILL."""
    if server.pid is not None:
        signal_all(tree_of(server.pid), signal.SIGKILL)
