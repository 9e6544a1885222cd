"""The calls whose batches wait to be written: each is answered once, when all outcomes are known, or when its deadline has passed."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

from bearlake.kernel import WriteBuffer
from bearlake.streams.append import Call, Result
from bearlake.streams.turns import AT_ONCE


class WaitingCalls:
    """The calls of one writer, which bounds them. Use it from the event loop's thread only."""

    def __init__(self, deadline_ms: float) -> None:
        """`deadline_ms`: how long a call waits before it is answered without its outcomes."""
        self._loop = asyncio.get_running_loop()
        self._deadline_s = deadline_ms / 1000
        self._calls: dict[Call, float] = {}
        """Calls without an answer, and the loop time of their deadline, in order of arrival and hence of deadlines."""
        self._decided: deque[Call] = deque()
        """Calls with all their outcomes, which are answered in the next turns of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Calls whose outcomes are not known."""
        return len(self._calls)

    def add(self, call: Call) -> None:
        """Answer `call` when its outcomes are known, or after the deadline."""
        deadline = self._calls[call] = self._loop.time() + self._deadline_s
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def resolve(self, queued: WriteBuffer, results: Sequence[Result]) -> None:
        """Give the batches of a buffer their outcomes, and answer the calls that have all of theirs, in order."""
        calls = cast("list[Call]", queued.resolve(results))
        for call in calls:
            self._calls.pop(call, None)
        is_waiting = bool(self._decided)
        self._decided += calls
        if not is_waiting:
            self._answer()

    async def answered(self) -> None:
        """Return when no call with all its outcomes waits for its answer."""
        while self._decided:  # noqa: ASYNC110 - each turn of the event loop answers some
            await asyncio.sleep(0)

    def close(self) -> None:
        """Answer all calls now, those without outcomes as after their deadline."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._decided:
            self._answer()
        for call in list(self._calls):
            call.expire()
        self._calls.clear()

    def _expire(self) -> None:
        """Answer calls whose deadline has passed, in turns."""
        now = self._loop.time()
        self._timer = None
        for _ in range(AT_ONCE):
            call, deadline = next(iter(self._calls.items()), (None, 0.0))
            if call is None or deadline > now:
                break
            del self._calls[call]
            call.expire()
        if self._calls and self._timer is None:
            self._timer = self._loop.call_at(max(now, next(iter(self._calls.values()))), self._expire)

    def _answer(self) -> None:
        """Answer decided calls in order, as many as one turn of the event loop has time for."""
        for _ in range(min(len(self._decided), AT_ONCE)):
            self._decided.popleft().done()
        if self._decided and not self._is_closed:
            self._loop.call_soon(self._answer)
