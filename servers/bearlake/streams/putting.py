"""Puts the write path's objects and logs each outage of the object store once, however many puts fail.

    put ✗ ─ WARNING ─ put ✗ ─ put ✗ ── put ✓ that began after the last failure ─ INFO, with the count ── put ✗ ─ WARNING

The success of a put that began before the last failure does not end the outage.
"""

import logging
from collections.abc import Callable, Sequence

from bearlake.errors import BearlakeError
from bearlake.objects import Buffer, ObjectStore
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


class Putting:
    """Puts objects and logs outages, for one writer."""

    def __init__(self, store: ObjectStore) -> None:
        """`store` already retries: an error that it raises is final."""
        self._store = store
        self._failure_count = 0
        self._outage = Outage(log, "cannot store objects; their batches fail", "storing objects works again")

    async def put(self, key: str, parts: Sequence[Buffer], *on_durable: Callable[[], None]) -> None:
        """Store an object, as `ObjectStore.put` does."""
        failure_count = self._failure_count
        try:
            await self._store.put(key, parts, *on_durable)
        except BearlakeError as error:
            self._failure_count += 1
            self._outage.failed(error, key=key)
            raise
        if self._failure_count == failure_count:
            self._outage.over()
