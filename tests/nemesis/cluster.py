"""The processes of a run: disks, stores, the network, servers, workers and clients. Started once, ended by process id.

Every connection between two processes is a link of the network (`from>to`), so each link can be broken alone:

        k1>postgresql  k1>s3  w1>postgresql  w1>s3 …      links of servers and workers to each store
        clients>k1/kafka  clients>r1/rest …               links of clients to each listener
        peers>k1/admin …                                  links of other servers to a server (group members of REST, gRPC)
"""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from faults.cluster import LISTENERS, Server
from faults.waiting import until
from fixtures import ports, s3
from fixtures.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from nemesis import tools
from nemesis.backups import Backups
from nemesis.fleet import Fleet
from nemesis.links import HOST, Network
from nemesis.stores import DATABASE, Disk, Postgresql, Storage, is_stopped, signal_all, tree_of

GIBIBYTE = 1 << 30
DISK_BYTES = 2 * GIBIBYTE
HEAL_S = 120.0

SETTINGS: Mapping[str, Any] = {
    "logs.format": "text",
    "access.super_users": ["User:ANONYMOUS"],  # clients do not log in, and some of them change users
    # Days become seconds, so an hour of a run covers weeks with the default settings.
    "server.heartbeat_ms": 500,
    "server.timeout_ms": 2_000,
    "metadata.postgresql.connections_max": 5,
    "metadata.postgresql.statement_timeout_ms": 2_000,
    "metadata.postgresql.lock_timeout_ms": 1_000,
    "metadata.postgresql.connect_timeout_ms": 2_000,
    "metadata.postgresql.acquire_timeout_ms": 2_000,
    "metadata.postgresql.idle_transaction_timeout_ms": 3_000,
    "metadata.postgresql.token_result_keep_ms": 30_000,
    "metadata.postgresql.forbidden_keep_ms": 60_000,
    "streams.writer.deadline_ms": 10_000,
    "streams.writer.commit_unknown_ms_max": 25_000,
    "streams.upkeep.producer_idle_ms": 60_000,
    "streams.upkeep.producer_pause_ms": 5_000,
    "streams.groups.idle_ms": 30_000,
    "streams.groups.share.auto_offset_reset": "earliest",
    "streams.groups.share.delivery_count_limit": 10,
    "streams.groups.share.record_lock_duration_min_ms": 5_000,
    "streams.groups.share.record_lock_duration_ms": 5_000,
    "object_store.cloud.request_deadline_ms": 4_000,
    "object_store.retry.attempt_count_max": 3,
    "object_store.retry.deadline_ms": 8_000,
    "compaction.worker.deadline_ms": 15_000,
    "compaction.planner.task_slice_count_max": 1_000,  # so many small reads of a slow store fit in the deadline
    "compaction.worker.retry_max_ms": 5_000,
    "compaction.sweep.orphan_grace_ms": 60_000,
    "compaction.sweep.orphan_pause_ms": 5_000,
    "compaction.sweep.file_pause_ms": 5_000,
    "compaction.sweep.quarantine_retry_ms": 20_000,
    "compaction.sweep.retention_pause_ms": 10_000,
    "compaction.sweep.table_pause_ms": 10_000,
    "tables.snapshot_keep_ms": 20_000,
    "tables.snapshot_count_min": 2,
    "tables.metadata_grace_ms": 20_000,
    "tables.catalog_deadline_ms": 5_000,
    "tables.file_deadline_ms": 10_000,
    "tables.deadline_ms": 20_000,
    "compaction.merge.fan_in": 3,
    "spark.master": "local[1]",
    "pulsar.auto_create_partition_count": 2,
}


def storage_environment(endpoint: str) -> dict[str, str]:
    """Return the object store's credentials and address, for clients and servers."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY, "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Size:
    """The number of servers, workers and clients; `plan.py` defines the sizes."""

    servers: Mapping[str, str]
    """Role by server name: `{"k1": "kafka"}`."""
    workers: Sequence[str] = ()
    clients: Sequence[str] = ()
    """Kinds of clients (`clients/`), one entry per client."""
    with_standby: bool = True
    partition_count: int = 4
    per_second: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of `SETTINGS`."""


