"""The interface of faults, and the faults of processes.

`begin` injects the fault and returns what it affects (for the report). `end` undoes the fault and returns the proof, an observation of
its effect, or None if it had no effect. Every fault draws only from the random source that it is given.
"""

import abc
import contextlib
import random
import re
import resource
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil
from typing_extensions import override

from faults.waiting import until
from nemesis import tools
from nemesis.cluster import Cluster
from nemesis.stores import is_running, is_stopped, signal_all, tree_of

WAIT_S = 20.0
OUT_OF_MEMORY = re.compile(
    rb"MemoryError|[Cc]annot allocate memory|memory allocation of \d+ bytes failed|can't start new thread"
)
NEAR_BYTES = 1 << 20


class Fault(abc.ABC):
    """One kind of fault. Two faults that share one of their `resources` do not run at the same time."""

    name: str
    resources: frozenset[str] = frozenset()
    seconds: tuple[float, float] = (3.0, 12.0)
    """Shortest and longest duration."""

    @classmethod
    def is_possible(cls, cluster: Cluster) -> bool:
        """Return whether this run, on this machine, can inject the fault."""
        return True

    def __init__(self, cluster: Cluster, randomness: random.Random) -> None:
        self.cluster = cluster
        self.random = randomness

    @abc.abstractmethod
    def begin(self) -> str:
        """Inject the fault; return what is affected."""

    @abc.abstractmethod
    def end(self) -> str | None:
        """Undo the fault; return the proof that it took effect, or None."""

    def pick(self, *roles: str) -> str:
        """Draw a running server of one of these roles (any role if none is given) that no other fault holds down."""
        names = [
            name
            for name in (self.cluster.of_role(*roles) if roles else list(self.cluster.servers))
            if self._runs(name) and name not in self.cluster.held_down
        ]
        return self.random.choice(sorted(names))

    def _runs(self, name: str) -> bool:
        return self.cluster.servers[name].is_running


class KillServer(Fault):
    """SIGKILL of a server, which restarts when the fault ends; meanwhile other servers must serve its clients."""

    name = "kill-server"
    roles: tuple[str, ...] = ("kafka", "pulsar", "rest", "grpc")
    seconds = (0.0, 10.0)

    @override
    def begin(self) -> str:
        self._server = self.cluster.servers[self.pick(*self.roles)]
        self._pid = self._server.pid
        self.cluster.held_down.add(self._server.name)
        self._server.kill()
        return f"{self._server.name} ({self._pid})"

    @override
    def end(self) -> str | None:
        was_dead = not psutil.pid_exists(self._pid)
        self.cluster.restart(self._server.name)
        return f"{self._pid} was gone, {self._server.pid} took its place" if was_dead else None


class KillWorker(KillServer):
    """SIGKILL of a worker at any point of its work. The worker stays away for up to a minute, so the others cannot wait for its return."""

    name = "kill-worker"
    roles = ("compactor",)
    seconds = (2.0, 60.0)

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return bool(cluster.size.workers)

    @override
    def begin(self) -> str:
        self.cluster.record_processes()  # its JVM must not outlive the run
        return super().begin()


