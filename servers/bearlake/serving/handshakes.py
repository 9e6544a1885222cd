"""Accept the connections of a TLS listener before their handshake, so that a connection counts from the start, and begin few at a time.

The event loop's own TLS server reports a connection only after the handshake, so a client could open any number of uncounted connections.
It also does the arithmetic of all handshakes at once that have arrived: 1,000 of them, sent by one client at the same time, delayed all
others by 4 s (RSA with 2,048 bits; 17 s with 4,096).

    accepted -> the whole hello has arrived -> turn of its address -> handshake, 64 at a time -> the connection's protocol object
"""

import asyncio
import logging
import math
import socket
import ssl
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

ACCEPT_COUNT_MAX = 64
"""Connections accepted in a row before other callbacks of the event loop run."""
BEGUN_AT_ONCE = 8
"""Handshakes that begin in one turn of the event loop: each takes about 1 ms, with large keys 5."""
RUNNING_MAX = 64
"""Handshakes that have begun and not ended. One address has half of them."""
HELD_S = 1.0
"""Time (s) after which a handshake that does not end makes way for one that waits: ten round trips of 100 ms."""
HELLO_BYTES_MAX = 16 * 1024
"""Most bytes of a client's hello, with the heads of its records. Clients send 0.2 to 2 KiB."""
HELLO_RECORD_COUNT_MAX = 16
"""Most records of a client's hello. Nearly all clients send one."""
_HANDSHAKE_RECORD = 22
_RECORD_HEAD_BYTES = 5
_MESSAGE_HEAD_BYTES = 4
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


async def whole_hello(accepted: socket.socket) -> None:
    """Wait until the client's whole hello has arrived, or the client has gone; reads nothing. At once on systems other than Linux.

    So a client that sends nothing, or not all, takes no place among the handshakes that have begun. Raises `OSError`, also if the hello has
    too many bytes or records.
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
        seen = accepted.recv(HELLO_BYTES_MAX + _RECORD_HEAD_BYTES, socket.MSG_PEEK)
        has_gone = len(seen) < needed
        needed = hello_bytes(seen)
        if has_gone or len(seen) >= needed:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return


def hello_bytes(seen: bytes) -> int:
    """Return how many bytes at the start of a connection are known to belong to the client's hello, of which `seen` has arrived.

    If `seen` has as many, the hello is whole, or is none. Raises `OSError` if it has too many bytes or records.
    Source: RFC 8446, 5.1 (a message may be divided into several records) and 4 (its length).
    """
    message = b""
    record = 0
    for _ in range(HELLO_RECORD_COUNT_MAX):
        head = seen[record : record + _RECORD_HEAD_BYTES]
        start = record + _RECORD_HEAD_BYTES
        if len(head) < _RECORD_HEAD_BYTES:
            return start
        length = int.from_bytes(head[3:], "big")
        if head[0] != _HANDSHAKE_RECORD or not length:  # no TLS, or an error that TLS finds
            return start
        record = start + length
        if record > HELLO_BYTES_MAX:
            break
        if len(seen) < record:
            return record
        message += seen[start:record]
        if len(message) >= _MESSAGE_HEAD_BYTES + int.from_bytes(message[1:_MESSAGE_HEAD_BYTES], "big"):
            return record
    raise OSError("the client's hello is too long")


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


@dataclass(eq=False, slots=True)
class Turn:
    """The turn of one handshake."""

    address: str
    limit: asyncio.Timeout
    """Its time limit."""
    begins: "asyncio.Future[None]"


class HandshakeLine:
    """Handshakes that wait to begin, by address; addresses take turns. Use it from the event loop's thread only.

    A handshake that has begun for `HELD_S` ends when another one needs its place: clients that do not answer, of however many addresses,
    delay others by that time at most.
    """

    def __init__(self) -> None:
        self._line: dict[str, deque[Turn]] = {}
        self._running: dict[Turn, float] = {}
        """When (the loop's time) each running handshake began; the oldest first."""
        self._counts: Counter[str] = Counter()
        """Running handshakes by address."""
        self._is_moving = False
        self._again_s = math.inf
        """When (the loop's time) the next handshake has had its time and is in the way of another one."""
        self._later: asyncio.TimerHandle | None = None

    async def shake_hands(
        self,
        accepted: socket.socket,
        address: str,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        limit_s: float,
    ) -> None:
        """Wait for the client's hello and a turn, and shake hands; `accepted` then belongs to the protocol object of `make`, or is closed.

        Raises `OSError`: not TLS, no common version, a refused certificate, out of time, or the client has gone.
        """
        loop = asyncio.get_running_loop()
        turn: Turn | None = None
        async with asyncio.timeout(limit_s) as limit:
            try:
                await whole_hello(accepted)
                turn = await self.enter(address, limit)
                await loop.connect_accepted_socket(make, accepted, ssl=tls, ssl_handshake_timeout=limit_s)
            finally:
                if turn is None:
                    accepted.close()
                else:
                    self.leave(turn)

    async def enter(self, address: str, limit: asyncio.Timeout) -> Turn:
        """Wait until a handshake of this address may begin. The caller then calls `leave` with the result.

        `limit` is the time limit that the caller is in; it ends early if the handshake must make way.
        """
        turn = Turn(address, limit, asyncio.get_running_loop().create_future())
        self._line.setdefault(address, deque()).append(turn)
        self._wake()
        try:
            await turn.begins
        except asyncio.CancelledError:
            self.leave(turn)
            raise
        return turn

    def leave(self, turn: Turn) -> None:
        """Note that a handshake has ended. No-op if it had not begun, or made way."""
        if turn in self._running:
            self._remove(turn)
            self._wake()

    def _remove(self, turn: Turn) -> None:
        del self._running[turn]
        self._counts[turn.address] -= 1
        if not self._counts[turn.address]:
            del self._counts[turn.address]

    def _wake(self) -> None:
        if self._line and not self._is_moving:
            self._is_moving = True
            asyncio.get_running_loop().call_soon(self._move)

    def _move(self) -> None:
        """Begin a few handshakes, one of each address in turn."""
        self._is_moving = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._again_s = math.inf
        begun = 0
        for address in list(self._line):
            if begun == BEGUN_AT_ONCE:
                break
            begun += self._begin(address)
        if begun:
            self._wake()
        elif self._again_s < math.inf:
            self._later = asyncio.get_running_loop().call_at(self._again_s, self._wake)

    def _begin(self, address: str) -> bool:
        """Begin a handshake of the address, if it has not too many; the address then goes to the end of the line."""
        line = self._line[address]
        while line and line[0].begins.done():  # given up
            line.popleft()
        if line and not self._has_room(address):
            return False
        del self._line[address]
        if not line:
            return False
        turn = line.popleft()
        self._running[turn] = asyncio.get_running_loop().time()
        self._counts[address] += 1
        turn.begins.set_result(None)
        if line:
            self._line[address] = line
        return True

    def _has_room(self, address: str) -> bool:
        """Whether a handshake of the address may begin; if the oldest of those in its way has had its time, that one ends now."""
        if self._counts[address] >= RUNNING_MAX // 2:
            oldest = next(turn for turn in self._running if turn.address == address)
        elif len(self._running) >= RUNNING_MAX:
            oldest = next(iter(self._running))
        else:
            return True
        loop = asyncio.get_running_loop()
        ends_s = self._running[oldest] + HELD_S
        if loop.time() < ends_s:
            self._again_s = min(self._again_s, ends_s)
            return False
        self._remove(oldest)
        if not oldest.limit.expired():
            oldest.limit.reschedule(loop.time())
        return True
