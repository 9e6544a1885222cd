"""Lists all resources periodically: finds changes that the watches missed, and detects a watch that has failed.

A change that is in a list but not yet in the cache may still be on its way through the watch. If a watch misses changes in several rounds
in a row, it has failed; then the process exits, and a new one starts with new watches.
"""

import asyncio
import logging
from collections.abc import Sequence

from bearlake_operator import metrics
from bearlake_operator.controllers.apply import CHILD_KINDS, SELECTOR
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.errors import OperatorError
from bearlake_operator.kube import OPTIONAL_KINDS, KubeClient, Listing

log = logging.getLogger(__name__)

CUSTOM_KINDS = ("Stream", "Compactor")
GRACE_S = 5.0
"""Time that a watch has to deliver a change that is already in a list."""
MISSED_ROUND_COUNT_MAX = 3
"""Rounds in a row in which a watch may miss changes before it counts as failed."""


class WatchFailed(Exception):
    """A watch no longer delivers changes."""


class Resync:
    """Merges periodic lists into the cache."""

    def __init__(self, kube: KubeClient, cache: ResourceCache, namespaces: Sequence[str], interval_s: float) -> None:
        """`namespaces` are those of Streams and Compactors; empty means all."""
        self._kube = kube
        self._cache = cache
        self._namespaces: Sequence[str | None] = namespaces or [None]
        self._interval_s = interval_s
        self._missed_round_counts: dict[str, int] = {}

    async def list_all(self) -> None:
        """Fill the cache before the controllers start. Raises `Unavailable`, `Invalid`."""
        for kind, namespace, listing in await self._list():
            self._cache.replace(kind, listing, namespace)

    async def run(self) -> None:
        """Resync until cancelled. Raises `WatchFailed`."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.resync()
            except OperatorError as error:
                log.warning("cannot list resources", extra={"error": str(error)})

    async def resync(self) -> None:
        """Run one round. Raises `Unavailable`, `Invalid`, `WatchFailed`."""
        listings = await self._list()
        await asyncio.sleep(GRACE_S)
        missed: dict[str, int] = {}
        for kind, namespace, listing in listings:
            change_count = self._cache.replace(kind, listing, namespace)
            if kind not in OPTIONAL_KINDS:  # they are not watched: KEDA updates their status all the time
                missed[kind] = missed.get(kind, 0) + change_count
        for kind, count in missed.items():
            metrics.MISSED_EVENTS.labels(kind).inc(count)
            self._missed_round_counts[kind] = self._missed_round_counts.get(kind, 0) + 1 if count else 0
            if self._missed_round_counts[kind] >= MISSED_ROUND_COUNT_MAX:
                raise WatchFailed(f"the watch of {kind} missed changes {MISSED_ROUND_COUNT_MAX} times in a row")

    async def _list(self) -> list[tuple[str, str | None, Listing]]:
        """All resources, by kind and namespace (None: all namespaces)."""
        listings: list[tuple[str, str | None, Listing]] = [
            (kind, namespace, await self._kube.list(kind, namespace))
            for kind in CUSTOM_KINDS
            for namespace in self._namespaces
        ]
        own = self._kube.namespace
        return listings + [(kind, own, await self._kube.list(kind, own, SELECTOR)) for kind in CHILD_KINDS]