class KillWorkerAtStep(KillWorker):
    """SIGKILL of all workers right after the store shows a step of a task. Without such a step the fault has no proof."""

    name = "kill-worker-at-step"
    seconds = (5.0, 60.0)
    step_timeout_s = WAIT_S
    steps: Mapping[str, str] = {
        "claimed": "select id, epoch from bearlake.task where is_held",
        "prepared": "select task_id as id, epoch from bearlake.task_result",
        "swapped": "select id, epoch from bearlake.task_closed where position > 0",
    }

    @override
    def begin(self) -> str:
        self._step, question = self.random.choice(list(self.steps.items()))
        self._task: tuple[int, int] | None = None
        before = self._tasks(question)

        def has_shown() -> bool:
            now = self._tasks(question)
            if before is not None and now is not None:
                self._task = min(now - before, default=None)
            return before is None or self._task is not None

        with contextlib.suppress(AssertionError):
            until(has_shown, self.step_timeout_s, "")
        self._workers = [name for name in self.cluster.size.workers if self._runs(name)]
        self.cluster.record_processes()
        self.cluster.held_down |= set(self._workers)
        for name in self._workers:  # the store does not show which worker took the step, so all workers are killed
            self.cluster.servers[name].kill()
        return f"{', '.join(self._workers)} {self._describe}"

    @property
    def _describe(self) -> str:
        if self._task is None:
            return f"without a task that was {self._step}"
        return f"after task {self._task[0]} was {self._step} (epoch {self._task[1]})"

    @override
    def end(self) -> str | None:
        dead = [name for name in self._workers if not self._runs(name)]
        for name in self._workers:
            self.cluster.restart(name)
        return f"{len(dead)} workers were gone {self._describe}" if dead and self._task is not None else None

    def _tasks(self, question: str) -> set[tuple[int, int]] | None:
        """Return (id, epoch) of the tasks in the store; None if the database does not answer because of another fault."""
        with contextlib.suppress(Exception):
            return {(row["id"], row["epoch"]) for row in self.cluster.postgresql.execute(question)}
        return None


class KillJava(Fault):
    """SIGKILL of a worker's JVM."""

    name = "kill-jvm"
    seconds = (1.0, 2.0)

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return bool(cluster.size.workers)

    @override
    def begin(self) -> str:
        self._name = self.pick("compactor")
        self._pids = self.cluster.java_of(self._name)
        signal_all(self._pids, signal.SIGKILL)
        return f"JVM of {self._name} ({self._pids})"

    @override
    def end(self) -> str | None:
        gone = [pid for pid in self._pids if not is_running(pid)]
        return f"{len(gone)} JVMs were gone" if gone else None


class KillClient(Fault):
    """SIGKILL of a client, which is restarted at once."""

    name = "kill-client"
    seconds = (1.0, 2.0)

    @override
    def begin(self) -> str:
        fleet = self.cluster.fleet
        running = [client for client in fleet.clients if client.process is not None and client.process.poll() is None]
        self._client = self.random.choice(running)
        self._starts = self._client.start_count
        return f"{self._client.name} ({fleet.kill(self._client)})"

    @override
    def end(self) -> str | None:
        with contextlib.suppress(AssertionError):
            until(lambda: self._client.start_count > self._starts, WAIT_S, "")
            return f"start {self._client.start_count} of it"
        return None


class Pause(Fault):
    """SIGSTOP of a server, a worker, a JVM or the object store; its connections stay open."""

    name = "pause-process"
    seconds = (2.0, 20.0)

    @override
    def begin(self) -> str:
        what, self._pids = self.random.choice(self._choices())
        signal_all(self._pids, signal.SIGSTOP)
        return f"{what} ({self._pids})"

    def _choices(self) -> list[tuple[str, list[int]]]:
        cluster = self.cluster
        choices = [(name, [cluster.servers[name].pid]) for name in sorted(cluster.servers) if self._runs(name)]
        choices += [(f"JVM of {name}", cluster.java_of(name)) for name in cluster.size.workers if cluster.java_of(name)]
        return choices

    @override
    def end(self) -> str | None:
        stopped = [pid for pid in self._pids if is_stopped(pid)]
        signal_all(self._pids, signal.SIGCONT)
        return f"{len(stopped)} processes stood still until the end" if stopped else None


class PauseStorage(Pause):
    """SIGSTOP of the object store."""

    name = "pause-s3"
    resources = frozenset({"s3"})

    def _choices(self) -> list[tuple[str, list[int]]]:
        assert self.cluster.storage.process is not None
        return [("S3 server", [self.cluster.storage.process.pid])]


class PauseBackends(Pause):
    """SIGSTOP of single PostgreSQL backends at any point of their work; their clients give up before the backends continue."""

    name = "pause-postgresql-backends"
    resources = frozenset({"postgresql"})
    seconds = (5.0, 15.0)

    def _choices(self) -> list[tuple[str, list[int]]]:
        backends = sorted(self.cluster.postgresql.backends())
        chosen = self.random.sample(backends, min(len(backends), self.random.choice((1, 2, 5, 10))))
        return [(f"{len(chosen)} of {len(backends)} backends", chosen)]


