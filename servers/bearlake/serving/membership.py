"""This server's membership: registration, heartbeats, and its view of the live servers.

`RegisteredServer.join` registers and gets the epoch that fences everything this process writes. `run` sends a heartbeat per interval and
reads which servers are live. A failed heartbeat is retried a few times at once, then at every interval, without a limit. A
server that its peers consider dead may continue to serve, because the store checks the epoch of every write. If a newer epoch of the
same name appears, this process is `Fenced` and must stop.

Every registered server watches all others (`watching.py`) and declares in the store which of them have stopped. `tenure` holds what a
server learns of its own lapses.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bearlake import __version__, clock
from bearlake.errors import Fenced, Overloaded, Unavailable
from bearlake.metadata import Membership
from bearlake.metadata.formats import registered_version
from bearlake.metadata.model import Registration, Server, ServerRef
from bearlake.metadata.registering import register
from bearlake.serving.watching import Watcher
from bearlake.streams.tenure import Tenure
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_SENT = metrics.SERVER_HEARTBEATS.labels("sent")
_FAILED = metrics.SERVER_HEARTBEATS.labels("failed")

ANNOUNCE_SHARE = 0.25
"""Share of `drain_ms` for the announcement of the drain to the metadata store; the rest is for the work that was accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """This server process: name, zone, heartbeats, start and drain."""

    name: str = ""
    """Stable name; a new process of the same name fences the old one. Empty: host name and first port."""
    zone: str | None = None
    """Availability zone; null: none. Clients that name their zone are directed to servers in it."""
    heartbeat_ms: int = 1_000
    """Time between heartbeats. With a shorter time, servers notice joins sooner, at the cost of one small write each."""
    timeout_ms: int = 6_000
    """Time without a heartbeat after which peers consider this server dead and take over its groups. Each peer measures the time itself,
    starting when it first misses a heartbeat."""
    heartbeat_retry_count: int = 2
    """Attempts after a failed heartbeat before the next interval."""
    startup_wait_ms: int = 60_000
    """Longest wait (ms) at start for a metadata store or object store that does not answer yet, or whose disk is full; 0: no wait. The
    first failure is logged at once."""
    drain_ms: int = 20_000
    """Longest time to finish requests on shutdown. The grace period of Kubernetes must be longer. At most a quarter of it
    is for the announcement of the drain to the metadata store."""
    drain_notice_ms: int = 0
    """Time between the announcement that this server drains and its first refusal of work, so that clients learn of the drain. Use 5000 in
    a cluster, 0 for a single server."""

    def __post_init__(self) -> None:
        if self.timeout_ms < 3 * self.heartbeat_ms:
            raise ValueError("timeout_ms must be at least three times heartbeat_ms")


