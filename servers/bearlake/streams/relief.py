"""The line of those who wait until the write path has room (decision 155).

Once one waits, all later arrivals wait behind it: the write path counts as over its budget for them, even if it is not. So less than half
of the budget is used before long, however fast other producers send again. Then those in line continue in order of arrival, a few per turn
of the event loop, until the line is empty or the budget is used up again. The rest keep their places. Who comes while the line moves goes
to its end: otherwise those who come could use up the budget in each turn before those in line are called.

A caller that gives up leaves the line, so that the line has no more places than there are connections and calls.
"""

import asyncio
import logging
from collections.abc import Callable

from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

RESUMED_AT_ONCE = 8
"""Callers that continue in one turn of the event loop: each may take all requests that it has received, mostly up to 1 MiB."""


class ReliefLine:
    """Callbacks by order of arrival. Use it from the event loop's thread only."""

    def __init__(self, used: Callable[[], float]) -> None:
        """`used` returns the used part of the write path's budget: 1.0 is all of it."""
        self._loop = asyncio.get_running_loop()
        self._used = used
        self.waiting: dict[Callable[[], None], None] = {}
        """Callers in line, in order of arrival. To be changed here only."""
        self._is_moving = False
        self._is_calling = False
        """Whether a caller whose turn has come runs now."""

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def is_closed(self) -> bool:
        """Whether a caller must wait: the budget is used up, or others wait already. The latter is nothing to one whose turn has come."""
        return self._used() > 1 or (bool(self.waiting) and not self._is_calling)

    def join(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, in turn. A callback that waits already keeps its place."""
        self.waiting.setdefault(resume)
        self.relieve()

    def leave(self, resume: Callable[[], None]) -> None:
        """Give up a place; no effect without one."""
        self.waiting.pop(resume, None)

    def relieve(self) -> None:
        """Let the line move if less than half of the budget is used. Call this whenever less is used."""
        if self.waiting and not self._is_moving and self._used() < 0.5:
            self._is_moving = True
            self._loop.call_soon(self._move)

    def _move(self) -> None:
        for _ in range(RESUMED_AT_ONCE):
            if not self.waiting or self._used() > 1:
                break
            resume = next(iter(self.waiting))
            del self.waiting[resume]
            self._is_calling = True
            contained(log, "resume after relief", resume)
            self._is_calling = False
        if self.waiting and self._used() <= 1:
            self._loop.call_soon(self._move)
        else:
            self._is_moving = False
