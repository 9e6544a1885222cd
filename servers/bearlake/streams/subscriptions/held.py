"""A partition that this server dispatches: its lease, its durable subscriptions, and its share groups."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from bearlake.errors import BearlakeError, Fenced
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import Cursor
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.saving import Revisions, Saveable, SavedCursor, Saver
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.partition import SharePartition
from bearlake.streams.subscriptions.share.terms import group_of
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.streams.tenure import HeldLease
from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)


class HeldPartition:
    """A held partition: its lease, its state, its durable subscriptions by name, and its share groups by name."""

    def __init__(self, partition: PartitionKey, held: HeldLease, surroundings: Surroundings, saver: Saver) -> None:
        self.partition = partition
        self.held = held
        self.lease = held.lease
        self.is_unverified = False
        """Whether this server has been unsure of its registration since the lease was verified."""
        self.subscriptions: dict[str, Subscription] = {}
        self.shares: dict[str, SharePartition] = {}
        """The share groups that have state in the partition."""
        self.last_used = asyncio.get_running_loop().time()
        self.is_left = False
        """Released or taken over: attachments and changes are no longer allowed."""
        self.deletions = asyncio.Lock()
        """Held by a deletion of a subscription, so that the deletions of this server do not refuse each other."""
        self.drop_count = 0
        """How often a subscription was dropped or may have been deleted; a cursor that the store returned before that may be gone."""
        self.open_deletion: int | None = None
        """The largest count named by an unanswered deletion, which may still take effect."""
        self._revisions = Revisions()
        self._around = surroundings
        self._saver = saver

    @property
    def consumer_count(self) -> int:
        """Number of attached consumers."""
        return sum(subscription.consumer_count for subscription in self.subscriptions.values())

    @property
    def is_used(self) -> bool:
        """Whether the partition has consumers, or share groups whose members hold locks."""
        return self.consumer_count > 0 or any(share.has_locks for share in self.shares.values())

    def saved_cursors(self) -> Iterator[SavedCursor]:
        """Return all cursors that this server saves."""
        for subscription in self.subscriptions.values():
            if subscription.saved is not None:
                yield subscription.saved
        for share in self.shares.values():
            yield share.saved

    def adopt_any(self, stored: Cursor, start: int) -> None:
        """`adopt` or `adopt_share`, according to the cursor's name."""
        if group_of(stored.name) is None:
            self.adopt(stored, start)
        else:
            self.adopt_share(stored, start)

    def adopt_share(self, stored: Cursor, start: int) -> SharePartition:
        """Return the share group of a stored cursor, as `adopt` does. Raises `Fenced`."""
        self._check_held()
        group = group_of(stored.name)
        assert group is not None, "the name is a share group's"
        known = self.shares.get(group)
        if known is not None:
            return known
        state = InFlight.unpack(stored.mark_delete, stored.acknowledged)
        state.trim(start)
        saved = self._saved(stored, state)
        share = self.shares[group] = SharePartition(
            self.partition, group, state, saved, lambda share: self._saver.moved(share.saved)
        )
        self._saver.moved(saved)
        return share

    def adopt(self, stored: Cursor, start: int) -> Subscription:
        """Return the subscription of a stored cursor; an existing one here takes precedence. `start`: the partition's start offset.

        Raises `Fenced` once the partition is released: the server never saves under a released lease.
        """
        self._check_held()
        known = self.subscriptions.get(stored.name)
        if known is not None:
            return known
        cursor = AckCursor.unpack(stored.mark_delete, stored.acknowledged)
        cursor.acknowledge_before(start)
        saved = self._saved(stored, cursor)
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

    def _check_held(self) -> None:
        if self.is_left:
            raise Fenced(f"this server has released partition {self.partition}")

    def _saved(self, stored: Cursor, cursor: Saveable) -> SavedCursor:
        self._revisions.seen(stored.revision)
        return SavedCursor(
            partition=self.partition,
            name=stored.name,
            cursor=cursor,
            lease=self.lease,
            generation=stored.generation,
            revisions=self._revisions,
        )

    def _moved(self, subscription: Subscription) -> None:
        assert subscription.saved is not None
        self._saver.moved(subscription.saved, is_urgent=subscription.consumer_count == 0)

    def drop(self, saved: SavedCursor, error: BearlakeError) -> Subscription | SharePartition | None:
        """Stop saving and confirming a cursor; removes and returns its subscription or share group. None if it is not here."""
        saved.end(error)
        group = group_of(saved.name)
        if group is not None:
            share = self.shares.get(group)
            if share is None or share.saved is not saved:
                return None
            del self.shares[group]
            self.drop_count += 1
            return share
        subscription = self.subscriptions.get(saved.name)
        if subscription is None or subscription.saved is not saved:
            return None
        del self.subscriptions[saved.name]
        self.drop_count += 1
        return subscription

    def deletion_unknown(self, named: int) -> None:
        """Record that a deletion that named this count got no answer."""
        self.open_deletion = max(named, self.open_deletion or 0)
        self.drop_count += 1

    def end(self, reason: Closed, error: BearlakeError) -> None:
        """Close all subscriptions and share groups; callers that wait for a save get `error`."""
        self.is_left = True
        for share in list(self.shares.values()):
            share.saved.end(error)
            contained(log, "close a share group", partial(share.close, reason))
        for subscription in list(self.subscriptions.values()):
            if subscription.saved is not None:
                subscription.saved.end(error)
            contained(log, "close a subscription", partial(subscription.close, reason))
