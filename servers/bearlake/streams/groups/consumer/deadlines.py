"""Deadlines of a group's members: one timer each, moved without a new timer when the deadline moves later."""

import asyncio
from collections.abc import Callable

from bearlake.streams.groups.rebalance_rounds import GRACE_MS_MIN, LATE_S


class Deadlines:
    """One deadline per member. A deadline that the server missed, or cannot judge, is set again instead of passing."""

    def __init__(self, on_passed: Callable[[str], None], may_expire: Callable[[], bool]) -> None:
        """`on_passed` gets the member's id, once; `may_expire`: see `RebalanceRounds`."""
        self._on_passed = on_passed
        self._may_expire = may_expire
        self._loop = asyncio.get_running_loop()
        self._set: dict[str, _Deadline] = {}

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._set

    def set(self, member_id: str, timeout_ms: int) -> None:
        """Give the member this time (ms) from now."""
        at = self._loop.time() + timeout_ms / 1000
        known = self._set.get(member_id)
        if known is not None and known.timer_at <= at:
            known.at, known.timeout_ms = at, timeout_ms
            return
        if known is not None:
            known.timer.cancel()
        self._set[member_id] = _Deadline(at, timeout_ms, self._loop.call_at(at, self._due, member_id))

    def cancel(self, member_id: str) -> None:
        """Forget the member's deadline, if it has one."""
        known = self._set.pop(member_id, None)
        if known is not None:
            known.timer.cancel()

    def close(self) -> None:
        """Forget all."""
        for known in self._set.values():
            known.timer.cancel()
        self._set.clear()

    def _due(self, member_id: str) -> None:
        known = self._set.pop(member_id)
        now = self._loop.time()
        if known.at > now:
            self._set[member_id] = _Deadline(
                known.at, known.timeout_ms, self._loop.call_at(known.at, self._due, member_id)
            )
        elif now - known.at > LATE_S or not self._may_expire():
            self.set(member_id, max(GRACE_MS_MIN, known.timeout_ms))
        else:
            self._on_passed(member_id)


class _Deadline:
    __slots__ = ("at", "timeout_ms", "timer", "timer_at")

    def __init__(self, at: float, timeout_ms: int, timer: asyncio.TimerHandle) -> None:
        self.at = self.timer_at = at
        self.timeout_ms = timeout_ms
        self.timer = timer