class RegisteredServer:
    """This process's membership, and its view of the live servers, as of the last read from the store."""

    def __init__(
        self,
        store: Membership,
        registration: Registration,
        settings: ServerSettings,
        own: Server,
        on_fenced: Callable[[], None],
        tenure: Tenure,
    ) -> None:
        """Use `join`. `own` is this server as its peers see it."""
        self._store = store
        self._own = own
        self._settings = settings
        self._on_fenced = on_fenced
        self.failure = ""
        """Why the last heartbeat failed: the metadata store takes no writes of this server. Empty: it did not fail."""
        self.server: ServerRef = registration.server
        self.cluster_id = registration.cluster_id
        self.version = 0
        """Grows whenever `live` changes (not for heartbeat counts); for caches of rendered responses."""
        self._live: Sequence[Server] = ()
        self.serving_count = 1
        """Number of live servers that listen for clients; draining servers still serve theirs."""
        self._reading = asyncio.Lock()
        self._read_count = 0
        """Number of successful reads of the live servers."""
        self.tenure = tenure
        """What this server knows of its own lapses; used by holders of leases."""
        self._watcher = Watcher(registration.server, settings.heartbeat_ms)
        metrics.SERVER_LIVE.set_function(lambda: len(self._live))

    @classmethod
    async def join(
        cls,
        store: Membership,
        settings: ServerSettings,
        endpoints: Mapping[str, str],
        on_fenced: Callable[[], None] = lambda: None,
        boot_time_s: Callable[[], float] = clock.boot_time_s,
    ) -> "RegisteredServer":
        """Register under the settings' name with these endpoints, and read which servers are live. Raises `Unavailable`.

        `boot_time_s` is a clock that includes the time in which the machine is suspended.
        """
        name, version = settings.name or default_name(endpoints), registered_version(__version__)
        registered_at = asyncio.get_running_loop().time(), boot_time_s()
        registration = await register(
            store, name, zone=settings.zone, endpoints=endpoints, version=version, timeout_ms=settings.timeout_ms
        )
        own = Server(
            ref=registration.server,
            name=name,
            zone=settings.zone,
            endpoints=endpoints,
            version=version,
            is_draining=False,
            heartbeat_count=0,
            timeout_ms=settings.timeout_ms,
        )
        tenure = Tenure(
            store,
            registration.server,
            timeout_ms=settings.timeout_ms,
            registered_at=registered_at,
            boot_time_s=boot_time_s,
        )
        registered = cls(store, registration, settings, own, on_fenced, tenure)
        await registered.refresh()
        return registered

    @property
    def node_id(self) -> int:
        """This server's node id."""
        return self.server.node_id

    def live(self) -> Sequence[Server]:
        """Live servers by node id, including this server and draining ones; does not wait, for the hot path."""
        return self._live

    def heartbeat_age_ms(self, server: ServerRef) -> int:
        """Return how long (ms) this server has seen no new heartbeat of `server`; 0 for this server."""
        return self._watcher.age_ms(server, _now_ms())

    def has_peers(self) -> bool:
        """Whether clients of this server can use another server: one that is live, not draining, and listens for the same protocol."""
        own = set(self._own.endpoints) - {"admin"}
        return any(
            server.ref.node_id != self.node_id and not server.is_draining and not own.isdisjoint(server.endpoints)
            for server in self._live
        )

    async def run(self) -> None:
        """Send heartbeats until cancelled; after `on_fenced` was called, only wait for cancellation."""
        is_fenced = False
        while not is_fenced:
            await asyncio.sleep(self._settings.heartbeat_ms / 1000)
            is_fenced = await self._is_fenced_by_beat()
        log.error("a newer process registered this server's name; stopping", extra={"server": self.server})
        self._on_fenced()
        await asyncio.Event().wait()

    async def _is_fenced_by_beat(self) -> bool:
        try:
            await self.beat()
        except Fenced:
            return True
        return False

    async def beat(self) -> bool:
        """Send one heartbeat with its retries, then refresh the view; returns whether the store answered. Raises `Fenced`."""
        for _ in range(1 + self._settings.heartbeat_retry_count):
            try:
                async with asyncio.timeout(self._settings.timeout_ms / 2000):
                    await self.tenure.beat()
                    _SENT.inc()
                    await self.refresh()
            except (Unavailable, Overloaded, TimeoutError) as error:
                _FAILED.inc()
                self._record_failure(error)
            else:
                self._record_success()
                return True
        return False

    async def refresh(self) -> None:
        """Read which servers are live; callers during a read share the next read. Raises `Unavailable`."""
        read_count = self._read_count + 1 + self._reading.locked()  # a read in progress may have begun too early
        async with self._reading:
            if self._read_count < read_count:
                started_ms = _now_ms()
                live = await self._store.live()
                stopped = self._watcher.saw(started_ms, _now_ms(), live)
                lapsed = [server.ref for server in stopped if await self._lapse(server)]
                self._see([server for server in live if server.ref not in lapsed])
                self._read_count += 1

    async def _lapse(self, server: Server) -> bool:
        """Declare that a server's heartbeats have stopped; returns whether it has lapsed with the watched count."""
        has_lapsed = await self._store.lapse(server.ref, server.heartbeat_count)
        if has_lapsed:
            log.warning(
                "the heartbeats of a server stopped; its leases can be taken over",
                extra={
                    "server": server.ref,
                    "server_name": server.name,
                    "by": self.server,
                    "age_ms": self.heartbeat_age_ms(server.ref),
                },
            )
            metrics.SERVER_LAPSES.labels("other").inc()
        return has_lapsed

    def _see(self, live: Sequence[Server]) -> None:
        others = [server for server in live if server.ref.node_id != self.node_id]
        servers = sorted([self._own, *others], key=lambda server: server.ref.node_id)
        if _identity(servers) != _identity(self._live):
            self.version += 1
            log.debug("live servers changed", extra={"node_ids": [server.ref.node_id for server in servers]})
        self._live = servers
        self.serving_count = sum(1 for server in servers if set(server.endpoints) - {"admin"})

    async def drain(self) -> None:
        """Announce that clients should use other servers, within `ANNOUNCE_SHARE` of `drain_ms`. Raises `Fenced`, `Unavailable`."""
        metrics.SERVER_DRAINING.set(1)
        self._own = replace(self._own, is_draining=True)
        self._see(self._live)  # this server's clients learn of it also while the store does not answer
        limit_ms = round(self._settings.drain_ms * ANNOUNCE_SHARE)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._store.drain(self.server)
                await self.refresh()
        except TimeoutError as error:
            raise Unavailable(f"the metadata store did not take the announcement within {limit_ms} ms") from error

    async def leave(self) -> None:
        """End the registration and give up all leases. Raises `Unavailable`."""
        await self.tenure.close()
        await self._store.leave(self.server)

    def _record_failure(self, error: BaseException) -> None:
        text = str(error) or type(error).__name__
        if not self.failure:
            log.warning("heartbeat failed; retrying", extra={"error": text})
        self.failure = text

    def _record_success(self) -> None:
        if self.failure:
            log.info("heartbeats succeed again")
        self.failure = ""


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def default_name(endpoints: Mapping[str, str]) -> str:
    """Return host name and the first endpoint's port: unique per process of a host, the same after a restart."""
    first = next(iter(endpoints.values()), "")
    return f"{socket.gethostname()}:{first.rpartition(':')[2]}"


def _identity(servers: Sequence[Server]) -> list[tuple[object, ...]]:
    return [(server.ref, server.zone, dict(server.endpoints), server.is_draining) for server in servers]
