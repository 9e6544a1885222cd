"""The Kafka server: listeners and connections of one process, and their drain.

Kafka has no "go away": to drain, this server leaves Metadata (its membership says so) and gives up its groups, keeps serving while
clients refresh, then answers produce and fetch with NOT_LEADER_OR_FOLLOWER, which makes them refresh at once, and closes connections as
they fall idle. Towards the end, and at once when there is no other server to go to, it takes no more requests, answers those
that it has, and closes.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import NamedTuple

from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka.connection import Connection
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving import routing
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.slabs import SlabPool, SlabSettings
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.meters import Counter, Histogram

log = logging.getLogger(__name__)

SWEEP_MS = 5_000
"""Pause between two looks at idle connections."""
DRAIN_POLL_MS = 20
TLS_HANDSHAKE_S = 10
"""Time (s) that a client may take for the TLS handshake."""


class _Meters(NamedTuple):
    requests: Counter
    seconds: Histogram


class KafkaServer:
    """A `serving.Service` that speaks the Kafka protocol on one or more listeners."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: KafkaSettings,
        listeners: Sequence[Listener],
    ) -> None:
        """`listeners` are bound already; they belong to the server then."""
        self.settings = settings
        self.context = KafkaContext(streams, servers, settings)
        self.apis = apis.BY_KEY
        self.handlers = apis.handlers()
        self.meters: dict[int, _Meters] = {
            api.key: _Meters(
                metrics.KAFKA_REQUESTS.labels(api.key.name), metrics.KAFKA_REQUEST_SECONDS.labels(api.key.name)
            )
            for api in apis.APIS
        }
        self.slabs = SlabPool(SlabSettings(bytes_max=settings.receive_bytes_max))
        self.loop: asyncio.AbstractEventLoop
        self._listeners = list(listeners)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        metrics.KAFKA_CONNECTIONS.set_function(lambda: len(self._connections))
        metrics.KAFKA_RECEIVE_BYTES.set_function(lambda: self.slabs.used_bytes)
        metrics.KAFKA_RECEIVE_BYTES_MAX.set(settings.receive_bytes_max)
        metrics.KAFKA_UNSENT_BYTES.set_function(lambda: self.context.unsent_bytes)
        metrics.KAFKA_UNSENT_BYTES_MAX.set(settings.unsent_bytes_max)

    @property
    def name(self) -> str:
        """`kafka`."""
        return "kafka"

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self.name) for listener in self._listeners)

    async def start(self) -> None:
        """Accept connections when this returns."""
        self.loop = asyncio.get_running_loop()
        for listener in self._listeners:
            endpoint, _ = listener.endpoint(self.name)
            server = await self.loop.create_server(
                lambda endpoint=endpoint: Connection(self, endpoint),
                sock=listener.socket,
                ssl=listener.tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if listener.tls else None,
            )
            self._servers.append(server)
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        until = self.loop.time() + deadline_ms / 1000
        try:
            async with asyncio.timeout_at(until):
                # The last quarter is for those who did not leave, and for what they wait for.
                await self._send_clients_away(until - deadline_ms / 4000, deadline_ms)
                self._stop_accepting()
                while self._connections:
                    for connection in list(self._connections):
                        connection.finish()
                    await asyncio.sleep(DRAIN_POLL_MS / 1000)
                await self.context.streams.drain()
        except TimeoutError:
            log.warning("draining took too long", extra={"connections": len(self._connections)})

    async def _send_clients_away(self, until: float, deadline_ms: int) -> None:
        """While there are other servers, and until then: let clients leave by themselves, then tell them to."""
        redirect_at = self.loop.time() + min(self.settings.drain_redirect_after_ms, deadline_ms / 4) / 1000
        if self._has_others():
            await self.context.groups.drain()
        while self._connections and self._has_others() and self.loop.time() < until:
            if not self.context.is_redirecting and self.loop.time() >= redirect_at:
                self.context.is_redirecting = True
                self._stop_accepting()
                log.info("draining: clients are told to go elsewhere", extra={"connections": len(self._connections)})
            if self.context.is_redirecting:
                for connection in list(self._connections):
                    connection.close_if_idle()
            await asyncio.sleep(DRAIN_POLL_MS / 1000)

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Close listeners and connections at once."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stop_accepting()
        for listener in self._listeners:
            listener.socket.close()
        for connection in list(self._connections):
            connection.close("the server stops", "stopping")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> bool:
        """Count a new connection; False when there are too many."""
        if len(self._connections) >= self.settings.connections_max:
            return False
        self._connections.add(connection)
        metrics.KAFKA_CONNECTIONS_OPENED.inc()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def run_request(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a request as a task; it is cancelled when the server closes."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def is_over_budget(self) -> bool:
        """Whether no Produce request must be taken now: too much is waiting to be written."""
        return self.context.streams.is_over_budget

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again."""
        self.context.streams.on_relief(resume)

    def sweep(self) -> None:
        """Look at every connection once: close those that are idle or stalled, take memory back from those that are quiet."""
        now = self.loop.time()
        for connection in list(self._connections):
            idle_ms = (now - connection.last_active) * 1000
            connection.close_if_stalled(now)
            if idle_ms > self.settings.idle_ms:
                connection.close_if_idle()
            elif idle_ms > SWEEP_MS:
                connection.release_idle_memory()

    def _sweep(self) -> None:
        self.sweep()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)

    def _has_others(self) -> bool:
        live = self.context.servers.live()
        others = [server for server in live if server.ref.node_id != self.context.node_id]
        return any(not server.is_draining for server in routing.candidates(others, self.name))
