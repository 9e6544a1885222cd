"""Lists everything now and then: what no watch has told is found, and a watch that is dead is noticed.

News in a list that no watch brought may be in flight; news that are still missing at the next list mean that the watch is dead.
Then the process ends, and its successor starts with fresh watches.
"""

import asyncio
import logging
from collections.abc import Sequence

from bearlake_operator import metrics
from bearlake_operator.errors import OperatorError
from bearlake_operator.handlers.apply import CHILD_KINDS, SELECTOR
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import OPTIONAL_KINDS, Kube, Listing

log = logging.getLogger(__name__)

OWN_KINDS = ("Stream", "Compactor")
GRACE_S = 5.0
"""How long a watch may take to tell what a list has."""
DEAF_COUNT_MAX = 3
"""Rounds in a row with news that the watch of a kind should have told."""


class WatchDead(Exception):
    """A watch tells nothing any more."""


class Resync:
    """See the module."""

    def __init__(self, kube: Kube, world: World, namespaces: Sequence[str], every_s: float) -> None:
        """`namespaces` whose Streams and Compactors are looked at; none: all."""
        self._kube = kube
        self._world = world
        self._namespaces: Sequence[str | None] = namespaces or [None]
        self._every_s = every_s
        self._deaf: dict[str, int] = {}

    async def first(self) -> None:
        """List everything before anything is decided. Raises `Unavailable`."""
        for kind, namespace, found in await self._list():
            self._world.listed(kind, found, namespace)

    async def run(self) -> None:
        """List for ever. Raises `WatchDead`."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.check()
            except OperatorError as error:
                log.warning("not listed", extra={"error": str(error)})

    async def check(self) -> None:
        """One round. Raises `Unavailable`, `WatchDead`."""
        listings = await self._list()
        await asyncio.sleep(GRACE_S)
        missed: dict[str, int] = {}
        for kind, namespace, found in listings:
            news = self._world.listed(kind, found, namespace)
            if kind not in OPTIONAL_KINDS:  # these nobody watches: KEDA's statuses change all the time
                missed[kind] = missed.get(kind, 0) + news
        for kind, count in missed.items():
            metrics.MISSED_EVENTS.labels(kind).inc(count)
            self._deaf[kind] = self._deaf.get(kind, 0) + 1 if count else 0
            if self._deaf[kind] >= DEAF_COUNT_MAX:
                raise WatchDead(f"the watch of {kind} has missed changes {DEAF_COUNT_MAX} times in a row")

    async def _list(self) -> list[tuple[str, str | None, Listing]]:
        """Everything, by kind and namespace (None: all)."""
        found: list[tuple[str, str | None, Listing]] = [
            (kind, namespace, await self._kube.list(kind, namespace))
            for kind in OWN_KINDS
            for namespace in self._namespaces
        ]
        own = self._kube.namespace
        return found + [(kind, own, await self._kube.list(kind, own, SELECTOR)) for kind in CHILD_KINDS]
