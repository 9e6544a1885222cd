"""Accept the connections of a TLS listener before their handshake, so that a connection counts from the start.

The event loop's own TLS server reports a connection only after the handshake, so a client could open any number of uncounted connections.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

ACCEPT_COUNT_MAX = 64
"""Connections accepted in a row before other callbacks of the event loop run."""
PAUSE_S = 1.0
"""Pause (s) after an error of the listening socket, such as too many open files."""


class TlsAcceptor:
    """Accepts connections of one listening socket until it is closed. The event loop calls it; it has no task that could die."""

    def __init__(self, listening: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Start to accept; `accepted` gets each socket, non-blocking, and must close it. This object owns `listening`."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._accepted = accepted
        self._is_closed = False
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more, and close the listening socket. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listening.fileno())
        self._listening.close()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_COUNT_MAX):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections; retrying", extra={"error": repr(error)})
                self._loop.remove_reader(self._listening.fileno())
                self._pause = self._loop.call_later(PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            self._accepted(accepted)
