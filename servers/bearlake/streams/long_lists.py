"""Bounds the memory of lists of all streams while they are made, for all protocols together (decision 242).

A request of 26 bytes may ask for the names of 100,000 streams. Its answer and what it is made of are some MiB, and a server has thousands
of connections. Lists are therefore made a few at a time: those under way have at most `NAME_COUNT_MAX` names together, so short lists do
not wait. One client has half of them. Clients that wait take turns.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bearlake.errors import Overloaded
from bearlake.streams.principal import Principal, client_of

NAME_COUNT_MAX = 250_000
"""Names or partitions of all lists under way: two lists of 100,000, or 250 lists of 1,000. Kafka's largest answers take 1 KiB for each."""
WAIT_S = 25.0
"""Longest wait (s) of a request: clients of Kafka wait 30 s for an answer."""


@dataclass(eq=False, slots=True)
class _Turn:
    """A request that waits: how many names its list has, and what completes when it may begin."""

    size: int
    begins: "asyncio.Future[None]"


class LongLists:
    """The lists under way, and the requests that wait. Use it from the event loop's thread only."""

    def __init__(self, name_count_max: int = NAME_COUNT_MAX) -> None:
        """`name_count_max`: names of all lists under way; one client's have half of them."""
        self._room = name_count_max
        self._share = name_count_max // 2
        self._sizes: dict[str, int] = {}
        """Names of the lists under way of each client that has one."""
        self._lines: dict[str, deque[_Turn]] = {}
        """Requests that wait, by client; the next client is the first."""

    @asynccontextmanager
    async def making(self, who: Principal, size: int) -> AsyncIterator[None]:
        """Wait until a list of so many names may be made, for the block. Raises `Overloaded` after `WAIT_S`.

        A list that is larger than a client's share counts as the share.
        """
        client, size = client_of(who), max(1, min(size, self._share))
        turn = _Turn(size, asyncio.get_running_loop().create_future())
        self._lines.setdefault(client, deque()).append(turn)
        self._begin()
        try:
            if not turn.begins.done():
                await _in_time(turn)
            yield
        finally:
            self._end(client, turn)

    def _begin(self) -> None:
        """Begin what fits, one list of each client in turn. A client that has its share lets others pass; one that needs room does not."""
        waiting = deque(self._lines)
        while waiting:
            client = waiting.popleft()
            line = self._lines[client]
            size = line[0].size
            if self._sizes.get(client, 0) + size > self._share:
                continue
            if size > self._room:
                return
            line.popleft().begins.set_result(None)
            self._room -= size
            self._sizes[client] = self._sizes.get(client, 0) + size
            del self._lines[client]
            if line:  # at the end of the line of clients
                self._lines[client] = line
                waiting.append(client)

    def _end(self, client: str, turn: _Turn) -> None:
        if turn.begins.done():
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


async def _in_time(turn: _Turn) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await asyncio.shield(turn.begins)  # a cancelled request must not look as if it had begun
    except TimeoutError:
        raise Overloaded("too many requests for lists of all streams; retry later") from None
