"""The line in front of the helpers of one lane: whose turn it is when a helper is free. Pure but for its lock.

The request goes first whose schema has used the least processor time lately; of equal ones, the one that came first. So a client with many
costly schemas does not keep the values of others waiting, for longer than the requests take that run already. Used time is forgotten:
half of it each `HALF_LIFE_S`.

Source: Nuyens and Wierman, "The Foreground-Background queue: a survey" (least attained service first).
"""

import heapq
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

T = TypeVar("T")

HALF_LIFE_S: Final = 60
OWNER_COUNT_MAX: Final = 4_096
"""Schemas whose used time is remembered; those that used the least are forgotten."""


class Line(Generic[T]):
    """Requests that wait. Use it from any thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds that pass."""
        self._now = now
        self._lock = Lock()
        self._waiting: dict[int, tuple[str, T]] = {}
        self._count = 0
        self._used: dict[str, tuple[float, float]] = {}
        """Used milliseconds, as of a time."""

    def put(self, owner: str, request: T) -> int:
        """Let a request wait; return its number. `owner`: what its time is counted for, such as the digest of its schema."""
        with self._lock:
            self._count += 1
            self._waiting[self._count] = owner, request
            return self._count

    def drop(self, number: int) -> None:
        """Remove a request, if it waits."""
        with self._lock:
            self._waiting.pop(number, None)

    def take(self) -> tuple[str, T] | None:
        """Remove and return the request whose turn it is, after its owner; None: none waits."""
        with self._lock:
            if not self._waiting:
                return None
            now = self._now()
            used = {owner: self._left(owner, now) for owner, _ in self._waiting.values()}
            at = min(self._waiting, key=lambda number: (used[self._waiting[number][0]], number))
            return self._waiting.pop(at)

    def charge(self, owner: str, processor_ms: int) -> None:
        """Count the time that a request has used."""
        with self._lock:
            now = self._now()
            self._used[owner] = self._left(owner, now) + processor_ms, now
            if len(self._used) > OWNER_COUNT_MAX:
                most = heapq.nlargest(OWNER_COUNT_MAX // 2, self._used, key=lambda known: self._left(known, now))
                self._used = {known: self._used[known] for known in most}

    def _left(self, owner: str, now: float) -> float:
        """Return the used time that is not forgotten."""
        used_ms, at = self._used.get(owner, (0.0, now))
        return float(used_ms * 0.5 ** ((now - at) / HALF_LIFE_S))
