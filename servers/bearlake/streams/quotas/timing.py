"""How much of the event loop's time some work takes: the time of its steps, without the time in which it waits.

Each step is charged when it ends, not the work as a whole: otherwise all requests of a client that begin before the first one ends would
begin for nothing, and a request that is cancelled would cost nothing.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.usage import Usage

T = TypeVar("T")


class Timed:
    """Awaits some work, and charges the time of each of its steps on the event loop to a client."""

    def __init__(self, quotas: QuotaControl, who: Principal, work: Awaitable[Any]) -> None:
        self._quotas = quotas
        self._who = who
        self._work = work

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
                self._quotas.spend_time(self._who, time.perf_counter() - started)
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
    answer: T = await Timed(quotas, who, work())
    return answer
