"""The connections of one protocol server: accepted on its listeners, counted, and checked every few seconds.

At most `connections_max` are open, including those in a TLS handshake (`handshakes.py`), and at most `address_connections_max` of one
client address; a further connection is closed at once. So is every new connection while batches of connections that have ended keep too
many receive buffers (`slabs.py`). This register also owns the server's tasks, which end with it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from bearlake.serving.addresses import AddressCounts, address_of
from bearlake.serving.handshakes import HandshakeLine, TlsAcceptor
from bearlake.serving.listener import BACKLOG_COUNT, Listener
from bearlake.serving.pacing import ConnectionMeters, PacedConnection
from bearlake.serving.slabs import SlabPool, SlabSettings
from bearlake.serving.slow_readers import SlowReaders
from bearlake.serving.tls_transport import BufferedTlsProtocol
from bearlake.telemetry.containment import contained, fault

log = logging.getLogger(__name__)

C = TypeVar("C", bound=PacedConnection)


class Connections(Generic[C]):
    """Open connections of a protocol server; implements `pacing.Register`."""

    def __init__(
        self,
        protocol: str,
        listeners: Sequence[Listener],
        meters: ConnectionMeters,
        *,
        connections_max: int,
        address_connections_max: int,
        receive_bytes_max: int,
        slow_readers: SlowReaders,
        check_ms: int,
        tls_handshake_ms: int,
    ) -> None:
        """`protocol` names the endpoints (`kafka`). `listeners` are already bound, and this object owns them from now on.

        `address_connections_max` bounds the connections of one client address; 0: no limit. `receive_bytes_max` bounds the total of the
        larger receive buffers of all connections and of those that only batches hold; clients share it (`slabs.py`).
        `slow_readers` bounds what clients have not read.
        `check_ms` is the time between checks. `tls_handshake_ms` is the time limit of a TLS handshake.
        """
        self.slabs = SlabPool(SlabSettings(bytes_max=receive_bytes_max, is_shared=True))
        self.slow_readers = slow_readers
        self.meters = meters
        self.loop: asyncio.AbstractEventLoop
        """The event loop that called `start`."""
        self._protocol = protocol
        self._listeners = list(listeners)
        self._connections_max = connections_max
        self._addresses = AddressCounts(address_connections_max)
        self._check_s = check_ms / 1000
        self._tls_handshake_s = tls_handshake_ms / 1000
        self._acceptors: list[asyncio.Server | TlsAcceptor] = []
        self._open: dict[C, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._line = HandshakeLine()
        self._handshakes: dict[C, str] = {}
        """Connections in a TLS handshake, with their addresses, which count them already."""
        meters.open.set_function(lambda: self._count)
        meters.receive_buffer_bytes.set_function(lambda: self.slabs.used_bytes)
        meters.receive_buffer_bytes_max.set(receive_bytes_max)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self._protocol) for listener in self._listeners)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        """Iterate over the connections that are open now, in the order in which they were opened; they may close meanwhile."""
        return iter(list(self._open))

    # -- life-cycle ----------------------------------------------------------------------------------------------

    async def start(self, connect: Callable[[str], C]) -> None:
        """Accept connections when this returns; `connect` makes a connection's protocol object, given its listener's endpoint."""
        self.loop = asyncio.get_running_loop()
        for listener in self._listeners:
            endpoint, _ = listener.endpoint(self._protocol)
            accept = partial(connect, endpoint)
            if listener.tls is None:
                serving = self.loop.create_server(accept, sock=listener.socket, backlog=BACKLOG_COUNT)
                self._acceptors.append(await serving)
            else:
                self._acceptors.append(TlsAcceptor(listener.socket, partial(self._accepted, listener.tls, accept)))

    async def check_periodically(self) -> None:
        """Check all connections every `check_ms`; ends only by cancellation. The task's owner notices its death (`owned_tasks.py`)."""
        while True:
            await asyncio.sleep(self._check_s)
            self.check()

    def stop_accepting(self) -> None:
        """Accept no more connections; open connections stay open. Safe to repeat."""
        for acceptor in self._acceptors:
            acceptor.close()

    async def close(self) -> None:
        """Close listeners and connections at once, and cancel all tasks. Safe to repeat and without `start`."""
        self._is_closed = True
        self.stop_accepting()
        for listener in self._listeners:
            listener.socket.close()
        for connection in self:
            connection.close("the server is stopping", "stopping")
        while self._tasks:  # a task that ends may begin the next one of its connection, which ends at once
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        """The number that `connections_max` bounds."""
        return len(self._open) + len(self._handshakes)

    @property
    def _is_full(self) -> bool:
        return self._count >= self._connections_max or self.slabs.is_left_to_batches

    def add(self, connection: C) -> bool:
        """Count an open connection; returns False if there are too many, or too many of its address."""
        self._end_handshake(connection)
        if self._is_full or not self._addresses.enter(connection.address):
            return False
        self._open[connection] = None
        self.meters.opened.inc()
        return True

    def remove(self, connection: C) -> None:
        """Remove a closed connection. Safe to repeat."""
        if connection in self._open:
            del self._open[connection]
            self._addresses.leave(connection.address)

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task; it is cancelled when the server closes. It does not begin if the server has closed."""
        task = self.loop.create_task(work)
        if self._is_closed:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def check(self) -> None:
        """Check every open connection once: close connections that stall or fall silent, and free memory of quiet ones.

        A check that fails is a bug; it closes its own connection only.
        """
        now = self.loop.time()
        for connection in self:
            contained(log, "check a connection", partial(connection.check, now), connection.failed)

    # -- TLS -----------------------------------------------------------------------------------------------------

    def _accepted(self, tls: ssl.SSLContext, connect: Callable[[], C], accepted: socket.socket) -> None:
        try:
            address = address_of(accepted.getpeername())
        except OSError:  # the client has gone
            accepted.close()
            return
        if self._is_full or not self._addresses.enter(address):
            self.meters.closed.labels("connections_max").inc()
            accepted.close()
            return
        connection = connect()
        self._handshakes[connection] = address
        self.run(self._shake_hands(tls, connection, accepted, address))

    async def _shake_hands(self, tls: ssl.SSLContext, connection: C, accepted: socket.socket, address: str) -> None:
        try:
            await self._line.shake_hands(
                accepted, address, tls, lambda: BufferedTlsProtocol(connection), self._tls_handshake_s
            )
        except OSError as error:
            self.meters.closed.labels("tls_handshake").inc()
            log.info("TLS handshake failed", extra={"listener": connection.listener, "error": repr(error)})
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "shake hands", error)
            accepted.close()
        finally:
            self._end_handshake(connection)

    def _end_handshake(self, connection: C) -> None:
        """Count a connection as one in a handshake no more. Safe to repeat."""
        address = self._handshakes.pop(connection, None)
        if address is not None:
            self._addresses.leave(address)
