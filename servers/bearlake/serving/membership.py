"""This server among the others: registration, heartbeats, and the view of who is live.

`Member.join` registers and gets the epoch that fences everything this process writes. `run` sends a heartbeat per interval and
reads who else is live; a heartbeat that fails is asked again a few times at once, then at the next interval, for as long as it takes:
a server that others hold for dead may still serve, since every write is checked by its epoch. When a newer epoch of the
same name appears, this process is `Fenced` and must stop.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bearlake import __version__
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata import Membership
from bearlake.metadata.model import Registration, Server, ServerRef
from bearlake.metadata.registering import register
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_SENT = metrics.SERVER_HEARTBEATS.labels("sent")
_FAILED = metrics.SERVER_HEARTBEATS.labels("failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """This server process as a member of the deployment."""

    name: str = ""
    """Stable name; a new process of the same name fences the old one. Empty: host name and first port."""
    zone: str | None = None
    """Availability zone. Clients that say theirs are sent to servers in it; null: none."""
    heartbeat_ms: int = 1_000
    """Time between heartbeats. Shorter notices joins sooner and costs one small write each."""
    timeout_ms: int = 6_000
    """Time without a heartbeat after which others hold this server for dead and take over its groups."""
    heartbeat_retry_count: int = 2
    """Attempts after a failed heartbeat before the next interval."""
    startup_wait_ms: int = 60_000
    """Longest wait at start for a metadata or object store that does not answer yet; 0: none. What is wrong is told at once."""
    drain_ms: int = 20_000
    """Longest time to finish requests on shutdown. Kubernetes' grace period must be longer."""
    drain_notice_ms: int = 0
    """Time between being marked as draining and refusing work, in which clients learn of it. 5000 suits a cluster, 0 one server."""

    def __post_init__(self) -> None:
        if self.timeout_ms < 3 * self.heartbeat_ms:
            raise ValueError("timeout_ms must be at least three times heartbeat_ms")


class Member:
    """This process's membership, and its view of the live servers (the last one that the store told)."""

    def __init__(
        self,
        store: Membership,
        registration: Registration,
        settings: ServerSettings,
        own: Server,
        on_fenced: Callable[[], None],
        confirmed_at: float,
    ) -> None:
        """Use `join`. `own` is this server as others see it; `confirmed_at` is the loop's time before it was registered."""
        self._store = store
        self._own = own
        self._settings = settings
        self._on_fenced = on_fenced
        self._is_failing = False
        self.server: ServerRef = registration.server
        self.cluster_id = registration.cluster_id
        self.version = 0
        """Grows whenever `live` changes (ages of heartbeats aside); for caches of rendered answers."""
        self._live: Sequence[Server] = ()
        self._reading = asyncio.Lock()
        self._read_count = 0
        """Reads of who is live that succeeded."""
        self._confirmed_at = confirmed_at
        metrics.SERVER_LIVE.set_function(lambda: len(self._live))

    @classmethod
    async def join(
        cls,
        store: Membership,
        settings: ServerSettings,
        endpoints: Mapping[str, str],
        on_fenced: Callable[[], None] = lambda: None,
    ) -> "Member":
        """Register under the settings' name with these endpoints, and see who else is live. Raises `Unavailable`."""
        name = settings.name or default_name(endpoints)
        confirmed_at = asyncio.get_running_loop().time()
        registration = await register(
            store, name, zone=settings.zone, endpoints=endpoints, version=__version__, timeout_ms=settings.timeout_ms
        )
        own = Server(
            ref=registration.server,
            name=name,
            zone=settings.zone,
            endpoints=endpoints,
            version=__version__,
            is_draining=False,
            heartbeat_age_ms=0,
        )
        member = cls(store, registration, settings, own, on_fenced, confirmed_at)
        await member.refresh()
        return member

    @property
    def node_id(self) -> int:
        """This server's node id."""
        return self.server.node_id

    def live(self) -> Sequence[Server]:
        """Live servers by node id, always with this one, draining ones too; read on the hot path, no waiting."""
        return self._live

    def is_sure(self) -> bool:
        """Whether no other server can hold this one for dead: it sent its last successful heartbeat less than `timeout_ms` ago."""
        return asyncio.get_running_loop().time() - self._confirmed_at < self._settings.timeout_ms / 1000

    def has_peers(self) -> bool:
        """Whether clients of this server could go to another one: it is live, not draining, and listens for the same protocol."""
        own = set(self._own.endpoints) - {"admin"}
        return any(
            server.ref.node_id != self.node_id and not server.is_draining and not own.isdisjoint(server.endpoints)
            for server in self._live
        )

    async def run(self) -> None:
        """Heartbeats until cancelled. Ends after `on_fenced` was called only by waiting for its cancellation."""
        is_fenced = False
        while not is_fenced:
            await asyncio.sleep(self._settings.heartbeat_ms / 1000)
            is_fenced = await self._is_fenced_by_beat()
        log.error("a newer process of this name has registered, stopping", extra={"server": self.server})
        self._on_fenced()
        await asyncio.Event().wait()

    async def _is_fenced_by_beat(self) -> bool:
        try:
            await self.beat()
        except Fenced:
            return True
        return False

    async def beat(self) -> bool:
        """One heartbeat with its retries, then a fresh view; returns whether the store answered. Raises `Fenced`."""
        for _ in range(1 + self._settings.heartbeat_retry_count):
            sent_at = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._settings.timeout_ms / 2000):
                    await self._store.heartbeat(self.server)
                    _SENT.inc()
                    self._confirmed_at = sent_at
                    await self.refresh()
            except (Unavailable, TimeoutError) as error:
                _FAILED.inc()
                self._note_failure(error)
            else:
                self._note_success()
                return True
        return False

    async def refresh(self) -> None:
        """Read who is live now; those who ask while one reads share the next read. Raises `Unavailable`."""
        wanted = self._read_count + 1 + self._reading.locked()  # a read under way may have begun too early
        async with self._reading:
            if self._read_count < wanted:
                self._see(await self._store.live())
                self._read_count += 1

    def _see(self, live: Sequence[Server]) -> None:
        others = [server for server in live if server.ref.node_id != self.node_id]
        servers = sorted([self._own, *others], key=lambda server: server.ref.node_id)
        if _identity(servers) != _identity(self._live):
            self.version += 1
            log.debug("live servers changed", extra={"node_ids": [server.ref.node_id for server in servers]})
        self._live = servers

    async def drain(self) -> None:
        """Tell everybody that clients should go elsewhere. Raises `Fenced`, `Unavailable`."""
        metrics.SERVER_DRAINING.set(1)
        self._own = replace(self._own, is_draining=True)
        await self._store.drain(self.server)
        await self.refresh()

    async def leave(self) -> None:
        """Stop being live and give up all leases. Raises `Unavailable`."""
        await self._store.leave(self.server)

    def _note_failure(self, error: BaseException) -> None:
        if not self._is_failing:
            log.warning("heartbeat failed, trying on", extra={"error": error or type(error).__name__})
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            log.info("heartbeats succeed again")
        self._is_failing = False


def default_name(endpoints: Mapping[str, str]) -> str:
    """Host name and the first endpoint's port: one name per process of a host, the same after a restart."""
    first = next(iter(endpoints.values()), "")
    return f"{socket.gethostname()}:{first.rpartition(':')[2]}"


def _identity(servers: Sequence[Server]) -> list[tuple[object, ...]]:
    return [(server.ref, server.zone, dict(server.endpoints), server.is_draining) for server in servers]
