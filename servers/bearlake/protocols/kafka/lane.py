"""The requests of one connection that run one at a time, in order: all but Produce and Fetch (decision 17).

A request that was read while its client owed nothing may have to wait when its turn comes (`throttling.py`). Nothing waits for a quota
once the client has gone or the server drains: what changes something runs to completion.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

from bearlake.protocols.kafka.request_kinds import WAITING
from bearlake.protocols.kafka.sasl import LOGIN_APIS
from bearlake.protocols.kafka.throttling import Throttling


class Owner(Protocol):
    """The connection."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent to the client."""

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> asyncio.Task[None]:
        """Run the work of a request; it goes on after the client has gone unless `is_cancelled_on_close`."""


class Lane:
    """Requests that wait, undecoded, behind the one that runs."""

    __slots__ = ("_is_draining", "_is_working", "_owner", "_throttling", "waiting")

    def __init__(self, owner: Owner, throttling: Throttling) -> None:
        self._owner = owner
        self._throttling = throttling
        self.waiting: deque[tuple[int, Callable[[], Coroutine[None, None, None]]]] = deque()
        """API key and work."""
        self._is_working = False
        self._is_draining = False

    @property
    def needs_login(self) -> bool:
        """Whether a quota holds a request of a client that must be logged in."""
        return bool(self.waiting) and not self._is_working and self.waiting[0][0] not in LOGIN_APIS

    def add(self, key: int, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a request after those before it."""
        self.waiting.append((key, work))
        self.go_on()

    def drain(self) -> None:
        """Let no quota hold the requests that were read."""
        self._is_draining = True
        self.go_on()

    def go_on(self) -> None:
        """Begin the next request, if none runs and no quota holds it."""
        while self.waiting and not self._is_working:
            key, work = self.waiting[0]
            if not self._is_draining and self._throttling.holds_read(key):
                return
            self.waiting.popleft()
            is_waiting = key in WAITING
            if is_waiting and not self._owner.is_open:
                continue
            self._is_working = True
            self._owner.start(work(), is_cancelled_on_close=is_waiting).add_done_callback(self._worked)

    def _worked(self, _: asyncio.Task[None]) -> None:
        self._is_working = False
        self.go_on()
