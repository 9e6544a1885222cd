"""Bounds the memory of lists of all streams while they are made, for all protocols together (decision 242).

A request of 26 bytes may ask for the names of 100,000 streams. Its answer and what it is made of are some MiB, and a server has thousands
of connections. Lists are therefore made a few at a time (`client_turns.py`): those under way have at most `NAME_COUNT_MAX` names together,
so short lists do not wait.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bearlake.errors import Overloaded
from bearlake.streams.client_turns import WAIT_S, ClientTurns
from bearlake.streams.principal import Principal, client_of

NAME_COUNT_MAX = 250_000
"""Names or partitions of all lists under way: two lists of 100,000, or 250 lists of 1,000. Kafka's largest answers take 1 KiB for each."""


class LongLists:
    """The lists under way, and the requests that wait. Use it from the event loop's thread only."""

    def __init__(self, name_count_max: int = NAME_COUNT_MAX) -> None:
        """`name_count_max`: names of all lists under way; one client's have half of them."""
        self._turns = ClientTurns(name_count_max)

    @asynccontextmanager
    async def making(self, who: Principal, size: int) -> AsyncIterator[None]:
        """Wait until a list of so many names may be made, for the block. Raises `Overloaded` after `WAIT_S`.

        A list that is larger than a client's share counts as the share.
        """
        begins = asyncio.Event()
        turn = self._turns.ask(client_of(who), size, begins.set)
        try:
            if not turn.has_begun:
                await _in_time(begins)
            yield
        finally:
            turn.end()


async def _in_time(begins: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await begins.wait()
    except TimeoutError:
        raise Overloaded("too many requests for lists of all streams; retry later") from None
