"""The Fetch requests of one connection, which run one at a time: a client that does not read holds one response in memory.

A request counts as running until its response is passed to the transport. The next request is held while the client does not read
the responses, and while the client owes a quota.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller
from bearlake.protocols.kafka.handlers.fetch_at_tail import Fetcher, TailFetch
from bearlake.protocols.kafka.slot import Slot
from bearlake.protocols.kafka.throttling import Throttling


class Owner(Fetcher, Protocol):
    """The connection."""

    def close_if_login_ended(self) -> bool:
        """Close the connection if the client is not logged in any more; returns whether that is so."""


class FetchLane:
    """Undecoded requests that wait behind the running request."""

    __slots__ = ("_is_held", "_is_running", "_owner", "_running", "_throttling", "waiting", "waiting_bytes")

    def __init__(self, owner: Owner, throttling: Throttling, is_held: Callable[[], bool]) -> None:
        """`is_held`: whether the client does not read the responses."""
        self._owner = owner
        self._throttling = throttling
        self._is_held = is_held
        self.waiting: deque[tuple[TailFetch, bytes]] = deque()
        """Requests that are not begun."""
        self._is_running = False
        self._running: TailFetch | None = None
        self.waiting_bytes = 0
        """Bytes of the requests that wait."""

    def add(
        self,
        slot: Slot,
        caller: Caller,
        correlation_id: int,
        body: bytes,
        work: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        """Run a request after those before it; `work` decodes and answers it if it is not at the end of the log."""
        self.waiting.append((TailFetch(self._owner, slot, caller, correlation_id, work), body))
        self.waiting_bytes += len(body)
        self.start_next()

    @property
    def is_free(self) -> bool:
        """Whether no request runs or waits."""
        return not self._is_running and not self.waiting

    def start_next(self) -> None:
        """Begin the next request, if none runs and nothing holds it."""
        owner = self._owner
        if not self.waiting or owner.close_if_login_ended() or self._is_running or self._is_held():
            return
        if not self._throttling.holds_read(ApiKey.FETCH):
            self._is_running = True
            self._running, body = self.waiting.popleft()
            self.waiting_bytes -= len(body)
            self._running.begin(body)

    def sent(self) -> None:
        """The response was passed to the transport."""
        self._is_running = False
        self._running = None

    def close(self) -> None:
        """The connection is closed: drop all requests."""
        self.waiting.clear()
        self.waiting_bytes = 0
        if self._running is not None:
            self._running.cancel()
