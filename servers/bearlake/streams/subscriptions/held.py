"""A partition that this server dispatches: its lease and its durable subscriptions, from the moment it is held until it is given up."""

import asyncio

from bearlake.errors import BearlakeError, Fenced
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import Cursor
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.saving import Revisions, SavedCursor, Saver
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.streams.tenure import HeldLease


class HeldPartition:
    """A partition that this server dispatches, and its durable subscriptions by name."""

    def __init__(self, partition: PartitionKey, held: HeldLease, surroundings: Surroundings, saver: Saver) -> None:
        self.partition = partition
        self.held = held
        self.lease = held.lease
        self.is_doubted = False
        """Whether this server was not sure of itself since the lease was verified."""
        self.subscriptions: dict[str, Subscription] = {}
        self.last_used = asyncio.get_running_loop().time()
        self.is_left = False
        """Given up or overtaken: nothing may be attached or changed any more."""
        self.drop_count = 0
        """How often a subscription was dropped, or may have been deleted. What the store answered before may be a cursor that is gone."""
        self.open_deletion: int | None = None
        """The largest count that a deletion without an answer named: it may still take effect."""
        self._revisions = Revisions()
        self._around = surroundings
        self._saver = saver

    @property
    def consumer_count(self) -> int:
        """Attached consumers."""
        return sum(subscription.consumer_count for subscription in self.subscriptions.values())

    def adopt(self, stored: Cursor, start: int) -> Subscription:
        """The subscription of a stored cursor; the one that is here already knows better. `start` is the partition's start offset.

        Raises `Fenced` once the partition is left: nothing is ever saved under a lease that was given up.
        """
        if self.is_left:
            raise Fenced(f"this server has given up partition {self.partition}")
        known = self.subscriptions.get(stored.name)
        if known is not None:
            return known
        self._revisions.seen(stored.revision)
        cursor = AckCursor.unpack(stored.mark_delete, stored.acknowledged)
        cursor.acknowledge_before(start)
        saved = SavedCursor(
            partition=self.partition,
            name=stored.name,
            cursor=cursor,
            lease=self.lease,
            generation=stored.generation,
            revisions=self._revisions,
        )
        subscription = self.subscriptions[stored.name] = Subscription(
            self.partition,
            stored.name,
            cursor,
            self._around,
            saved=saved,
            properties=stored.properties,
            on_moved=self._moved,
        )
        self._saver.moved(saved)
        return subscription

    def _moved(self, subscription: Subscription) -> None:
        assert subscription.saved is not None
        self._saver.moved(subscription.saved, is_urgent=subscription.consumer_count == 0)

    def drop(self, saved: SavedCursor, error: BearlakeError) -> Subscription | None:
        """Save and confirm nothing more of a cursor; returns its subscription, which is not here any more. None: it was not here."""
        saved.end(error)
        subscription = self.subscriptions.get(saved.name)
        if subscription is None or subscription.saved is not saved:
            return None
        del self.subscriptions[saved.name]
        self.drop_count += 1
        return subscription

    def deletion_unknown(self, named: int) -> None:
        """A deletion that named this count has no answer."""
        self.open_deletion = max(named, self.open_deletion or 0)
        self.drop_count += 1

    def end(self, reason: Closed, error: BearlakeError) -> None:
        """Everything here is over; whoever waits for a save gets `error`."""
        self.is_left = True
        for subscription in list(self.subscriptions.values()):
            if subscription.saved is not None:
                subscription.saved.end(error)
            subscription.close(reason)
