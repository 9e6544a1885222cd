"""One log line when an operation begins to fail and one when it works again, for loops that retry without end.

The loop's metrics count the failures in between, which are logged on level DEBUG.
"""

import logging

from bearlake.telemetry import metrics


class Outage:
    """Used by one loop, from one thread."""

    def __init__(self, logger: logging.Logger, failing: str, over: str, **details: object) -> None:
        """`failing` is logged as WARNING and `over` as INFO, both with `details`; `over` also with the number of failures."""
        self._logger = logger
        self._failing = failing
        self._over = over
        self._details = details
        self.failure_count = 0
        """Failures since the outage began; 0 if there is none."""

    def failed(self, error: BaseException, **details: object) -> None:
        """Note a failure, perhaps a repeated one."""
        level = logging.DEBUG if self.failure_count else logging.WARNING
        self.failure_count += 1
        self._logger.log(level, self._failing, extra={**self._details, **details, "error": repr(error)})

    def fault(self, what: str, error: Exception) -> None:
        """Note a bug in step `what` (a constant text), perhaps a repeated one. If it begins the outage, its traceback is logged."""
        metrics.CONTAINED_FAULTS.labels(what).inc()
        if not self.failure_count:
            self._logger.error("a step failed; it is tried again", exc_info=error, extra={"step": what})
        self.failed(error)

    def over(self) -> None:
        """Note a success, perhaps a repeated one."""
        if self.failure_count:
            self._logger.info(self._over, extra={**self._details, "failure_count": self.failure_count})
            self.failure_count = 0
