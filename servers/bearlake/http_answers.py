"""Requests of `http.client` that end by a deadline, however slowly their bytes come.

A socket's timeout begins anew for each address of a host, for the TLS handshake, and with each byte. `http.client` reads a whole line per
call, and all trailers of an answer in one call without a limit, so nobody who only reads an answer's content can end such an answer. So the
deadline is that of the socket: it holds for connections, the handshake, the request, the status line, headers, sizes of chunks, content and
trailers alike. Only the resolver of the machine has a limit of its own.
"""

import socket
import time
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from typing import Any

from typing_extensions import override

LATE = "the answer did not end in time"
_PIECE_BYTES = 64 * 1024
"""Bytes of a request that are sent together: with TLS, a socket's timeout begins anew for each call."""


class InTime(HTTPConnection):
    """A connection whose steps raise `TimeoutError` after `ends_at` (of `time.monotonic`).

    `timeout` is the longest time of a step without a byte; None: any.
    """

    def __init__(self, *given: Any, ends_at: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._ends_at = ends_at
        self._create_connection = self._connected
        self.response_class = partial(_Answer, ends_at=ends_at)  # type: ignore[assignment]

    def _connected(
        self, address: tuple[str, int], timeout: float | None, source_address: tuple[str, int] | None = None
    ) -> socket.socket:
        """As `socket.create_connection`, but the host's addresses share the time that is left."""
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, place) in enumerate(found):
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(_pause_s(timeout, _left_s(self._ends_at) / (len(found) - number)))
                if source_address is not None:
                    opened.bind(source_address)
                opened.connect(place)
                opened.settimeout(_pause_s(timeout, _left_s(self._ends_at)))  # of the handshake
            except OSError:
                opened.close()
                if number + 1 == len(found):
                    raise
            else:
                return opened
        raise OSError("the host has no address")

    @override
    def send(self, data: Any) -> None:
        if self.sock is None and self.auto_open:
            self.connect()
        pieces = [data]
        if isinstance(data, bytes):
            pieces = [data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)]
        for piece in pieces:
            self.sock.settimeout(_pause_s(self.timeout, _left_s(self._ends_at)))
            super().send(piece)


class InTimeTls(InTime, HTTPSConnection):
    """The same with TLS."""


def _left_s(ends_at: float) -> float:
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(LATE)
    return left_s


def _pause_s(timeout: object, left_s: float) -> float:
    """`timeout`: seconds; anything else: `http.client` was given none."""
    return min(timeout, left_s) if isinstance(timeout, int | float) else left_s


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *given: Any, ends_at: float, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = BufferedReader(_Reads(self.fp.detach(), sock, ends_at))


class _Reads(RawIOBase):
    """The reads of a socket; `raw` is the file that `socket.makefile` has made of it."""

    def __init__(self, raw: Any, sock: socket.socket, ends_at: float) -> None:  # raw: a SocketIO
        self._raw = raw
        self._socket = sock
        self._ends_at = ends_at
        self._pause_s = sock.gettimeout()
        """The longest time between bytes; None: any."""

    @override
    def readable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        number: int = self._raw.fileno()
        return number

    @override
    def readinto(self, buffer: Any) -> int | None:
        left_s = _left_s(self._ends_at)
        is_last = self._pause_s is None or left_s < self._pause_s
        self._socket.settimeout(left_s if is_last else self._pause_s)
        try:
            count: int | None = self._raw.readinto(buffer)
        except TimeoutError as error:
            if is_last:
                raise TimeoutError(LATE) from error
            raise
        return count

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()
