"""The faults: what each does, how it is undone, and how it is known to have been at work.

`begin` breaks something and returns what it broke (for the report); `end` undoes it and returns the proof: what was seen of the fault
while it lasted, or None when it has not been at work. Every fault draws from the random source that it is given, and from nothing else.
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

from faults.waiting import until
from nemesis import tools
from nemesis.stores import is_running, is_stopped, signal_all, tree_of
from nemesis.world import World

WAIT_S = 20.0
OUT_OF_MEMORY = re.compile(
    rb"MemoryError|[Cc]annot allocate memory|memory allocation of \d+ bytes failed|can't start new thread"
)
NEAR_BYTES = 1 << 20


class Fault(abc.ABC):
    """One kind of fault. `resources` are what it needs for itself: two faults with a common one do not happen at once."""

    name: str
    resources: frozenset[str] = frozenset()
    seconds: tuple[float, float] = (3.0, 12.0)
    """Between which bounds it lasts."""

    @classmethod
    def is_possible(cls, world: World) -> bool:
        """Whether this run, on this machine, can have it."""
        return True

    def __init__(self, world: World, randomness: random.Random) -> None:
        self.world = world
        self.random = randomness

    @abc.abstractmethod
    def begin(self) -> str:
        """Break something; what."""

    @abc.abstractmethod
    def end(self) -> str | None:
        """Undo it; the proof that it was at work."""

    def pick(self, *roles: str) -> str:
        """A server of one of these roles (any, if none is named) that runs, and that no other fault has for itself."""
        names = [
            name
            for name in (self.world.of_role(*roles) if roles else list(self.world.servers))
            if self._runs(name) and name not in self.world.held_down
        ]
        return self.random.choice(sorted(names))

    def _runs(self, name: str) -> bool:
        return self.world.servers[name].is_running


class KillServer(Fault):
    """kill -9 of a server; it comes back when the fault ends, so that others must do without it for a while."""

    name = "kill-server"
    roles: tuple[str, ...] = ("kafka", "pulsar", "rest", "grpc")
    seconds = (0.0, 10.0)

    def begin(self) -> str:
        self._server = self.world.servers[self.pick(*self.roles)]
        self._pid = self._server.pid
        self.world.held_down.add(self._server.name)
        self._server.kill()
        return f"{self._server.name} ({self._pid})"

    def end(self) -> str | None:
        was_dead = not psutil.pid_exists(self._pid)
        self.world.restart(self._server.name)
        return f"{self._pid} was gone, {self._server.pid} took its place" if was_dead else None


class KillWorker(KillServer):
    """kill -9 of a worker, wherever it is in its work; it stays away for long, so nobody may rely on its return."""

    name = "kill-worker"
    roles = ("compactor",)
    seconds = (2.0, 60.0)

    @classmethod
    def is_possible(cls, world: World) -> bool:
        return bool(world.size.workers)

    def begin(self) -> str:
        self.world.note_processes()  # its JVM must not outlive the run
        return super().begin()


class KillWorkerAtStep(KillWorker):
    """All workers are killed right after a step of a task shows in the store. Without such a step nothing is proved."""

    name = "kill-worker-at-step"
    seconds = (5.0, 60.0)
    patience_s = WAIT_S
    steps: Mapping[str, str] = {
        "claimed": "select id, epoch from bearlake.task where is_held",
        "prepared": "select task_id as id, epoch from bearlake.task_result",
        "swapped": "select id, epoch from bearlake.task_closed where position > 0",
    }

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
            until(has_shown, self.patience_s, "")
        self._workers = [name for name in self.world.size.workers if self._runs(name)]
        self.world.note_processes()
        self.world.held_down |= set(self._workers)
        for name in self._workers:  # whose step it was is not told: all of them
            self.world.servers[name].kill()
        return f"{', '.join(self._workers)} {self._told}"

    @property
    def _told(self) -> str:
        if self._task is None:
            return f"without a task that was {self._step}"
        return f"after task {self._task[0]} was {self._step} (epoch {self._task[1]})"

    def end(self) -> str | None:
        dead = [name for name in self._workers if not self._runs(name)]
        for name in self._workers:
            self.world.restart(name)
        return f"{len(dead)} workers were gone {self._told}" if dead and self._task is not None else None

    def _tasks(self, question: str) -> set[tuple[int, int]] | None:
        """(id, epoch) of the tasks that are there; None while another fault holds the database."""
        with contextlib.suppress(Exception):
            return {(row["id"], row["epoch"]) for row in self.world.postgresql.execute(question)}
        return None


class KillJava(Fault):
    """kill -9 of a worker's JVM."""

    name = "kill-jvm"
    seconds = (1.0, 2.0)

    @classmethod
    def is_possible(cls, world: World) -> bool:
        return bool(world.size.workers)

    def begin(self) -> str:
        self._name = self.pick("compactor")
        self._pids = self.world.java_of(self._name)
        signal_all(self._pids, signal.SIGKILL)
        return f"JVM of {self._name} ({self._pids})"

    def end(self) -> str | None:
        gone = [pid for pid in self._pids if not is_running(pid)]
        return f"{len(gone)} JVMs were gone" if gone else None


