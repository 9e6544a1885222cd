"""Faults of PostgreSQL and the object store: kill, restart, fail-over, full disk, clock step."""

import signal

import psutil
from typing_extensions import override

from faults.waiting import until
from nemesis.cluster import Cluster
from nemesis.process_faults import WAIT_S, Fault
from nemesis.stores import is_running, signal_all

HOUR_MS = 3_600_000


class KillStorage(Fault):
    """SIGKILL of the object store, and a restart some time later."""

    name = "kill-s3"
    resources = frozenset({"s3"})

    @override
    def begin(self) -> str:
        assert self.cluster.storage.process is not None
        self._pid = self.cluster.storage.process.pid
        self.cluster.storage.kill()
        return f"S3 server ({self._pid})"

    @override
    def end(self) -> str | None:
        self.cluster.storage.start()
        return f"{self._pid} was gone"


class KillBackend(Fault):
    """SIGKILL of one PostgreSQL backend: PostgreSQL then ends all sessions and recovers."""

    name = "kill-postgresql-backend"
    resources = frozenset({"postgresql"})
    seconds = (1.0, 3.0)

    @override
    def begin(self) -> str:
        self._pid = self.random.choice(sorted(self.cluster.postgresql.backends()))
        signal_all([self._pid], signal.SIGKILL)
        return f"backend {self._pid}"

    @override
    def end(self) -> str | None:
        return f"{self._pid} was gone" if not is_running(self._pid) else None


class RestartPostgresql(Fault):
    """PostgreSQL stops (cleanly, or in a crash) and restarts."""

    name = "restart-postgresql"
    resources = frozenset({"postgresql"})

    @override
    def begin(self) -> str:
        server = self.cluster.postgresql.primary
        is_crash = self.random.random() < 0.5
        self._pid = server.pid
        server.kill() if is_crash else server.stop()
        return "crash" if is_crash else "clean stop"

    @override
    def end(self) -> str | None:
        was_gone = self._pid is not None and not psutil.pid_exists(self._pid)
        self.cluster.postgresql.primary.start()
        return f"{self._pid} was gone" if was_gone else None


class FailOver(Fault):
    """The primary is killed with all its backends, and the standby is promoted behind the address that all servers use."""

    name = "fail-over"
    resources = frozenset({"postgresql"})
    seconds = (0.0, 5.0)

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return cluster.size.with_standby

    @override
    def begin(self) -> str:
        postgresql = self.cluster.postgresql
        until(postgresql.is_synchronous, WAIT_S, "the standby has everything")
        before = postgresql.address
        postgresql.fail_over()
        for link in self.cluster.network.matching(">postgresql"):
            self.cluster.network.set_target(link, postgresql.address)
        self._moved = f"{before} to {postgresql.address}"
        return self._moved

    @override
    def end(self) -> str | None:
        rows = self.cluster.postgresql.execute("select pg_is_in_recovery() as standby", database="postgres")
        self.cluster.postgresql.ensure_running()
        return f"the standby was the primary: {self._moved}" if not rows[0]["standby"] else None


class StepClock(Fault):
    """The clock of the metadata store steps by up to an hour, forward or back."""

    name = "store-clock"
    resources = frozenset({"postgresql", "clock"})
    seconds = (5.0, 30.0)

    @override
    def begin(self) -> str:
        self._wanted = self.random.choice((-HOUR_MS, HOUR_MS, self.random.randint(-HOUR_MS, HOUR_MS), 20_000, -20_000))
        self._was = self.cluster.postgresql.set_clock(self._wanted)
        return f"{self._wanted / 1000:+.0f} s"

    @override
    def end(self) -> str | None:
        self.cluster.postgresql.set_clock(0)
        return f"it differed by {self._was / 1000:+.0f} s" if abs(self._was - self._wanted) < 1000 else None


class FullDisk(Fault):
    """The disk of the object store or of PostgreSQL is full."""

    name = "full-disk"
    resources = frozenset({"postgresql", "s3"})

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return all(disk.can_be_full for disk in cluster.disks.values())

    @override
    def begin(self) -> str:
        name = self.random.choice(sorted(self.cluster.disks))
        self._disk = self.cluster.disks[name]
        self._was_full = False
        used = self._disk.fill()
        self._was_full = self._disk.is_full()  # deletions may free a little space later
        return f"{name}: {used >> 20} MiB used"

    @override
    def end(self) -> str | None:
        self._disk.free()
        self.cluster.postgresql.ensure_running()
        return "nothing was free" if self._was_full else None


KINDS: tuple[type[Fault], ...] = (KillStorage, KillBackend, RestartPostgresql, FailOver, StepClock, FullDisk)
