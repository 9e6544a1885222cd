"""A fault in one subject stops only that subject (I11): for loops over many streams, tasks or pages.

    async for stream in all_streams(metadata, page_count):
        async with isolation.of(stream.name):
            await keep_up(stream)

Every error of a step is counted, logged once per change, and ends only that step. An error that is no `BearlakeError` is a bug: it is
logged as ERROR with its traceback, and also counted as a contained fault. Only a failure of the metadata store ends the round: after an
`Unavailable` or `Overloaded` step, a cheap probe of the store runs, and its own error is raised. Cancellation and other errors outside
`Exception` end the round.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.telemetry import metrics

FAILING_COUNT_MAX = 1_000
"""Number of failing subjects that are remembered; beyond that, the oldest are logged again."""


class FaultIsolation:
    """Used by one job, from one thread. `probe` makes a cheap request to the metadata store; `job` is a metric's label."""

    def __init__(self, logger: logging.Logger, job: str, probe: Callable[[], Awaitable[object]]) -> None:
        self._logger = logger
        self._job = job
        self._probe = probe
        self._failing: OrderedDict[str, str] = OrderedDict()
        self._failed_now: set[str] = set()

    @property
    def failing(self) -> list[str]:
        """Return subjects whose last step failed."""
        return list(self._failing)

    @asynccontextmanager
    async def of(self, subject: str) -> AsyncIterator[None]:
        """Run the step for `subject` in the block. Raises `Unavailable` and `Overloaded` of the metadata store."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - boundary: one subject
            if isinstance(error, Unavailable | Overloaded):
                await self._probe()
            self._failed(subject, error)
        else:
            self._succeeded(subject)

    def end_round(self) -> None:
        """End a round: subjects that did not fail in it no longer count as failing (they may be gone)."""
        for subject in self._failing.keys() - self._failed_now:
            del self._failing[subject]
        self._failed_now.clear()
        self._measure()

    def forget(self, *subjects: str) -> None:
        """Subjects that are gone or no longer processed do not count as failing. For loops without rounds."""
        for subject in subjects:
            self._failing.pop(subject, None)
            self._failed_now.discard(subject)
        self._measure()

    def clear(self) -> None:
        """The job ends here, perhaps to continue elsewhere: no subject counts as failing."""
        self.forget(*self._failing)

    def _failed(self, subject: str, error: Exception) -> None:
        kind, level, trace = type(error).__name__, logging.WARNING, None
        metrics.UPKEEP_FAULTS.labels(self._job, kind).inc()
        if not isinstance(error, BearlakeError):
            metrics.CONTAINED_FAULTS.labels(f"upkeep: {self._job}").inc()
            level, trace = logging.ERROR, error
        if self._failing.get(subject) == kind:
            level, trace = logging.DEBUG, None
        details = {"job": self._job, "subject": subject, "error": repr(error)}
        self._logger.log(
            level, "a step of upkeep failed; continuing with the other steps", extra=details, exc_info=trace
        )
        self._failing[subject] = kind
        self._failed_now.add(subject)
        while len(self._failing) > FAILING_COUNT_MAX:
            self._failing.popitem(last=False)
        self._measure()

    def _succeeded(self, subject: str) -> None:
        if self._failing.pop(subject, None) is not None:
            self._failed_now.discard(subject)
            self._logger.info("a step of upkeep works again", extra={"job": self._job, "subject": subject})
            self._measure()

    def _measure(self) -> None:
        metrics.UPKEEP_FAILING.labels(self._job).set(len(self._failing))
