"""Non-durable subscriptions: one server keeps them in memory while they have consumers, or wait for one that comes back."""

import asyncio
from collections.abc import Mapping

from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.model import LATEST, Closed
from bearlake.streams.subscriptions.subscription import Subscription


class NonDurable:
    """The non-durable subscriptions of one server. Use it from the event loop's thread only."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._present: dict[tuple[PartitionKey, str], Subscription] = {}

    def get(self, partition: PartitionKey, name: str) -> Subscription | None:
        """Return a subscription; None if there is none of this name."""
        return self._present.get((partition, name))

    def all(self) -> list[Subscription]:
        """Return all subscriptions."""
        return list(self._present.values())

    def of(self, partition: PartitionKey) -> list[Subscription]:
        """Return the subscriptions of a partition."""
        return [item for item in self._present.values() if item.partition == partition]

    def create(self, partition: PartitionKey, name: str, offset: int, properties: Mapping[str, str]) -> Subscription:
        """Create a subscription that begins at `offset`; the caller has checked that there is none of this name."""
        made = Subscription(
            partition,
            name,
            AckCursor(offset),
            self._around,
            properties=properties,
            on_moved=self.forget_if_unused,
        )
        self._present[partition, name] = made
        return made

    def forget_if_unused(self, subscription: Subscription) -> None:
        """Forget the subscription if it has no consumer and waits for none."""
        is_awaited = subscription.retained_until_s > asyncio.get_running_loop().time()
        if not subscription.consumer_count and not is_awaited:
            self._present.pop((subscription.partition, subscription.name), None)

    def close(self, reason: Closed) -> None:
        """Close all consumers, and forget the subscriptions."""
        for subscription in self.all():
            subscription.close(reason)
        self._present.clear()


def clamped(offset: int, bounds: PartitionBounds) -> int:
    """Clamp an offset, also `EARLIEST`, to `[start, end]`. `LATEST` is the last stable offset: open transactions are yet to come."""
    if offset == LATEST:
        return bounds.last_stable
    return min(max(offset, bounds.start), bounds.end)
