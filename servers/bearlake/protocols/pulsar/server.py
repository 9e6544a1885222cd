"""The Pulsar server: listeners and connections of one process, and how they drain.

When other servers are live, a draining server stores and acknowledges the messages that each producer has sent, then sends the client a
CLOSE_PRODUCER that names another server. Consumers get a CLOSE_CONSUMER when the server gives up their subscriptions. The server silently
drops messages that arrive for a closed producer: the client sends them again to the other server. A connection closes when it has no
producers and consumers left. Without another server, the server finishes its pending messages and closes all connections.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bearlake.owned_tasks import Tasks
from bearlake.protocols.pulsar import handlers
from bearlake.protocols.pulsar.commands import CommandMeters
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.context import PROTOCOL, PulsarContext
from bearlake.protocols.pulsar.session import PulsarListenerLogin
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.serving.connections import Connections
from bearlake.serving.draining import until
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.pacing import ConnectionMeters
from bearlake.serving.slow_readers import SlowReaders
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas as Registry

log = logging.getLogger(__name__)

CHECK_MS = 1_000
"""Time (ms) between two checks for silent and stalled connections, for exclusive producers that lost their lease, and for changed access
rules."""


class PulsarServer:
    """A `serving.Service` that speaks the Pulsar protocol on one or more listeners."""

    def __init__(
        self,
        streams: Streams,
        registry: "Registry",
        servers: LiveServers,
        settings: PulsarSettings,
        listeners: Sequence[Listener],
        logins: Mapping[str, PulsarListenerLogin] | None = None,
    ) -> None:
        """`logins`: how clients log in, by endpoint; clients of other endpoints need not.

        `listeners` are already bound; the server owns and closes them. The caller owns `streams` and `registry`."""
        self.settings = settings
        self._logins = logins or {}
        schemes = {
            listener.endpoint(self.name)[0]: "pulsar" if listener.tls is None else "pulsar+ssl"
            for listener in listeners
        }
        self.context = PulsarContext(streams, registry, servers, settings, schemes)
        self.connections: Connections[Connection] = Connections(
            self.name,
            listeners,
            _meters(),
            connections_max=settings.connections_max,
            address_connections_max=settings.address_connections_max,
            receive_bytes_max=settings.receive_bytes_max,
            slow_readers=SlowReaders(settings.unread_bytes_max),
            check_ms=CHECK_MS,
            tls_handshake_ms=settings.tls_handshake_ms,
        )
        self._command_meters = CommandMeters(handlers.NAMES)
        metrics.PULSAR_PRODUCERS.set_function(lambda: self.context.producer_count)
        metrics.PULSAR_CONSUMERS.set_function(lambda: sum(len(connection.consumers) for connection in self.connections))
        metrics.PULSAR_WATCHERS.set_function(lambda: len(self.context.watchers))
        metrics.PULSAR_WATCHED_NAMES.set_function(lambda: self.context.watchers.name_count)

    @property
    def name(self) -> str:
        """`pulsar`."""
        return PROTOCOL

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The advertised `host:port` of each listener."""
        return self.connections.endpoints

    async def start(self) -> None:
        """Accept connections when this returns."""
        await self.connections.start(self._connect)

    async def run(self) -> None:
        """Check connections and the leases of exclusive producers until cancelled. The process runs this as one of its tasks."""
        async with Tasks() as tasks:
            tasks.own("check Pulsar connections", self.connections.check_periodically())
            tasks.own("verify exclusive producers", self._verify_for_ever())
            tasks.own("apply changed access rules", self._follow_rules())
            tasks.own("update watched topic lists", self.context.watchers.run())
            await tasks.run()

    async def _verify_for_ever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_MS / 1000)
            await self.context.access.verify()

    async def _follow_rules(self) -> None:
        """Apply changed access rules to idle clients. A change is safe without this: every use of a topic asks for the right."""
        access = self.context.streams.access
        revision = access.revision
        while True:
            await asyncio.sleep(CHECK_MS / 1000)
            if access.revision != revision:
                revision = access.revision
                await self.check_rights()

    async def check_rights(self) -> None:
        """Close producers and consumers that lost their right, and update watched topic lists; one client per turn of the event loop."""
        for connection in list(self.connections):
            contained(log, "check the rights of a client", connection.check_rights, connection.failed)
            await asyncio.sleep(0)
        self.context.watchers.check()

    def _connect(self, endpoint: str) -> Connection:
        login = self._logins.get(endpoint)
        return Connection(self.connections, self.context, handlers, self._command_meters, endpoint, login)

    async def drain(self, deadline_ms: int) -> None:
        """Drain as described in the module docstring; returns within `deadline_ms`."""
        self.context.is_draining = True
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                for connection in self.connections:
                    connection.move_producers()
                await until(lambda: not self.context.producer_count)
                await self.context.subscriptions.drain()
                for connection in self.connections:
                    connection.move_consumers()
                if self._has_others():
                    async with asyncio.timeout(min(self.settings.drain_move_ms, deadline_ms / 2) / 1000):
                        await until(lambda: not self.connections)
        except TimeoutError:
            log.info("draining: closing connections", extra={"connections": len(self.connections)})
        self.connections.stop_accepting()
        for connection in self.connections:
            connection.finish()
        await self.context.streams.drain()

    def _has_others(self) -> bool:
        return any(self.context.elsewhere("", endpoint) is not None for endpoint in self.endpoints)

    async def close(self) -> None:
        """Close listeners and connections at once."""
        self.context.watchers.close()
        self.context.preparer.close()
        await self.connections.close()


def _meters() -> ConnectionMeters:
    return ConnectionMeters(
        open=metrics.PULSAR_CONNECTIONS,
        opened=metrics.PULSAR_CONNECTIONS_OPENED,
        closed=metrics.PULSAR_CONNECTIONS_REFUSED,
        paused=metrics.PULSAR_PAUSED,
        malformed=metrics.PULSAR_MALFORMED_FRAMES,
        received_bytes=metrics.PULSAR_RECEIVED_BYTES,
        sent_bytes=metrics.PULSAR_SENT_BYTES,
        receive_buffer_bytes=metrics.PULSAR_RECEIVE_BYTES,
        receive_buffer_bytes_max=metrics.PULSAR_RECEIVE_BYTES_MAX,
    )
