"""Lets requests that need much memory begin a few at a time: those under way have a bounded size together, and one client has half of it.

Requests that do not fit wait. Clients that wait take turns, and a client that has its share lets others pass.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 25.0
"""Longest wait (s) of a request: clients of Kafka wait 30 s for an answer."""


class Turn:
    """A request that waits or is under way. It ends with `end`, or when nobody has it any more."""

    __slots__ = ("_turns", "begin", "client", "has_begun", "has_ended", "size")

    def __init__(self, turns: "ClientTurns", client: str, size: int, begin: Callable[[], None]) -> None:
        self._turns = turns
        self.client = client
        self.size = size
        self.begin = begin
        self.has_begun = False
        """Whether the request may begin, or might have before its end."""
        self.has_ended = False

    def end(self) -> None:
        """The request is over, or waits no longer. Safe to repeat."""
        if not self.has_ended:
            self.has_ended = True
            self._turns.ended(self)

    def __del__(self) -> None:
        """A request that is dropped before it begins has no other end."""
        self.end()


class ClientTurns:
    """The requests under way, and those that wait. Use it from the event loop's thread only."""

    def __init__(self, size_max: int) -> None:
        """`size_max`: size of all requests under way; one client's have half of it."""
        self._room = size_max
        self._share = size_max // 2
        self._sizes: dict[str, int] = {}
        """Size of the requests under way of each client that has one."""
        self._lines: dict[str, deque[Turn]] = {}
        """Requests that wait, by client; the next client is the first."""
        self._is_beginning = False

    def ask(self, client: str, size: int, begin: Callable[[], None]) -> Turn:
        """Wait in line. `begin` is called once there is room, perhaps before this returns; it raises nothing, and may end turns.

        A request that is larger than a client's share counts as the share.
        """
        turn = Turn(self, client, max(1, min(size, self._share)), begin)
        self._lines.setdefault(client, deque()).append(turn)
        self._begin()
        return turn

    def ended(self, turn: Turn) -> None:
        """Called by a turn that ends."""
        client = turn.client
        if turn.has_begun:
            self._room += turn.size
            self._sizes[client] -= turn.size
            if not self._sizes[client]:
                del self._sizes[client]
        else:
            line = self._lines[client]
            line.remove(turn)
            if not line:
                del self._lines[client]
        self._begin()

    def _begin(self) -> None:
        """Begin what fits, one request of each client in turn. What begins may end at once or ask again, for which this looks again."""
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._begin_next():
                pass
        finally:
            self._is_beginning = False

    def _begin_next(self) -> bool:
        """Begin one request, if one fits. When this returns, nothing here keeps its turn, which may end then."""
        turn = self._next()
        if turn is None:
            return False
        turn.has_begun = True
        self._room -= turn.size
        self._sizes[turn.client] = self._sizes.get(turn.client, 0) + turn.size
        turn.begin()
        return True

    def _next(self) -> Turn | None:
        """Take the next request that fits out of its line.

        A client that has its share lets others pass; one that needs room does not.
        """
        for client, line in self._lines.items():
            size = line[0].size
            if self._sizes.get(client, 0) + size > self._share:
                continue
            if size > self._room:
                return None
            turn = line.popleft()
            del self._lines[client]
            if line:  # at the end of the line of clients
                self._lines[client] = line
            return turn
        return None