@dataclass
class Cluster:
    """All processes of a run; see the module."""

    size: Size
    seed: int
    folder: Path
    network: Network
    postgresql: Postgresql
    storage: Storage
    disks: dict[str, Disk]
    servers: dict[str, Server] = field(default_factory=dict)
    addresses: dict[str, dict[str, str]] = field(default_factory=dict)
    """By protocol and server: the address that clients use."""
    held_down: set[str] = field(default_factory=set)
    """Servers that a fault has killed and that must not be restarted before the fault ends."""
    exits: list[tuple[float, str, int | None]] = field(default_factory=list)
    """Servers that ended by themselves: time (monotonic s), name, exit code."""
    seen_pids: dict[int, float] = field(default_factory=dict)
    """Start time of each process that this run started, directly or indirectly."""
    keep: Path | None = None
    """Where logs and histories are copied to at the end."""

    def __post_init__(self) -> None:
        self.fleet = Fleet(self)
        self.backups = Backups(self)

    # -- start ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stores, then servers and workers, and open the links to them."""
        self.storage.start()
        self.postgresql.start()
        for name, role in [*self.size.servers.items(), *((name, "compactor") for name in self.size.workers)]:
            self.servers[name] = self._server(name, role)
        names = list(self.servers)
        self.servers[names[0]].start()  # the first server creates the tables of the metadata store
        for name in names[1:]:
            self.servers[name].spawn()
        for name in names:
            self.servers[name].wait_until_ready() if name != names[0] else None
            self._check_links_to(name)
        self.postgresql.set_clock(0)
        self.backups.start()

    def deployment(self, database_url: str, endpoint: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return settings and environment of processes that use this database and this object store."""
        settings: dict[str, Any] = {
            **SETTINGS,
            **self.size.settings,
            "metadata.url": database_url,
            "tables.catalog_url": database_url,
            "object_store.url": self.storage.base,
            "object_store.cloud.endpoint": endpoint,
        }
        return settings, storage_environment(endpoint)

    def linked(self, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return settings and environment of a process whose connections to the stores are links of its own."""
        database = self.network.open(f"{name}>postgresql", self.postgresql.address)
        objects = self.network.open(f"{name}>s3", self.storage.address, kind="http")
        return self.deployment(f"postgresql://bearlake@{database}/{DATABASE}", f"http://{objects}")

    def _server(self, name: str, role: str) -> Server:
        settings, keys = self.linked(name)
        settings |= {"server.zone": name, "admin.advertised_host": HOST}
        listeners = LISTENERS.get(role, ())
        settings |= {f"listeners.{protocol}.advertised_host": HOST for protocol in listeners if protocol != "registry"}
        settings |= {f"listeners.{protocol}.port": self._reserve(name, protocol) for protocol in listeners}
        settings["admin.port"] = self._reserve(name, "admin")
        return Server(self.folder, name, settings, keys, ("serve", role))

    def _reserve(self, name: str, protocol: str) -> int:
        """Open the link to a listener; return the listener's port.

        The server uses the same port, so its advertised address leads through the link.
        """
        who = "peers" if protocol == "admin" else "clients"
        port = self.network.reserve(f"{who}>{name}/{protocol}", ports.drawn())
        self.addresses.setdefault(protocol, {})[name] = f"{HOST}:{port}"
        return port

    def _check_links_to(self, name: str) -> None:
        """Check that every listener of the server has its link."""
        for protocol, address in self.servers[name].listening().items():
            port = address.rpartition(":")[2]
            assert self.addresses[protocol][name] == f"{HOST}:{port}", (
                f"{name} listens at {address}, not behind its link"
            )

    def client_environment(self) -> dict[str, str]:
        """Return the object store's credentials and address, for clients that read tables."""
        return storage_environment(self.storage.server.endpoint)

    # -- lookups -------------------------------------------------------------------------------------------------

    @property
    def catalog_url(self) -> str:
        """URL of the tables' catalog, directly on the primary, not through a link."""
        return self.postgresql.primary.url(DATABASE)

    def of_role(self, *roles: str) -> list[str]:
        """Return the names of the servers and workers with these roles."""
        return [name for name, role in self.roles.items() if role in roles]

    @property
    def roles(self) -> dict[str, str]:
        """Role of each server and worker, by name."""
        return {**self.size.servers, **dict.fromkeys(self.size.workers, "compactor")}

    def java_of(self, worker: str) -> list[int]:
        """Return the process ids of a worker's JVMs."""
        found = []
        for pid in tree_of(self.servers[worker].pid)[1:] if self.servers[worker].is_running else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "java" in psutil.Process(pid).name():
                    found.append(pid)
        return found

    def record_processes(self) -> None:
        """Record all child processes, so that the run can end them even if their parents are gone."""
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.seen_pids[child.pid] = child.create_time()

    # -- heal ----------------------------------------------------------------------------------------------------

    def restart(self, name: str) -> None:
        """Restart a server without waiting until it is ready, since its stores may be unavailable."""
        server = self.servers[name]
        self.held_down.discard(name)
        if not server.is_running:
            server.end()
            server.spawn()

    def revive(self) -> None:
        """Restart servers that ended by themselves, as a cluster manager does, except those that a fault holds down."""
        for name, server in self.servers.items():
            if name not in self.held_down and not server.is_running:
                self.exits.append((time.monotonic(), name, server.exit_code()))
                self.restart(name)

    def heal(self) -> None:
        """Undo all faults, and wait until every server is ready. Fails if a server is not ready in time."""
        self.record_processes()
        signal_all([pid for pid in self.seen_pids if is_stopped(pid)], signal.SIGCONT)
        for link in self.network.names:
            self.network.set_rule(link, None)
        for disk in self.disks.values():
            disk.free()
        self.postgresql.ensure_running()
        if self.storage.process is None or self.storage.process.poll() is not None:
            self.storage.end()
            self.storage.start()
        self.postgresql.set_clock(0)
        self.held_down.clear()
        until(self._is_whole, HEAL_S, "every server is ready")

    def _is_whole(self) -> bool:
        self.revive()
        return all(server.is_ready() for server in self.servers.values())

    def end(self) -> None:
        """End all processes by id, unmount the disks, and delete the folder."""
        with contextlib.suppress(psutil.Error):
            self.record_processes()
        self.fleet.end()
        for server in self.servers.values():
            server.end()
        self.backups.end_all()
        self.storage.end()
        self.postgresql.end()
        self.network.end()
        for pid, started_s in self.seen_pids.items():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == started_s:
                    process.kill()
        for disk in self.disks.values():
            disk.end()


@contextlib.contextmanager
def created(size: Size, seed: int, *, keep: Path | None = None) -> Iterator[Cluster]:
    """Yield a cluster that is not started yet; at the end, copy its logs and histories to its `keep`, then end and delete it."""
    tools.require_postgresql()
    program = str(s3.obtain_versitygw())
    folder = Path(tempfile.mkdtemp(prefix="bearlake-nemesis-"))
    folder.chmod(0o755)
    cluster: Cluster | None = None
    disks: dict[str, Disk] = {}
    try:
        can_mount = tools.can_mount()
        disks = {name: Disk(folder / name, DISK_BYTES, can_mount=can_mount) for name in ("s3", "postgresql")}
        disks["postgresql"].folder.chmod(0o777)
        network = Network()
        postgresql = Postgresql(disks["postgresql"].folder, with_standby=size.with_standby)
        storage = Storage(disks["s3"].folder, program)
        cluster = Cluster(size, seed, folder, network, postgresql, storage, disks, keep=keep)
        yield cluster
    finally:
        if cluster is not None:
            cluster.end()
        try:
            if cluster is not None and cluster.keep is not None:
                _keep(folder, cluster.keep)
        finally:
            for disk in disks.values():
                disk.end()
            shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for kind in ("log", "jsonl", "err", "notes"):
        for file in folder.glob(f"*.{kind}"):
            shutil.copy2(file, keep / file.name)
