"""Writes to a TLS connection only as fast as its client reads.

The event loop's TLS encrypts everything that it is given at once and passes it to the socket's transport. It neither counts nor reports
what is there: a client that reads nothing could make a server hold an answer of any size (decision 165). `TlsTransport` passes on one TLS
record at a time, and keeps the others until the client has read the ones before.

    write() -> queue -> TLS, 16 to 32 KiB -> the socket's transport, at most 80 KiB -> socket
               counted  counted               not counted
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import override

_RECORD_BYTES = 16 * 1024
"""Largest TLS record (RFC 8446, section 5.1); what one write passes on, and what TLS holds before it asks to pause."""
_HIGH_BYTES = 64 * 1024
"""Unsent bytes above which the protocol pauses, as of the event loop's transports."""


class PausesWriting:
    """A protocol object of the event loop that learns in the same way of a full transport with TLS and without."""

    __slots__ = ()
    _tls: "TlsTransport | None"
    """The transport, if the connection is encrypted."""

    def pause_writing(self) -> None:
        """Called by the event loop: its buffer is full."""
        if self._tls is None:
            self._write_paused()
        else:
            self._tls.hold()

    def resume_writing(self) -> None:
        """Called by the event loop: its buffer has room again."""
        if self._tls is None:
            self._write_resumed()
        else:
            self._tls.release()

    def _write_paused(self) -> None:
        """The client does not read what it is sent."""
        raise NotImplementedError

    def _write_resumed(self) -> None:
        """The client has read what it was sent."""
        raise NotImplementedError


class TlsTransport(asyncio.Transport):
    """The transport of a TLS connection, in front of the event loop's.

    The event loop tells the protocol when its TLS is full and when it has room; the protocol passes that on: `hold`, `release`.
    """

    def __init__(
        self, below: asyncio.Transport, pause_writing: Callable[[], None], resume_writing: Callable[[], None]
    ) -> None:
        """`below` is the event loop's. `pause_writing` and `resume_writing` are called as by an event loop's transport."""
        super().__init__()
        self._below = below
        self._pause_writing = pause_writing
        self._resume_writing = resume_writing
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_held = False
        self._is_paused = False
        self._is_closing = False
        self._is_aborted = False
        below.set_write_buffer_limits(high=_RECORD_BYTES)

    def hold(self) -> None:
        """Pass nothing on: TLS is full."""
        self._is_held = True

    def release(self) -> None:
        """Pass on what waits: TLS has room again."""
        self._is_held = False
        self._pass_on()
        if self._is_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._is_paused = False
            self._resume_writing()

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
        if not self._is_paused and self._queue and self.get_write_buffer_size() > self._high_bytes:
            self._is_paused = True
            self._pause_writing()

    def _pass_on(self) -> None:
        queue = self._queue
        while queue and not self._is_held and not self._below.is_closing():
            record: list[memoryview] = []
            room = _RECORD_BYTES
            while queue and room:
                view = queue.popleft()
                if len(view) > room:
                    queue.appendleft(view[room:])
                    view = view[:room]
                record.append(view)
                room -= len(view)
            self._queued_bytes -= _RECORD_BYTES - room
            self._below.write(record[0] if len(record) == 1 else b"".join(record))
        if self._is_closing and not queue:
            self._below.close()

    @override
    def get_write_buffer_size(self) -> int:
        """The bytes that wait here and in TLS; at most 80 KiB more are in the socket's transport."""
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
