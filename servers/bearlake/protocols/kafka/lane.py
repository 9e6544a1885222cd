"""The requests of one connection that run one at a time, in order: all but Produce and Fetch (decision 17).

A request that was read may be held when its turn comes: while its client owes some of its quota (`throttling.py`), and while the client
does not take the responses before it. Nothing is held once the client has gone or the server drains: what changes something runs to
completion. A request whose login ended while it was held is not begun.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

from bearlake.errors import Overloaded
from bearlake.protocols.kafka.request_kinds import WAITING
from bearlake.protocols.kafka.sasl import LOGIN_APIS
from bearlake.protocols.kafka.throttling import Throttling


class Owner(Protocol):
    """The connection."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent to the client."""

    def lane_is_free(self) -> None:
        """All requests of the lane are done."""

    def close_if_login_ended(self) -> bool:
        """Close the connection if the client is not logged in any more; returns whether that is so."""

    def close(self, why: str, reason: str) -> None:
        """Close the connection at once; `reason` is for metrics."""

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> asyncio.Task[None]:
        """Run the work of a request; it continues after the client has gone unless `is_cancelled_on_close`."""


class Lane:
    """Requests that wait, undecoded, behind the one that runs."""

    __slots__ = ("_has_room", "_is_draining", "_is_working", "_owner", "_throttling", "_was_held", "waiting")

    def __init__(self, owner: Owner, throttling: Throttling, has_room: Callable[[], bool]) -> None:
        """`has_room`: whether the client has taken its responses so far, up to a limit of bytes, or they wait for the next request here."""
        self._owner = owner
        self._throttling = throttling
        self.waiting: deque[tuple[int, Callable[[], Coroutine[None, None, None]]]] = deque()
        """API key and work."""
        self._has_room = has_room
        self._is_working = False
        self._is_draining = False
        self._was_held = False  # the first request

    def add(self, key: int, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a request after those before it."""
        self.waiting.append((key, work))
        self.start_next()

    @property
    def is_free(self) -> bool:
        """Whether no request runs or waits."""
        return not self._is_working and not self.waiting

    def drain(self) -> None:
        """Hold none of the requests that were read."""
        self._is_draining = True
        self.start_next()

    def start_next(self) -> None:
        """Begin the next request, if none runs and nothing holds it."""
        while self.waiting and not self._is_working:
            key, work = self.waiting[0]
            if not self._is_draining and self._is_held(key):
                self._was_held = True
                return
            if self._was_held and key not in LOGIN_APIS and self._owner.close_if_login_ended():
                self.waiting.clear()
                return
            self._was_held = False
            self.waiting.popleft()
            is_waiting = key in WAITING
            if is_waiting and not self._owner.is_open:
                continue
            self._is_working = True
            self._owner.start(self._answer(work), is_cancelled_on_close=is_waiting).add_done_callback(self._worked)

    async def _answer(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        except Overloaded as error:  # some answers have no place for an error; clients connect again
            self._owner.close(str(error), "overloaded")

    def _is_held(self, key: int) -> bool:
        return self._owner.is_open and (not self._has_room() or self._throttling.holds_read(key))

    def _worked(self, _: asyncio.Task[None]) -> None:
        self._is_working = False
        self.start_next()
        if self.is_free:
            self._owner.lane_is_free()
