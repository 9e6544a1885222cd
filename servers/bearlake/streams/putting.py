"""Puts the write path's objects and logs each outage of the object store once, however many puts fail.

    put ✗ ─ WARNING ─ put ✗ ─ put ✗ ── put ✓ that began after the last failure ─ INFO, with the count ── put ✗ ─ WARNING

The success of a put that began before the last failure does not end the outage.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from bearlake.errors import BearlakeError
from bearlake.objects import Buffer, ObjectStore
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

PROBLEM_S = 60.0
"""How long (s) a failed put is a problem if no other one succeeds: without producers, nothing shows whether the store works again."""


class Putting:
    """Puts objects and logs outages, for one writer."""

    def __init__(self, store: ObjectStore) -> None:
        """`store` already retries: an error that it raises is final."""
        self._store = store
        self.here = store.blocking_put()
        """Puts in steps, if the store is on this machine. Its errors are not final: `again` retries."""
        self.failure_count = 0
        """Puts that have failed; a put that succeeds tells `succeeded` how many had failed when it began."""
        self._outage = Outage(log, "cannot store objects; their batches fail", "storing objects works again")
        self._failure = ""
        """What the last failed put raised."""
        self._failed_at_s = 0.0
        """When, by the event loop's time."""

    @property
    def problem(self) -> str:
        """Why puts fail; empty: the last one has succeeded, or there was none in the last `PROBLEM_S`."""
        age_s = asyncio.get_running_loop().time() - self._failed_at_s
        return self._failure if self._outage.failure_count and age_s < PROBLEM_S else ""

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store an object, as `ObjectStore.put` does."""
        await self._watched(key, self._store.put(key, parts))

    async def again(self, key: str, parts: Sequence[Buffer], error: BearlakeError) -> None:
        """Store an object whose first attempt, by `here`, has raised `error`."""
        assert self.here is not None
        await self._watched(key, self.here.again(key, parts, error))

    def succeeded(self, failure_count: int) -> None:
        """A put has succeeded that began when `failure_count` puts had failed."""
        if self.failure_count == failure_count:
            self._outage.over()

    async def _watched(self, key: str, put: Awaitable[None]) -> None:
        failure_count = self.failure_count
        try:
            await put
        except BearlakeError as error:
            self.failure_count += 1
            self._failure, self._failed_at_s = str(error) or type(error).__name__, asyncio.get_running_loop().time()
            self._outage.failed(error, key=key)
            raise
        self.succeeded(failure_count)
