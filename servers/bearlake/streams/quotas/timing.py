"""How much of the event loop's time some work takes: the time of its steps, without the time in which it waits."""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.usage import Usage

T = TypeVar("T")


class Timed:
    """Awaits some work, and measures the time (s) of its steps on the event loop."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run the work's steps."""
        steps = self._work.__await__()
        sent: Any = None
        failure: BaseException | None = None
        while True:
            started = time.perf_counter()
            try:
                waited_for = steps.send(sent) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                return stop.value
            finally:
                self.seconds += time.perf_counter() - started
            sent = failure = None
            try:
                sent = yield waited_for
            except BaseException as error:  # noqa: BLE001 (passed on to the work)
                failure = error


def charged(usage: Usage | None, who: Principal, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Return the work, whose time will count against the client's quota. Awaiting it raises `Throttled`, and begins nothing, if the client
    must wait.
    """
    return work() if usage is None or not usage.is_timed else _charged(usage, who, work)


async def _charged(usage: Usage, who: Principal, work: Callable[[], Awaitable[T]]) -> T:
    usage.require(who, QuotaKey.REQUEST_PERCENTAGE)
    timed = Timed(work())
    try:
        answer: T = await timed
        return answer
    finally:
        usage.charge_time(who, timed.seconds)
