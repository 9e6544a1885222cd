"""Writes to a TLS connection only as fast as its client reads.

The event loop's TLS encrypts everything that it is given at once and passes it to the socket's transport. It neither counts nor reports
what is there: a client that reads nothing could make a server hold an answer of any size (decision 165). `TlsTransport` passes on one
piece at a time, and keeps the next one until the socket's transport has taken the one before. A protocol object behind `TlsProtocol` or
`BufferedTlsProtocol` sees it in place of the event loop's transport, and needs to know nothing of TLS.

    write() -> queue -> TLS, one piece -> the socket's transport, at most 64 KiB and one piece -> socket
               counted  counted           not counted
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from typing_extensions import override

PIECE_BYTES = 64 * 1024
"""What one write passes on: four TLS records. Smaller pieces cost more time per byte, larger ones more uncounted memory."""
_HIGH_BYTES = 64 * 1024
"""Unsent bytes above which the protocol pauses, as of the event loop's transports."""


class TlsTransport(asyncio.Transport):
    """The transport that the protocol object of a TLS connection sees, in front of the event loop's."""

    def __init__(self, below: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
        """`below` is the event loop's transport. This transport tells `protocol` when to pause writing and when to resume."""
        super().__init__()
        self._below = below
        self._protocol = protocol
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_held = False
        self._is_paused = False
        self._is_closing = False
        self._is_aborted = False
        below.set_write_buffer_limits(high=PIECE_BYTES)

    def hold(self) -> None:
        """Pass nothing on: TLS holds a piece that the socket's transport does not take."""
        self._is_held = True

    def release(self) -> None:
        """Pass on what waits: the socket's transport has taken what TLS held.

        The protocol resumes unless TLS holds a piece again: if it does not, nothing waits here, and no further release would come.
        """
        self._is_held = False
        self._pass_on()
        if self._is_paused and not self._is_held:
            self._is_paused = False
            self._protocol.resume_writing()

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines((data,))

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self.is_closing():
            return
        for data in list_of_data:
            if data:
                view = memoryview(data).cast("B")
                self._queue.append(view)
                self._queued_bytes += len(view)
        self._pass_on()
        if self._is_held and not self._is_paused and self.get_write_buffer_size() > self._high_bytes:
            self._is_paused = True
            self._protocol.pause_writing()

    def _pass_on(self) -> None:
        while self._queue and not self._is_held and not self._below.is_closing():
            self._below.write(self._take_piece())
        if self._is_closing and not self._queue:
            self._below.close()

    def _take_piece(self) -> bytes | memoryview:
        """Remove the next bytes from the queue. Small ones are joined: TLS makes at least one record of each write."""
        piece: list[memoryview] = []
        room = PIECE_BYTES
        while self._queue and room:
            view = self._queue.popleft()
            if len(view) > room:
                self._queue.appendleft(view[room:])
                view = view[:room]
            piece.append(view)
            room -= len(view)
        self._queued_bytes -= PIECE_BYTES - room
        return piece[0] if len(piece) == 1 else b"".join(piece)

    @override
    def get_write_buffer_size(self) -> int:
        """The bytes that wait here and in TLS."""
        return 0 if self._is_aborted else self._queued_bytes + self._below.get_write_buffer_size()

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    @override
    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    @override
    def close(self) -> None:
        """Close once all bytes are sent; reads nothing more. It has no time limit: a caller that needs one calls `abort`."""
        if not self.is_closing():
            self._is_closing = True
            self._below.pause_reading()
            self._pass_on()

    @override
    def abort(self) -> None:
        self._is_closing = self._is_aborted = True
        self._queue.clear()
        self._queued_bytes = 0
        self._below.abort()

    @override
    def is_closing(self) -> bool:
        return self._is_closing or self._below.is_closing()

    @override
    def pause_reading(self) -> None:
        self._below.pause_reading()

    @override
    def resume_reading(self) -> None:
        if not self._is_closing:
            self._below.resume_reading()

    @override
    def is_reading(self) -> bool:
        return self._below.is_reading()

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:  # Any: as of an event loop's transport
        return self._below.get_extra_info(name, default)

    @override
    def can_write_eof(self) -> bool:
        return False


class _Between(asyncio.BaseProtocol):
    """Stands between the event loop's TLS and the protocol object of a connection."""

    _transport: TlsTransport

    def __init__(self, protocol: asyncio.Protocol | asyncio.BufferedProtocol) -> None:
        self._protocol: Any = protocol  # Any: the subclasses know which of the two it is

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below: Any = transport  # uvloop's transports are not asyncio.Transport
        self._transport = TlsTransport(below, self._protocol)
        self._protocol.connection_made(self._transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def eof_received(self) -> bool | None:
        keeps_open: bool | None = self._protocol.eof_received()
        return keeps_open

    @override
    def pause_writing(self) -> None:
        self._transport.hold()

    @override
    def resume_writing(self) -> None:
        self._transport.release()


class TlsProtocol(_Between, asyncio.Protocol):
    """In front of a protocol object that takes bytes (`asyncio.Protocol`)."""

    @override
    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)


class BufferedTlsProtocol(_Between, asyncio.BufferedProtocol):
    """In front of a protocol object that has a buffer of its own (`asyncio.BufferedProtocol`)."""

    @override
    def get_buffer(self, sizehint: int) -> Any:  # Any: as of asyncio.BufferedProtocol
        return self._protocol.get_buffer(sizehint)

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.buffer_updated(nbytes)
