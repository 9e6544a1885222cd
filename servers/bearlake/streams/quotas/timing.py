"""How much of the event loop's time some work takes: the time of its steps, without the time in which it waits.

Each step is charged when it ends, not the work as a whole: otherwise all requests of a client that begin before the first one ends would
begin for nothing, and a request that is cancelled would cost nothing. A connection has one stopwatch for all that the loop does for it:
one step runs at a time.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.usage import Usage

T = TypeVar("T")


class Stopwatch:
    """Charges one client at a time for the time in which the event loop works for it."""

    __slots__ = ("_quotas", "_since", "_who")

    def __init__(self, quotas: QuotaControl, who: Principal) -> None:
        self._quotas = quotas
        self._who = who
        self._since: float | None = None
        """Since when the running work is not charged (s); None: no work runs."""

    def start(self, who: Principal) -> bool:
        """Some work begins, for `who`. Returns False, and changes nothing, if it is a part of work that runs already."""
        if self._since is not None:
            return False
        self._who = who
        self._since = time.perf_counter()
        return True

    def lap(self) -> None:
        """Charge the running work up to now, so that its client may be asked what it owes."""
        if self._since is not None:
            now = time.perf_counter()
            self._quotas.spend_time(self._who, now - self._since)
            self._since = now

    def stop(self) -> None:
        """The work that `start` began has ended."""
        self.lap()
        self._since = None

    def run(self, who: Principal, work: Callable[[], T]) -> T:
        """Run some work at once."""
        is_whole = self.start(who)
        try:
            return work()
        finally:
            if is_whole:
                self.stop()


class Timed:
    """Awaits some work, and charges the time of each of its steps on the event loop to a client."""

    def __init__(self, watch: Stopwatch, who: Principal, work: Awaitable[Any]) -> None:
        self._watch = watch
        self._who = who
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run the work's steps."""
        steps = self._work.__await__()
        sent: Any = None
        failure: BaseException | None = None
        while True:
            self._watch.start(self._who)
            try:
                waited_for = steps.send(sent) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                return stop.value
            finally:
                self._watch.stop()
            sent = failure = None
            try:
                sent = yield waited_for
            except BaseException as error:  # noqa: BLE001 (passed on to the work)
                failure = error


def charged(quotas: QuotaControl | None, who: Principal, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Return the work, whose time will count against the client's quota. Awaiting it raises `Throttled`, and begins nothing, if the client
    must wait. `quotas` None: clients have none.
    """
    usage = None if quotas is None else quotas.usage
    return work() if quotas is None or usage is None or not usage.is_timed else _charged(quotas, usage, who, work)


async def _charged(quotas: QuotaControl, usage: Usage, who: Principal, work: Callable[[], Awaitable[T]]) -> T:
    usage.require(who, QuotaKey.REQUEST_PERCENTAGE)
    answer: T = await Timed(Stopwatch(quotas, who), who, work())
    return answer
