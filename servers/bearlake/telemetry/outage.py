"""A log line when something begins to fail and one when it works again: loops that try on for ever say each once.

What fails in between is counted by the loop's metrics, and told on level DEBUG.
"""

import logging


class Outage:
    """Used by one loop, from one thread."""

    def __init__(self, logger: logging.Logger, failing: str, over: str, **details: object) -> None:
        """`failing` is said as a WARNING, `over` as INFO, both with `details`, and with the number of failures at the end."""
        self._logger = logger
        self._failing = failing
        self._over = over
        self._details = details
        self.failure_count = 0
        """Failures since it began; 0 while all is well."""

    def failed(self, error: BaseException, **details: object) -> None:
        """It failed, perhaps again."""
        level = logging.DEBUG if self.failure_count else logging.WARNING
        self.failure_count += 1
        self._logger.log(level, self._failing, extra={**self._details, **details, "error": repr(error)})

    def over(self) -> None:
        """It works, perhaps again."""
        if self.failure_count:
            self._logger.info(self._over, extra={**self._details, "failure_count": self.failure_count})
            self.failure_count = 0
