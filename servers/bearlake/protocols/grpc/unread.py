"""What clients of the gRPC server have not read (decision 242).

gRPC keeps a message in memory until the client's flow control takes it. A client that takes nothing, but answers probes, could therefore
make the server hold a message for each of its calls. Every larger message is counted until gRPC has passed it on. Above the bound, the
connections of the clients that have not read for longest are closed, as on the other servers (`serving/slow_readers.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from bearlake.serving.slow_readers import SlowReaders
from bearlake.telemetry import metrics

BYTES_MIN = 4 * 1024
"""Smaller messages are not counted: `calls_max` bounds them."""


class Answered(Protocol):
    """The part of `grpc.aio.ServicerContext` that says when a call has ended."""

    def peer(self) -> str: ...  # noqa: D102
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...  # noqa: D102


class _Connection:
    """A `SlowReader`: the messages of all calls of one connection."""

    __slots__ = ("_closing", "_peer", "is_closed", "message_count", "read_bytes", "unread_bytes")

    def __init__(self, peer: str, closing: set[str]) -> None:
        self._peer = peer
        self._closing = closing
        self.is_closed = False
        self.message_count = 0
        self.read_bytes = 0
        self.unread_bytes = 0

    def give_up(self) -> None:
        """Let the server close the connection at its next check."""
        if not self.is_closed:
            self.is_closed = True
            self._closing.add(self._peer)
            metrics.GRPC_SLOW_READERS.inc()


class UnreadMessages:
    """The messages of one server. Use it from the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of the messages of all connections."""
        self._slow = SlowReaders(bytes_max)
        self._connections: dict[str, _Connection] = {}
        self.closing: set[str] = set()
        """Connections to close, by gRPC's name of the peer. Who closes them empties the set."""

    @property
    def size_bytes(self) -> int:
        """The bytes that clients have not read."""
        return self._slow.unread_bytes

    @contextmanager
    def sending(self, context: Answered, size: int) -> Iterator[None]:
        """Count a message of a call, of so many bytes, in the block, which ends once gRPC has passed it on, or the call has ended."""
        if size < BYTES_MIN:
            yield
            return
        peer = context.peer()
        self._began(peer, size)
        try:
            yield
        finally:
            self._ended(peer, size)

    def answering(self, context: Answered, size: int) -> None:
        """Count the only answer of a call, of so many bytes, until the call has ended."""
        if size >= BYTES_MIN:
            peer = context.peer()
            self._began(peer, size)
            context.add_done_callback(lambda _: self._ended(peer, size))

    def _began(self, peer: str, size: int) -> None:
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = _Connection(peer, self.closing)
        connection.message_count += 1
        connection.unread_bytes += size
        self._record(connection)

    def _ended(self, peer: str, size: int) -> None:
        connection = self._connections[peer]
        connection.message_count -= 1
        connection.unread_bytes -= size
        connection.read_bytes += size
        self._record(connection)
        if not connection.message_count:
            del self._connections[peer]

    def _record(self, connection: _Connection) -> None:
        self._slow.record(connection, 0 if connection.is_closed else connection.unread_bytes)
