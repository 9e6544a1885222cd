"""The large requests of one connection, except Produce: they begin a few at a time, over all connections (decision 361).

A request of 3 MiB may have a million elements, and takes sixty times its size once it is decoded. Until its turn, the request stays in the
receive buffer, which has a bound (`serving/slabs.py`), and the connection takes nothing behind it. A turn lasts until the request is
answered. If the request waits for other members of a group, its turn ends when it is decoded, because their requests may be large, too.
A Fetch request keeps its turn, because it keeps the objects of its partitions, but it waits for records only for a short time.

Only requests that run have turns: a request asks for its turn when the requests before it in its lane are done, and a connection that
cannot take it when its turn comes gives the turn back. Otherwise a client that does not read its answers, or whose earlier request waits
long, would keep a turn from others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.request_kinds import WAITING
from bearlake.streams.client_turns import WAIT_S, ClientTurns, Turn

LARGE_BYTES: Final = 64 * 1024
"""Larger requests wait for a turn, are decoded in a thread, and have their responses encoded there. So many bytes take 10 ms at most."""
WAITING_BYTES_MAX: Final = 64 * 1024
"""Bytes of a connection's requests that wait behind a request that runs, at which nothing more is taken. They are copies, which no other
bound counts."""

POLL_MS_MAX: Final = 1_000
"""Longest wait (ms) of a large Fetch request for records. A client that gets none asks again, as after its own `max_wait_ms`."""


class Owner(Protocol):
    """The connection."""

    @property
    def client(self) -> str:
        """What counts as one client."""

    def wait_for_turn(self) -> None:
        """Take no frames before `relieved`."""

    def relieved(self) -> None:
        """Take frames again."""

    def close(self, why: str, reason: str) -> None:
        """Close the connection at once; `reason` is for metrics."""


class LargeRequests:
    """The turn of the next large request, which is not taken yet."""

    __slots__ = ("_next", "_owner", "_timer", "_turns", "waits_for_lane")

    def __init__(self, owner: Owner, turns: ClientTurns) -> None:
        self._owner = owner
        self._turns = turns
        self._next: Turn | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.waits_for_lane = False
        """Whether the connection waits until it may ask again, because of requests in the same lane."""

    def may_take(self, size: int, *, is_lane_free: bool) -> bool:
        """Whether the next request, which is large, may be taken now; otherwise the connection waits for it.

        `is_lane_free`: the request would run at once, because no request of its lane is before it.
        """
        self.waits_for_lane = not is_lane_free
        if not is_lane_free:
            self._owner.wait_for_turn()
            return False
        if self._next is None:
            self._next = self._turns.ask(self._owner.client, size, self._began)
        if not self._next.has_begun:
            self._owner.wait_for_turn()
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._give_up)
        return self._next.has_begun

    def _began(self) -> None:
        turn = self._next
        if self._timer is None or turn is None or not turn.has_begun:
            return  # the connection asks just now
        self._stop_timer()
        self._owner.relieved()
        if self._next is turn:  # the connection must wait for something else, and will ask again
            turn.end()
            self._next = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._owner.close("too many large requests; retry later", "overloaded")

    def take(self) -> Turn | None:
        """Return the turn of the request that is taken; None if it is not large."""
        turn, self._next = self._next, None
        if turn is not None:
            self._stop_timer()
        return turn

    def closed(self) -> None:
        """The connection is closed: the next request will not be taken."""
        self._stop_timer()
        if self._next is not None:
            self._next.end()
            self._next = None


def decoded(turn: Turn | None, key: int, request: Any) -> None:  # Any: the class depends on the API
    """Bound the time for which a request that may wait for other clients keeps its turn, before it is handled."""
    if turn is None or key not in WAITING:
        return
    if key == ApiKey.FETCH:
        request.max_wait_ms = min(request.max_wait_ms, POLL_MS_MAX)
    else:
        turn.end()


def within(
    turn: Turn | None, work: Callable[[], Coroutine[None, None, None]]
) -> Callable[[], Coroutine[None, None, None]]:
    """Return the work of a request that ends its turn."""
    return work if turn is None else lambda: _run(turn, work)


async def _run(turn: Turn, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    finally:
        turn.end()