class KillClient(Fault):
    """kill -9 of a client; it is started again at once."""

    name = "kill-client"
    seconds = (1.0, 2.0)

    def begin(self) -> str:
        fleet = self.world.fleet
        running = [client for client in fleet.clients if client.process is not None and client.process.poll() is None]
        self._client = self.random.choice(running)
        self._starts = self._client.start_count
        return f"{self._client.name} ({fleet.kill(self._client)})"

    def end(self) -> str | None:
        with contextlib.suppress(AssertionError):
            until(lambda: self._client.start_count > self._starts, WAIT_S, "")
            return f"start {self._client.start_count} of it"
        return None


class Pause(Fault):
    """SIGSTOP of a server, a worker, a JVM or the object store; its connections stay open."""

    name = "pause-process"
    seconds = (2.0, 20.0)

    def begin(self) -> str:
        what, self._pids = self.random.choice(self._choices())
        signal_all(self._pids, signal.SIGSTOP)
        return f"{what} ({self._pids})"

    def _choices(self) -> list[tuple[str, list[int]]]:
        world = self.world
        choices = [(name, [world.servers[name].pid]) for name in sorted(world.servers) if self._runs(name)]
        choices += [(f"JVM of {name}", world.java_of(name)) for name in world.size.workers if world.java_of(name)]
        return choices

    def end(self) -> str | None:
        stopped = [pid for pid in self._pids if is_stopped(pid)]
        signal_all(self._pids, signal.SIGCONT)
        return f"{len(stopped)} processes stood still until the end" if stopped else None


class PauseStorage(Pause):
    """SIGSTOP of the object store."""

    name = "pause-s3"
    resources = frozenset({"s3"})

    def _choices(self) -> list[tuple[str, list[int]]]:
        assert self.world.storage.process is not None
        return [("S3 server", [self.world.storage.process.pid])]


class PauseBackends(Pause):
    """SIGSTOP of single PostgreSQL backends, in the middle of whatever they do; their clients give up before they go on."""

    name = "pause-postgresql-backends"
    resources = frozenset({"postgresql"})
    seconds = (5.0, 15.0)

    def _choices(self) -> list[tuple[str, list[int]]]:
        backends = sorted(self.world.postgresql.backends())
        chosen = self.random.sample(backends, min(len(backends), self.random.choice((1, 2, 5, 10))))
        return [(f"{len(chosen)} of {len(backends)} backends", chosen)]


class Suspend(Pause):
    """SIGSTOP of all servers, workers, stores and proxies at once: a machine that is suspended while its clients' machine is not."""

    name = "suspend-machine"
    resources = frozenset({"postgresql", "s3", "network"})
    seconds = (8.0, 15.0)

    def _choices(self) -> list[tuple[str, list[int]]]:
        world = self.world
        roots = [server.pid for server in world.servers.values() if server.is_running]
        assert world.storage.process is not None
        for server in (world.postgresql.primary, world.postgresql.standby):
            if server is not None and server.pid is not None:
                roots.append(server.pid)
        pids = [pid for root in [*roots, world.storage.process.pid, world.network.pid] for pid in tree_of(root)]
        return [("everything but the clients", pids)]


class FullMemory(Fault):
    """One server may take hardly more address space than it has."""

    name = "full-memory"
    seconds = (5.0, 15.0)

    def begin(self) -> str:
        self._server = self.world.servers[self.pick("kafka", "pulsar", "rest", "grpc")]
        self._pid = self._server.pid
        self._logged_bytes = self._server.log.stat().st_size
        self._size = psutil.Process(self._pid).memory_info().vms
        more = self.random.choice((0, 1)) << 20
        self._before = resource.prlimit(self._pid, resource.RLIMIT_AS)
        self._limit = self._size + more
        resource.prlimit(self._pid, resource.RLIMIT_AS, (self._limit, self._before[1]))
        return f"{self._server.name}: {more >> 20} MiB left"

    def end(self) -> str | None:
        """It is seen when the process ended of it, said that memory is missing, or came close to the limit."""
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            size = psutil.Process(self._pid).memory_info().vms
            resource.prlimit(self._pid, resource.RLIMIT_AS, self._before)
            if self._server.is_running:
                with self._server.log.open("rb") as lines:
                    lines.seek(self._logged_bytes)
                    complaint = OUT_OF_MEMORY.search(lines.read())
                if complaint is not None:
                    return f"it said: {complaint[0].decode()}"
                is_close = size > self._size and size + NEAR_BYTES >= self._limit
                return f"{(self._limit - size) >> 10} KiB were left" if is_close else None
        self.world.restart(self._server.name)
        return f"{self._pid} had ended of it"


class ProcessClock(Fault):
    """A server's own wall clock is wrong (libfaketime); it is started with that clock, and again with the right one."""

    name = "process-clock"
    seconds = (10.0, 30.0)

    @classmethod
    def is_possible(cls, world: World) -> bool:
        return tools.find_faketime() is not None

    def begin(self) -> str:
        self._server = self.world.servers[self.pick("kafka", "pulsar", "rest", "grpc")]
        seconds = self.random.choice((-600, -60, 60, 600))
        self.world.held_down.add(self._server.name)
        self._server.kill()
        self._more = {
            "LD_PRELOAD": str(tools.find_faketime()),
            "FAKETIME": f"{seconds:+d}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self._server.restart_with(self._more)
        return f"{self._server.name} {seconds:+d} s"

    def end(self) -> str | None:
        libraries = ""
        with contextlib.suppress(OSError, AssertionError):
            libraries = Path(f"/proc/{self._server.pid}/maps").read_text()
        self._server.end()
        self._server.restart_with(dict.fromkeys(self._more, ""))
        self.world.held_down.discard(self._server.name)
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
