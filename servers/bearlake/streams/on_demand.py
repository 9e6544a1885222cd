"""Parts of the stream service that are loaded and built with the first request that needs them (decision 362).

Groups and subscriptions are a fifth of the modules of a server, and many servers have none. A part that was not built owns no lease, and
has no task but the one that waits until it is built.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from bearlake.late import Late

if TYPE_CHECKING:
    from bearlake.streams.group_service import GroupService
    from bearlake.streams.groups.coordinator import Coordinator
    from bearlake.streams.groups.shared import Groups
    from bearlake.streams.shares import ConfiguredTerms
    from bearlake.streams.subscriptions.service import SubscriptionService
    from bearlake.streams.subscriptions.share_dispatch import LocalShares


def _groups() -> "type[GroupService]":
    from bearlake.streams.group_service import GroupService

    return GroupService


def _subscriptions() -> "tuple[type[SubscriptionService], type[ConfiguredTerms]]":
    from bearlake.streams.shares import ConfiguredTerms
    from bearlake.streams.subscriptions.service import SubscriptionService

    return SubscriptionService, ConfiguredTerms


GROUPS, SUBSCRIPTIONS = Late(_groups), Late(_subscriptions)


class Part(Protocol):
    """A part with background tasks."""

    async def run(self) -> None:
        """Run the background tasks until cancelled."""

    def refuse(self) -> None:
        """Take no more work."""

    async def drain(self) -> None:
        """Take no more work, and release what other servers may take."""

    async def close(self) -> None:
        """Stop at once."""


P = TypeVar("P", bound=Part)
Loaded = TypeVar("Loaded")


class OnDemand(Generic[Loaded, P]):
    """A part that is built at its first use. Use it from the event loop's thread only."""

    def __init__(self, late: Late[Loaded], build: Callable[[Loaded], P]) -> None:
        self._late = late
        self._build = build
        self._part: P | None = None
        self._is_built = asyncio.Event()
        self._is_draining = False

    def get(self) -> P:
        """Return the part. Who may be the first to ask for it, with the event loop running, calls `load` instead."""
        if self._part is None:
            self._part = self._build(self._late.now())
            if self._is_draining:
                self._part.refuse()
            self._is_built.set()
        return self._part

    async def load(self) -> P:
        """Return the part; a thread loads its code first, if need be."""
        await self._late.get()
        return self.get()

    async def run(self) -> None:
        """Run the part's background tasks as soon as it is built, until cancelled."""
        await self._is_built.wait()
        await self.get().run()

    async def drain(self) -> None:
        """Drain the part; a part that is built later takes no work."""
        self._is_draining = True
        if self._part is not None:
            await self._part.drain()

    async def close(self) -> None:
        """Close the part."""
        if self._part is not None:
            await self._part.close()


class PartsOnDemand:
    """The groups and subscriptions of a stream service.

    Their code is loaded by the first use of each. Where no thread has loaded it before, callers use `coordinating` and `dispatching`.
    """

    _group_service: "OnDemand[type[GroupService], GroupService]"
    _subscription_service: "OnDemand[tuple[type[SubscriptionService], type[ConfiguredTerms]], SubscriptionService]"

    @property
    def coordinator(self) -> "Coordinator":
        """Groups that this server coordinates: for clients that find the coordinator themselves."""
        return self._group_service.get().coordinator

    @property
    def groups(self) -> "Groups":
        """All groups: for members that run inside this server."""
        return self._group_service.get().groups

    async def coordinating(self) -> "Coordinator":
        """Return `coordinator`."""
        return (await self._group_service.load()).coordinator

    async def release_groups(self) -> None:
        """Release all groups, and take no more."""
        await self._group_service.drain()

    @property
    def subscriptions(self) -> "SubscriptionService":
        """Subscriptions: this server dispatches the durable ones of the partitions that it holds, and any non-durable one."""
        return self._subscription_service.get()

    @property
    def local_shares(self) -> "LocalShares":
        """The records of share groups that this server dispatches."""
        return self._subscription_service.get().shares

    async def dispatching(self) -> "LocalShares":
        """Return `local_shares`."""
        return (await self._subscription_service.load()).shares
