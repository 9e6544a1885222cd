"""Lines: connections that wait for the same quota continue one after another, in the order of their arrival.

Without lines, all connections of a client would continue at the moment when the client owes nothing, and begin requests before the first
of them is charged. The same connection could also come first each time.

    nothing is owed ──> begin             a client that owes nothing, and is not recovering, does not wait in a line
    else            ──> [first|second|…]  the first one begins when nothing is owed. The line looks again in the next pass of the event
                                          loop: by then, the first step of that request is charged

A client is recovering until half of its burst is saved again. Until then it begins one request per pass, because connections that had to
wait come back at the same time. A waiter has at most one place in a line, so the numbers of connections and streams bound the lines.

Source: start-time fair queueing, for items of unknown cost: one at a time, first come, first served.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.limits import Limit


class Use(Protocol):
    """What clients use of their quotas now."""

    def limits_of(self, who: Principal, *keys: QuotaKey) -> tuple[Limit, ...]:
        """Return the quotas of these keys that apply to the client."""

    def due_s(self, who: Principal, *keys: QuotaKey) -> float:
        """Return how long (s) the client should wait; 0: it may begin."""

    def is_recovering(self, who: Principal, *keys: QuotaKey) -> bool:
        """Whether the client owed recently: half of its burst is not saved yet."""


class Timer(Protocol):
    """A call that is planned."""

    def cancel(self) -> None:
        """Do not call."""


class Waiter:
    """One who may wait in lines, such as a connection."""

    __slots__ = ("_lines", "is_waiting", "resume")

    def __init__(self, resume: Callable[[], None]) -> None:
        """`resume` is called when the turn has come. It asks `Lines.admits` again, at once or in its next step, and raises nothing."""
        self.resume = resume
        self.is_waiting = False
        self._lines: list[_Line] = []

    def leave(self) -> None:
        """Wait no longer."""
        for line in list(self._lines):
            line.leave(self)

    def joined(self, line: "_Line") -> None:
        """Called by a line."""
        self._lines.append(line)
        self.is_waiting = True

    def left(self, line: "_Line") -> None:
        """Called by a line."""
        self._lines.remove(line)
        self.is_waiting = bool(self._lines)


class Lines:
    """The lines of one server, by the quotas that are waited for. Use them from the event loop's thread only."""

    def __init__(self, use: Callable[[], Use | None], call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        """`use`: None while there is no quota. `call_later` takes seconds."""
        self.use = use
        self.call_later = call_later
        self._lines: dict[tuple[object, ...], _Line] = {}

    @property
    def waiting_count(self) -> int:
        """The number of places in all lines."""
        return sum(map(len, self._lines.values()))

    def admits(self, waiter: Waiter, who: Principal, keys: tuple[QuotaKey, ...], *, begins: bool = True) -> bool:
        """Whether the client may begin a request that these quotas limit; if not, `waiter` waits, and is resumed at its turn.

        `begins` False: the request does not begin yet, and asks again when it does.
        """
        use = self.use()
        limits = () if use is None else use.limits_of(who, *keys)
        if use is None or not limits:
            return True
        name = tuple(limit.name for limit in limits)
        line = self._lines.get(name)
        may_begin = use.due_s(who, *keys) == 0
        if line is None:
            if may_begin and not (begins and use.is_recovering(who, *keys)):
                return True
            line = self._lines[name] = _Line(self, lambda: self._lines.pop(name))
        if may_begin and line.is_turn_of(waiter):
            if begins:
                line.begun()
            return True
        line.join(waiter, who, keys)
        return False

    def look_at(self, who: Principal, keys: tuple[QuotaKey, ...]) -> None:
        """The client got some of these quotas back: let its line check whether its first waiter may continue."""
        use = self.use()
        line = self._lines.get(tuple(limit.name for limit in use.limits_of(who, *keys))) if use is not None else None
        if line is not None:
            line.look_soon()

    def look(self) -> None:
        """Quotas have changed: let all lines check whether their first waiters may continue."""
        for line in self._lines.values():
            line.look_soon()


class _Line:
    """Waiters for the same quotas."""

    __slots__ = ("_called", "_end", "_is_passing", "_lines", "_timer", "_waiting")

    def __init__(self, lines: Lines, end: Callable[[], object]) -> None:
        """`end` is called when the line is empty."""
        self._lines = lines
        self._end = end
        self._waiting: OrderedDict[Waiter, tuple[Principal, tuple[QuotaKey, ...]]] = OrderedDict()
        self._called: Waiter | None = None
        """The waiter that may begin now."""
        self._is_passing = False
        """Whether a waiter may begin, or has begun, in this pass of the event loop."""
        self._timer: Timer | None = None
        """When the line looks again; None only before the first waiter."""

    def __len__(self) -> int:
        return len(self._waiting)

    def is_turn_of(self, waiter: Waiter) -> bool:
        """Whether `waiter` may begin: it was called, or nobody is before it."""
        return self._called is waiter or not (self._is_passing or self._waiting)

    def begun(self) -> None:
        """The waiter that had its turn begins a request. The next waiter follows after the first step of that request."""
        self._called = None
        if not self._is_passing:
            self._is_passing = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self.look_soon)  # the step is planned after this call

    def join(self, waiter: Waiter, who: Principal, keys: tuple[QuotaKey, ...]) -> None:
        """Wait behind the others, or keep waiting at the same place."""
        if waiter not in self._waiting:
            waiter.joined(self)
        self._waiting[waiter] = (who, keys)
        if self._timer is None:
            self._wait()

    def leave(self, waiter: Waiter) -> None:
        """Give up the place."""
        del self._waiting[waiter]
        waiter.left(self)

    def look_soon(self) -> None:
        """Look in the next pass, behind everything that is ready now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Call the first one if nothing is owed."""
        self._called, self._is_passing = None, False
        if not self._waiting:
            self._end()
        elif self._wait():
            self._call()

    def _wait(self) -> bool:
        """Wait until the first one may begin; returns whether it may already."""
        use = self._lines.use()
        who, keys = next(iter(self._waiting.values()))
        due_s = 0.0 if use is None else use.due_s(who, *keys)
        if due_s > 0:
            self._timer = self._lines.call_later(due_s, self._look)
        elif self._timer is None:
            self.look_soon()
        return due_s == 0

    def _call(self) -> None:
        waiter, _ = self._waiting.popitem(last=False)
        waiter.left(self)
        self._called, self._is_passing = waiter, True
        try:
            waiter.resume()
        finally:
            self.look_soon()
