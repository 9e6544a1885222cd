"""The connections of one protocol server: they are accepted on its listeners, counted, and checked every few seconds.

At most `connections_max` are open; a further one is closed at once. The server's tasks belong to this register too, and end with it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from bearlake.serving.listener import Listener
from bearlake.serving.pacing import ConnectionMeters, PacedConnection
from bearlake.serving.slabs import SlabPool, SlabSettings

C = TypeVar("C", bound=PacedConnection)

TLS_HANDSHAKE_S = 10
"""Time (s) that a client may take for the TLS handshake."""


class Connections(Generic[C]):
    """Open connections of a protocol server; a `pacing.Register`."""

    def __init__(
        self,
        protocol: str,
        listeners: Sequence[Listener],
        meters: ConnectionMeters,
        *,
        connections_max: int,
        receive_bytes_max: int,
        check_ms: int,
        on_check: Callable[[], object] = lambda: None,
    ) -> None:
        """`protocol` names the endpoints (`kafka`). `listeners` are bound already and belong to this object from now on.

        `receive_bytes_max` bounds the larger receive buffers of all connections together; `check_ms` is the time between two checks.
        `on_check` is called after each check.
        """
        self.slabs = SlabPool(SlabSettings(bytes_max=receive_bytes_max))
        self.meters = meters
        self.loop: asyncio.AbstractEventLoop
        """The loop of `start`."""
        self._protocol = protocol
        self._listeners = list(listeners)
        self._connections_max = connections_max
        self._check_s = check_ms / 1000
        self._on_check = on_check
        self._acceptors: list[asyncio.Server] = []
        self._open: set[C] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        meters.open.set_function(lambda: len(self._open))
        meters.receive_buffer_bytes.set_function(lambda: self.slabs.used_bytes)
        meters.receive_buffer_bytes_max.set(receive_bytes_max)

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return dict(listener.endpoint(self._protocol) for listener in self._listeners)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        """The connections that are open now; they may close meanwhile."""
        return iter(list(self._open))

    # -- life-cycle ----------------------------------------------------------------------------------------------

    async def start(self, connect: Callable[[str], C]) -> None:
        """Accept connections when this returns; `connect` makes the protocol object of one, given its listener's endpoint."""
        self.loop = asyncio.get_running_loop()
        for listener in self._listeners:
            endpoint, _ = listener.endpoint(self._protocol)
            acceptor = await self.loop.create_server(
                lambda endpoint=endpoint: connect(endpoint),
                sock=listener.socket,
                ssl=listener.tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if listener.tls else None,
            )
            self._acceptors.append(acceptor)
        self._timer = self.loop.call_later(self._check_s, self._check_again)

    def stop_accepting(self) -> None:
        """Accept no more connections; those that are open stay open. Safe to repeat."""
        for acceptor in self._acceptors:
            acceptor.close()

    async def close(self) -> None:
        """Close listeners and connections at once, and cancel all tasks. Safe to repeat and without `start`."""
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        for listener in self._listeners:
            listener.socket.close()
        for connection in self:
            connection.close("the server stops", "stopping")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------

    def add(self, connection: C) -> bool:
        """Count an open connection; returns False when there are too many."""
        if len(self._open) >= self._connections_max:
            return False
        self._open.add(connection)
        self.meters.opened.inc()
        return True

    def remove(self, connection: C) -> None:
        """Forget a connection that is closed. Safe to repeat."""
        self._open.discard(connection)

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task; it is cancelled when the server closes."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def check(self) -> None:
        """Check every open connection once: close those that stall or fall silent, take memory back from those that are quiet."""
        now = self.loop.time()
        for connection in self:
            connection.check(now)

    def _check_again(self) -> None:
        self.check()
        self._on_check()
        self._timer = self.loop.call_later(self._check_s, self._check_again)
