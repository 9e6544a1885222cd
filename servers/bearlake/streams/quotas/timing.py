"""How much of the event loop's time some work takes: the time of its steps, without the time in which it waits."""

import time
from collections.abc import Awaitable, Generator
from typing import Any


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
