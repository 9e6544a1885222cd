"""Accept the connections of a TLS listener before their handshake, so that a connection counts from the start, and begin few at a time.

The event loop's own TLS server reports a connection only after the handshake, so a client could open any number of uncounted connections.
It also does the arithmetic of all handshakes at once that have arrived: 1,000 of them, sent by one client at the same time, delayed all
others by 4 s (RSA with 2,048 bits; 17 s with 4,096).
"""

import asyncio
import logging
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable

log = logging.getLogger(__name__)

ACCEPT_COUNT_MAX = 64
"""Connections accepted in a row before other callbacks of the event loop run."""
BEGUN_AT_ONCE = 8
"""Handshakes that begin in one turn of the event loop: each takes about 1 ms, with large keys 5."""
RUNNING_MAX = 64
"""Handshakes that have begun and not ended. One address has half of them."""
_HANDSHAKE_RECORD = 22
_RECORD_HEAD_BYTES = 5
_RECORD_BYTES_MAX = _RECORD_HEAD_BYTES + 16 * 1024
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


async def first_record(accepted: socket.socket) -> None:
    """Wait until the first TLS record has arrived, or the client has gone; reads nothing. At once on systems other than Linux.

    So a client that sends nothing takes no place among the handshakes that have begun. Raises `OSError`.
    Source: RFC 8446, 5.1 (record layer).
    """
    if sys.platform != "linux":  # no SO_RCVLOWAT for polls
        return
    loop = asyncio.get_running_loop()
    needed = _RECORD_HEAD_BYTES
    while True:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
        readable = loop.create_future()
        loop.add_reader(accepted.fileno(), _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(accepted.fileno())
        head = accepted.recv(_RECORD_BYTES_MAX, socket.MSG_PEEK)
        length = _RECORD_HEAD_BYTES + int.from_bytes(head[3:5], "big")
        is_over = len(head) < needed or head[0] != _HANDSHAKE_RECORD  # the client has gone, or does not speak TLS
        if is_over or len(head) >= min(length, _RECORD_BYTES_MAX):
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return
        needed = min(length, _RECORD_BYTES_MAX)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class HandshakeLine:
    """Handshakes that wait to begin, by address; addresses take turns. Use it from the event loop's thread only."""

    def __init__(self) -> None:
        self._line: dict[str, deque[asyncio.Future[None]]] = {}
        self._running: Counter[str] = Counter()
        self._is_moving = False

    async def enter(self, address: str) -> None:
        """Wait until a handshake of this address may begin. The caller then calls `leave`."""
        turn = asyncio.get_running_loop().create_future()
        self._line.setdefault(address, deque()).append(turn)
        self._wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(address)
            raise

    def leave(self, address: str) -> None:
        """Note that a handshake has ended."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        self._wake()

    def _wake(self) -> None:
        if self._line and not self._is_moving:
            self._is_moving = True
            asyncio.get_running_loop().call_soon(self._move)

    def _move(self) -> None:
        """Begin a few handshakes, one of each address in turn."""
        begun = 0
        for address in list(self._line):
            if begun == BEGUN_AT_ONCE or self._running.total() == RUNNING_MAX:
                break
            begun += self._begin(address)
        self._is_moving = False
        if begun:
            self._wake()

    def _begin(self, address: str) -> bool:
        """Begin a handshake of the address, if it has not too many; the address then goes to the end of the line."""
        line = self._line[address]
        while line and line[0].done():  # given up
            line.popleft()
        if line and self._running[address] == RUNNING_MAX // 2:
            return False
        del self._line[address]
        if not line:
            return False
        self._running[address] += 1
        line.popleft().set_result(None)
        if line:
            self._line[address] = line
        return True
