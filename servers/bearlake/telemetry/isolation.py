"""One subject's fault stops that subject (I11): for loops over many streams, tasks or pages.

    async for stream in all_streams(metadata, page_count):
        async with isolation.of(stream.name):
            await keep_up(stream)

Every `BearlakeError` of a step is counted, logged once per change, and ends that step alone. Only what concerns everybody ends the
round: after an `Unavailable` or `Overloaded` step the metadata store is asked for a trifle, and its own error is raised.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.telemetry import metrics

FAILING_COUNT_MAX = 1_000
"""Failing subjects that are remembered; beyond that, the oldest are logged again."""


class Isolation:
    """Used by one job, from one thread. `probe` asks the metadata store something cheap; `job` is a metric's label."""

    def __init__(self, logger: logging.Logger, job: str, probe: Callable[[], Awaitable[object]]) -> None:
        self._logger = logger
        self._job = job
        self._probe = probe
        self._failing: OrderedDict[str, str] = OrderedDict()
        self._failed_now: set[str] = set()

    @property
    def failing(self) -> list[str]:
        """Subjects whose last step failed."""
        return list(self._failing)

    @asynccontextmanager
    async def of(self, subject: str) -> AsyncIterator[None]:
        """Do the step for `subject` inside. Raises `Unavailable` and `Overloaded` of the metadata store."""
        try:
            yield
        except BearlakeError as error:
            if isinstance(error, Unavailable | Overloaded):
                await self._probe()
            self._failed(subject, error)
        else:
            self._succeeded(subject)

    def end_round(self) -> None:
        """A round is over: subjects that did not fail in it are not failing any more (they may be gone)."""
        for subject in self._failing.keys() - self._failed_now:
            del self._failing[subject]
        self._failed_now.clear()
        self._measure()

    def forget(self, *subjects: str) -> None:
        """These are gone, or nobody looks at them any more: they are not failing. For loops that have no rounds."""
        for subject in subjects:
            self._failing.pop(subject, None)
            self._failed_now.discard(subject)
        self._measure()

    def clear(self) -> None:
        """The job ends here, perhaps to go on elsewhere: nothing is failing."""
        self.forget(*self._failing)

    def _failed(self, subject: str, error: BearlakeError) -> None:
        kind = type(error).__name__
        metrics.UPKEEP_FAULTS.labels(self._job, kind).inc()
        level = logging.DEBUG if self._failing.get(subject) == kind else logging.WARNING
        details = {"job": self._job, "subject": subject, "error": repr(error)}
        self._logger.log(level, "a step of upkeep failed, going on with the others", extra=details)
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