class Suspend(Pause):
    """SIGSTOP of all servers, workers, stores and proxies at once, like a suspended machine whose clients run on another machine."""

    name = "suspend-machine"
    resources = frozenset({"postgresql", "s3", "network"})
    seconds = (8.0, 15.0)

    def _choices(self) -> list[tuple[str, list[int]]]:
        cluster = self.cluster
        roots = [server.pid for server in cluster.servers.values() if server.is_running]
        assert cluster.storage.process is not None
        for server in (cluster.postgresql.primary, cluster.postgresql.standby):
            if server is not None and server.pid is not None:
                roots.append(server.pid)
        pids = [pid for root in [*roots, cluster.storage.process.pid, cluster.network.pid] for pid in tree_of(root)]
        return [("everything but the clients", pids)]


class FullMemory(Fault):
    """One server can allocate only one more MiB of address space, or none, not even some of what it gives back."""

    name = "full-memory"
    seconds = (5.0, 15.0)

    @override
    def begin(self) -> str:
        self._server = self.cluster.servers[self.pick("kafka", "pulsar", "rest", "grpc")]
        self._pid = self._server.pid
        self._logged_bytes = self._server.log.stat().st_size
        self._size = psutil.Process(self._pid).memory_info().vms
        more = self.random.choice((-32, 0, 1)) << 20
        self._before = resource.prlimit(self._pid, resource.RLIMIT_AS)
        self._limit = self._size + more
        resource.prlimit(self._pid, resource.RLIMIT_AS, (self._limit, self._before[1]))
        return f"{self._server.name}: {more >> 20:+d} MiB"

    def end(self) -> str | None:
        """The fault took effect if the process ended, logged that memory is exhausted, or came close to the limit."""
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            size = psutil.Process(self._pid).memory_info().vms
            resource.prlimit(self._pid, resource.RLIMIT_AS, self._before)
            if self._server.is_running:
                with self._server.log.open("rb") as lines:
                    lines.seek(self._logged_bytes)
                    complaint = OUT_OF_MEMORY.search(lines.read())
                if complaint is not None:
                    return f"it logged: {complaint[0].decode()}"
                is_close = size > self._size and size + NEAR_BYTES >= self._limit
                return f"{(self._limit - size) >> 10} KiB were left" if is_close else None
        self.cluster.restart(self._server.name)
        return f"{self._pid} had ended of it"


class ProcessClock(Fault):
    """A server's wall clock is wrong (libfaketime): the server restarts with that clock, and later with the right one."""

    name = "process-clock"
    seconds = (10.0, 30.0)

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return tools.find_faketime() is not None

    @override
    def begin(self) -> str:
        self._server = self.cluster.servers[self.pick("kafka", "pulsar", "rest", "grpc")]
        seconds = self.random.choice((-600, -60, 60, 600))
        self.cluster.held_down.add(self._server.name)
        self._server.kill()
        self._more = {
            "LD_PRELOAD": str(tools.find_faketime()),
            "FAKETIME": f"{seconds:+d}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self._server.restart_with(self._more)
        return f"{self._server.name} {seconds:+d} s"

    @override
    def end(self) -> str | None:
        libraries = ""
        with contextlib.suppress(OSError, AssertionError):
            libraries = Path(f"/proc/{self._server.pid}/maps").read_text()
        self._server.end()
        self._server.restart_with(dict.fromkeys(self._more, ""))
        self.cluster.held_down.discard(self._server.name)
        return "the library with that clock was loaded" if "libfaketime" in libraries else None


KINDS: tuple[type[Fault], ...] = (
    KillServer,
    KillWorker,
    KillWorkerAtStep,
    KillJava,
    KillClient,
    Pause,
    PauseStorage,
    PauseBackends,
    Suspend,
    FullMemory,
    ProcessClock,
)
