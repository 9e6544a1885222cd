"""Answers of `http.client` that end by a deadline, however slowly their bytes come.

A socket's timeout begins anew with each byte. `http.client` reads a whole line per call, and all trailers of an answer in one call without
a limit, so nobody who only reads an answer's content can end such an answer. So the deadline is that of the socket's reads: it holds for
the status line, headers, sizes of chunks, content and trailers alike.
"""

import socket
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any

from typing_extensions import override

LATE = "the answer did not end in time"


def in_time(kind: Callable[..., HTTPConnection], ends_at: float) -> Any:  # typeshed wants a class
    """Return what opens connections as `kind` does, for `urllib`; a read after `ends_at` (of `time.monotonic`) raises `TimeoutError`."""

    def opened(*given: Any, **named: Any) -> HTTPConnection:
        connection = kind(*given, **named)
        connection.response_class = partial(_Answer, ends_at=ends_at)  # type: ignore[assignment]
        return connection

    return opened


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
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(LATE)
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
