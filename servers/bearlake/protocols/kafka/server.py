"""The Kafka server: listeners and connections of one process, and how they drain.

Kafka's protocol has no message that redirects a client. Draining therefore has three steps:

1. The server's registration is marked as draining, so Metadata no longer lists the server. It gives up its groups and keeps serving
   while clients refresh their metadata.
2. It answers Produce and Fetch with NOT_LEADER_OR_FOLLOWER, which makes clients refresh at once, and closes idle connections.
3. It reads no more requests, answers the requests it has read, and closes. Without another server, step 3 starts at once.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bearlake.protocols.kafka import dispatch
from bearlake.protocols.kafka.connection import Connection
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.login import KafkaListenerLogin
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving import routing
from bearlake.serving.connections import Connections
from bearlake.serving.draining import POLL_S
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers, other_servers
from bearlake.serving.pacing import ConnectionMeters
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.shares import ShareReach

log = logging.getLogger(__name__)

CHECK_MS = 5_000
"""Time (ms) between two checks for idle and stalled connections."""


class KafkaServer:
    """A `serving.Service` that speaks the Kafka protocol on one or more listeners."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: KafkaSettings,
        listeners: Sequence[Listener],
        logins: Mapping[str, KafkaListenerLogin] | None = None,
        share_reach: "ShareReach | None" = None,
    ) -> None:
        """`listeners` are already bound; the server owns and closes them. `logins`: how clients log in, by endpoint.

        `share_reach`: as in `KafkaContext`.
        """
        self.settings = settings
        self.context = KafkaContext(streams, servers, settings, share_reach)
        self._logins = logins or {}
        self.connections: Connections[Connection] = Connections(
            self.name,
            listeners,
            _meters(),
            connections_max=settings.connections_max,
            address_connections_max=settings.address_connections_max,
            receive_bytes_max=settings.receive_bytes_max,
            slow_readers=self.context.slow_readers,
            check_ms=CHECK_MS,
            tls_handshake_ms=settings.tls_handshake_ms,
        )
        self._apis = dispatch.served()
        metrics.KAFKA_UNSENT_BYTES.set_function(lambda: self.context.slow_readers.unread_bytes)
        metrics.KAFKA_UNSENT_BYTES_MAX.set(settings.unsent_bytes_max)

    @property
    def name(self) -> str:
        """`kafka`."""
        return "kafka"

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The advertised `host:port` of each listener."""
        return self.connections.endpoints

    async def start(self) -> None:
        """Accept connections when this returns."""
        await self.connections.start(self._connection)

    def _connection(self, endpoint: str) -> Connection:
        return Connection(self.connections, self.context, self._apis, endpoint, self._logins.get(endpoint))

    async def run(self) -> None:
        """Check connections until cancelled. The process runs this as one of its tasks."""
        await self.connections.check_periodically()

    async def drain(self, deadline_ms: int) -> None:
        """Drain as described in the module docstring; returns within `deadline_ms`."""
        until = self.connections.loop.time() + deadline_ms / 1000
        try:
            async with asyncio.timeout_at(until):
                # The last quarter of the time is for clients that have not left, and for their pending requests.
                await self._send_clients_away(until - deadline_ms / 4000, deadline_ms)
                self.connections.stop_accepting()
                while self.connections:
                    for connection in self.connections:
                        connection.finish()
                    await asyncio.sleep(POLL_S)
                await self.context.streams.drain()
        except TimeoutError:
            log.warning("draining exceeded its deadline", extra={"connections": len(self.connections)})

    async def _send_clients_away(self, until: float, deadline_ms: int) -> None:
        """Let clients leave on their own, then redirect them. Returns at `until` (loop time, s), or when no other server is left."""
        redirect_at = self.connections.loop.time() + min(self.settings.drain_redirect_after_ms, deadline_ms / 4) / 1000
        if self._has_others():
            await self.context.streams.release_groups()
        while self.connections and self._has_others() and self.connections.loop.time() < until:
            if not self.context.is_redirecting and self.connections.loop.time() >= redirect_at:
                self.context.redirect()
                self.connections.stop_accepting()
                log.info("draining: redirecting clients to other servers", extra={"connections": len(self.connections)})
            if self.context.is_redirecting:
                for connection in self.connections:
                    connection.close_if_idle()
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """Close listeners and connections at once."""
        await self.connections.close()
        self.context.workers.shutdown(wait=False, cancel_futures=True)

    def _has_others(self) -> bool:
        others = other_servers(self.context.servers)
        return any(not server.is_draining for server in routing.candidates(others, self.name))


def _meters() -> ConnectionMeters:
    return ConnectionMeters(
        open=metrics.KAFKA_CONNECTIONS,
        opened=metrics.KAFKA_CONNECTIONS_OPENED,
        closed=metrics.KAFKA_CONNECTIONS_REFUSED,
        paused=metrics.KAFKA_PAUSED,
        malformed=metrics.KAFKA_MALFORMED_FRAMES,
        received_bytes=metrics.KAFKA_RECEIVED_BYTES,
        sent_bytes=metrics.KAFKA_SENT_BYTES,
        receive_buffer_bytes=metrics.KAFKA_RECEIVE_BYTES,
        receive_buffer_bytes_max=metrics.KAFKA_RECEIVE_BYTES_MAX,
    )
