"""The Pulsar server: listeners and connections of one process, and their drain.

Draining beside other servers, each producer's messages that were taken are finished and receipted, then it is told where to go; consumers
are told when their subscriptions are given up here. What clients send to producers that have left is dropped in silence: they send it
again where they went. Connections close when nothing is left on them. Without another server, what was taken is finished, and
then connections close.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from bearlake.protocols.pulsar import commands, handlers
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.framing import PADDING_BYTES, entry_bytes_max
from bearlake.protocols.pulsar.proto.commands_pb2 import ServerError
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.slabs import SlabPool, SlabSettings
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas as Registry

log = logging.getLogger(__name__)

SWEEP_MS = 1_000
"""Pause between two looks at silent connections."""
DRAIN_POLL_MS = 20
_RECORDS_RATIO = 8
"""Largest size of records, in that of the payload they came in: a message of few bytes can become a record with a reserved header."""
TLS_HANDSHAKE_S = 10
"""Time (s) that a client may take for the TLS handshake."""


class PulsarServer:
    """A `serving.Service` that speaks the Pulsar protocol on one or more listeners."""

    def __init__(
        self,
        streams: Streams,
        registry: "Registry",
        servers: LiveServers,
        settings: PulsarSettings,
        listeners: Sequence[Listener],
    ) -> None:
        """`listeners` are bound already; they belong to the server then, `streams` and `registry` to the caller."""
        self.settings = settings
        self.context = PulsarContext(streams, registry, servers, settings)
        self.slabs = SlabPool(SlabSettings(bytes_max=settings.receive_bytes_max))
        self.frame_bytes_max = settings.message_bytes_max + PADDING_BYTES
        self.send_limits = (
            min(settings.message_bytes_max, settings.uncompressed_bytes_max // _RECORDS_RATIO),
            entry_bytes_max(settings.message_bytes_max),
        )
        """Largest payload, and largest message with its metadata, of a SEND that the kernel may take by itself."""
        self.loop: asyncio.AbstractEventLoop
        self.schemes = {
            listener.endpoint(self.name)[0]: "pulsar" if listener.tls is None else "pulsar+ssl"
            for listener in listeners
        }
        """URL schemes by endpoint."""
        self._listeners = list(listeners)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._requests = {
            number: metrics.PULSAR_COMMANDS.labels(name)
            for number, name in commands.NAMES.items()
            if name in handlers.NAMES
        }
        self._expose()

    @property
    def name(self) -> str:
        """`pulsar`."""
        return "pulsar"

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
                lambda endpoint=endpoint: Connection(self, endpoint, self.schemes[endpoint]),
                sock=listener.socket,
                ssl=listener.tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if listener.tls else None,
            )
            self._servers.append(server)
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        self.context.is_draining = True
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                for connection in list(self._connections):
                    connection.move_producers()
                await self._until(lambda: not self.context.producer_count)
                await self.context.subscriptions.drain()
                for connection in list(self._connections):
                    connection.move_consumers()
                if self._has_others():
                    async with asyncio.timeout(min(self.settings.drain_move_ms, deadline_ms / 2) / 1000):
                        await self._until(lambda: not self._connections)
        except TimeoutError:
            log.info("draining: connections are closed", extra={"connections": len(self._connections)})
        self._stop_accepting()
        for connection in list(self._connections):
            connection.finish()
        await self.context.streams.drain()

    def _has_others(self) -> bool:
        return any(self.context.elsewhere("", endpoint) is not None for endpoint in self.endpoints)

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():  # noqa: ASYNC110 - it is so at the end of many callbacks
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
        self.context.watchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task of the server's own; it is cancelled when the server closes."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def add(self, connection: Connection) -> bool:
        """Count a new connection; False when there are too many."""
        if len(self._connections) >= self.settings.connections_max:
            return False
        self._connections.add(connection)
        metrics.PULSAR_CONNECTIONS_OPENED.inc()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def count(self, number: int, times: int = 1) -> None:
        """Count a command by its number."""
        meter = self._requests.get(number)
        (_OTHER if meter is None else meter).inc(times)

    def count_error(self, number: int) -> None:
        """Count an error that a client was answered with."""
        metrics.PULSAR_ERRORS.labels(ServerError.Name(number)).inc()

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def sweep(self) -> None:
        """Look at every connection once: ask silent clients for a word, close those that stay silent or stall."""
        now = self.loop.time()
        for connection in list(self._connections):
            connection.look_after(now)

    def _sweep(self) -> None:
        self.sweep()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)

    def _expose(self) -> None:
        metrics.PULSAR_CONNECTIONS.set_function(lambda: len(self._connections))
        metrics.PULSAR_PRODUCERS.set_function(lambda: self.context.producer_count)
        metrics.PULSAR_CONSUMERS.set_function(lambda: sum(len(one.consumers) for one in self._connections))
        metrics.PULSAR_WATCHERS.set_function(lambda: len(self.context.watchers))
        metrics.PULSAR_RECEIVE_BYTES.set_function(lambda: self.slabs.used_bytes)
        metrics.PULSAR_RECEIVE_BYTES_MAX.set(self.settings.receive_bytes_max)


_OTHER = metrics.PULSAR_COMMANDS.labels("other")
