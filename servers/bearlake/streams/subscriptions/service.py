"""Implements `Subscriptions` for one server: attaches consumers, describes and changes subscriptions, runs the background tasks.

Durable subscriptions belong to held partitions (`holding.py`), non-durable ones to `non_durable.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import AlreadyExists, BearlakeError, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata import subscriptions as cursors
from bearlake.metadata.model import PartitionBounds, PartitionKey, ServerRef
from bearlake.metadata.subscriptions import dispatch_lease
from bearlake.owned_tasks import Tasks
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.subscriptions import Subscriptions
from bearlake.streams.subscriptions.attachment import Attached
from bearlake.streams.subscriptions.ending import Endings
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.held import HeldPartition
from bearlake.streams.subscriptions.holding import Holdings
from bearlake.streams.subscriptions.model import (
    EARLIEST,
    LATEST,
    Busy,
    Closed,
    ConsumerSpec,
    NotHolder,
    SubscriptionStats,
    SubscriptionType,
)
from bearlake.streams.subscriptions.non_durable import NonDurable, clamped
from bearlake.streams.subscriptions.reading import Records
from bearlake.streams.subscriptions.saving import Saver
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.streams.subscriptions.share.terms import NoTerms, TermsSource, refuse_share_name, without_shares
from bearlake.streams.subscriptions.share_dispatch import LocalShares
from bearlake.streams.subscriptions.subscription import Subscription, stored_stats
from bearlake.streams.tenure import Tenure
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained
from bearlake.telemetry.fault_isolation import FaultIsolation
from bearlake.telemetry.outage import Outage

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import Consumer, EntryReader

log = logging.getLogger(__name__)

CHECK_S_MAX = 1.0
"""Longest time between two checks for idle partitions and deleted streams."""


class SubscriptionService(Subscriptions):
    """Implements `Subscriptions`. Use it from the event loop's thread only; start `run` before attaching consumers."""

    def __init__(
        self,
        metadata: Metadata,
        cursor_store: cursors.CursorStore,
        server: ServerRef,
        records: Records,
        is_known: Callable[[PartitionKey], bool],
        clock: Clock,
        settings: SubscriptionSettings,
        tenure: Tenure,
        is_terminated: Callable[[PartitionKey], bool] = lambda partition: False,
        share_terms: TermsSource | None = None,
    ) -> None:
        """`is_known` says whether this server knows the partition's stream as active; if not, the service asks the store.

        `is_terminated` says whether this server knows the stream as terminated; the caller calls `streams_changed` after changes.

        `share_terms`: of share groups. `tenure`: of this server's registration, whether another server may have taken its leases.
        """
        self.settings = settings
        self._server = server
        self._leases = metadata.leases
        self._cursors, self._records = cursor_store, records
        self._is_known = is_known
        around = Surroundings(records, clock, settings, self._start, lambda partition: True)
        held = around._replace(may_deliver=lambda partition: self._holdings.may_deliver(partition))
        self._saver = Saver(
            cursor_store,
            lambda partition, lease: self._holdings.overtaken(partition, lease),
            lambda saved, error: self._holdings.unsaved(saved, error),
            save_ms=settings.save_ms,
            retry_pause_ms=settings.retry_pause_ms,
        )
        self._isolation = FaultIsolation(log, "subscriptions", metadata.log.head)
        self._holdings = Holdings(metadata.leases, cursor_store, held, self._saver, tenure, self._isolation)
        self.shares = LocalShares(self._holdings, self._saver, records, clock, share_terms or NoTerms(), self.seek)
        self._local = NonDurable(around)
        self._endings = Endings(records, is_terminated, self._all, retry_pause_ms=settings.retry_pause_ms)
        self._tasks: Tasks | None = None
        self._attached_count = 0
        """Consumers attached at the last check, plus those attached since."""
        metrics.SUBSCRIPTION_CONSUMERS.set_function(lambda: self._consumer_count)

    async def run(self) -> None:
        """Save cursors, read for consumers, and release idle partitions; runs until cancelled."""
        try:
            async with Tasks() as self._tasks:
                self._tasks.own("save cursors", self._saver.run())
                self._tasks.own("release idle partitions", self._check_periodically())
                self._tasks.own("find the ends of terminated streams", self._endings.run())
                await self._tasks.run()
        finally:
            self._tasks = None

    def streams_changed(self) -> None:
        """Call this after this server learns that streams were created, changed or deleted."""
        self._endings.look()

    def refuse(self) -> None:
        """Take no more partitions and consumers."""
        self._holdings.refuse()

    async def drain(self) -> None:
        """Release all partitions, then close all consumers with `closed(MOVED)`: other servers may take over by then."""
        await self._holdings.drain()
        self._local.close(Closed.MOVED)

    async def close(self) -> None:
        """Stop; entries with unsaved acknowledgements are redelivered elsewhere."""
        await self._holdings.close()
        self._local.close(Closed.MOVED)

    # -- consumers -----------------------------------------------------------------------------------------------

    @override
    async def attach(
        self,
        partition: PartitionKey,
        subscription: str,
        spec: ConsumerSpec,
        consumer: "Consumer",
        reader: "EntryReader",
    ) -> Attached:
        if spec.sticky_ranges and spec.type is not SubscriptionType.KEY_SHARED:
            raise Invalid(f"sticky ranges in a {spec.type.value} subscription")
        if self._attached_count >= self.settings.consumer_count_max:
            raise Overloaded(f"this server has reached its limit of {self._attached_count} consumers")
        if not spec.is_durable:
            found = await self._open_local(partition, subscription, spec)
            await self._check_readable(found, lambda: self._local.get(partition, subscription))
            try:
                return self._attach(found, spec, consumer, reader)
            finally:
                self._local.forget_if_unused(found)
        held = await self._holdings.open(partition)
        try:
            found = held.subscriptions.get(subscription) or await self._create(
                held, subscription, spec.position, spec.subscription_properties
            )
        except Fenced as error:
            # The client attaches again, not this call: the subscription may have been deleted since it was created.
            raise Unavailable(f"this server has released partition {partition} meanwhile") from error
        await self._check_readable(found, lambda: None if held.is_left else held.subscriptions.get(subscription))
        return self._attach(found, spec, consumer, reader)

    @staticmethod
    async def _check_readable(found: Subscription, current: Callable[[], Subscription | None]) -> None:
        """Check that the subscription is readable and still the `current` one of its name. Raises `Damaged`, `Unavailable`."""
        await found.check_readable()
        if current() is not found:
            raise Unavailable("the subscription was closed while its entries were read; attach again")

    def _attach(
        self, subscription: Subscription, spec: ConsumerSpec, consumer: "Consumer", reader: "EntryReader"
    ) -> Attached:
        attached = Attached(self, subscription, spec, consumer, reader)
        self._attached_count += 1
        self._endings.came(subscription.partition)
        return attached

    async def _create(
        self, held: HeldPartition, name: str, position: int, properties: Mapping[str, str]
    ) -> Subscription:
        refuse_share_name(name)
        if len(held.subscriptions) >= self.settings.subscription_per_partition_max:
            raise Overloaded(
                f"partition {held.partition} has reached its limit of {len(held.subscriptions)} subscriptions"
            )
        if position == LATEST:  # as of now: a record that arrives meanwhile belongs to the subscription, too
            position = (await self._bounds(held.partition)).last_stable
        mark_delete = cursors.EARLIEST if position == EARLIEST else position
        return await self._holdings.create(held, name, mark_delete, properties)

    async def _open_local(self, partition: PartitionKey, name: str, spec: ConsumerSpec) -> Subscription:
        bounds = await self._bounds(partition)
        if self._holdings.is_draining:
            raise NotHolder("this server is draining", None)
        return self._local.get(partition, name) or self._local.create(
            partition, name, clamped(spec.position, bounds), spec.subscription_properties
        )

    @property
    def _consumer_count(self) -> int:
        held = sum(item.consumer_count for item in self._holdings.all())
        return held + sum(item.consumer_count for item in self._local.all())

    def _all(self) -> list[Subscription]:
        return [*(held for item in self._holdings.all() for held in item.subscriptions.values()), *self._local.all()]

    # -- for attachments -----------------------------------------------------------------------------------------

    async def flush(self, subscription: Subscription) -> None:
        """Return when the subscription's acknowledgements are saved. Raises `Fenced`, `Overloaded`, `Unavailable`."""
        await subscription.resolved()
        if subscription.saved is not None:
            await self._saver.flushed(subscription.saved)

    async def move(self, subscription: Subscription, offset: int) -> None:
        """Move the subscription to an offset, as `Attachment.seek` does."""
        offset = clamped(offset, await self._bounds(subscription.partition))
        if subscription.saved is not None and subscription.saved.is_over:
            raise Fenced(f"partition {subscription.partition} is no longer held by this server")
        subscription.reset(offset)
        await self.flush(subscription)

    async def move_to_time(self, subscription: Subscription, timestamp_ms: int) -> None:
        """Move the subscription to a time, as `Attachment.seek_time` does."""
        await self.move(subscription, await self._offset_of_time(subscription.partition, timestamp_ms))

    async def _offset_of_time(self, partition: PartitionKey, timestamp_ms: int) -> int:
        """Return the offset of the first record at or after a time; the end if there is none."""
        end = (await self._bounds(partition)).end  # as of before the look-up: later records may be at or after the time
        (answer,) = await self._records.offsets([OffsetQuestion(partition, max(0, timestamp_ms))])
        if answer.error is not None:
            raise answer.error
        return answer.offset if answer.offset >= 0 else end

    async def forget(self, subscription: Subscription, on_forgotten: Callable[[], None] = lambda: None) -> None:
        """Delete the subscription; `on_forgotten` runs before its consumers are closed. Raises `Fenced`, `Unavailable`."""
        if subscription.saved is not None:
            await self._holdings.forget(subscription.saved)
        on_forgotten()
        subscription.close(Closed.UNSUBSCRIBED)

    # -- administration ------------------------------------------------------------------------------------------

    @override
    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        lease = await self._leases.holder(dispatch_lease(partition))
        return lease.holder if lease is not None else None

    @override
    async def names(self, partition: PartitionKey) -> list[str]:
        await self._bounds(partition)
        return [cursor.name for cursor in without_shares(await self._cursors.load(partition))]

    @override
    async def stats(self, partition: PartitionKey) -> list[SubscriptionStats]:
        bounds = await self._bounds(partition)
        held = self._holdings.get(partition)
        if held is not None:
            with suppress(Fenced):  # the partition was released meanwhile
                await self._holdings.adopt_stored(held, bounds.start)
        if held is not None and not held.is_left:
            for subscription in held.subscriptions.values():
                subscription.skip_before(bounds.start)  # a trim may have moved the start since the last read
            shown = [subscription.stats(bounds.last_stable) for subscription in held.subscriptions.values()]
        else:
            holder = await self.holder(partition)
            if holder not in (None, self._server):
                raise NotHolder(f"another server dispatches partition {partition}", holder)
            shown = [stored_stats(cursor, bounds) for cursor in without_shares(await self._cursors.load(partition))]
        shown += [item.stats(bounds.last_stable) for item in self._local.of(partition)]
        return sorted(shown, key=lambda item: item.name)

    @override
    async def create(
        self, partition: PartitionKey, subscription: str, position: int, properties: Mapping[str, str] | None = None
    ) -> None:
        held = await self._holdings.open(partition)
        if await self._holdings.find(held, subscription) is not None:
            raise AlreadyExists(f"the subscription {subscription!r} exists")
        await self._create(held, subscription, position, properties or {})

    @override
    async def merge(
        self,
        partition: PartitionKey,
        subscription: str,
        mark_delete: int,
        acknowledged: Sequence[tuple[int, int]],
        properties: Mapping[str, str],
    ) -> None:
        held = await self._holdings.open(partition)
        found = await self._holdings.find(held, subscription)
        if found is None:
            found = await self._create(held, subscription, EARLIEST, properties)
        if found.consumer_count:
            raise Busy(f"the subscription {subscription!r} has {found.consumer_count} consumers here")
        found.merge(mark_delete, acknowledged)
        await self.flush(found)

    @override
    async def release(self, partition: PartitionKey) -> None:
        held = self._holdings.get(partition)
        if held is not None and not held.is_used:
            await self._holdings.leave(held, Closed.MOVED)

    @override
    async def delete(self, partition: PartitionKey, subscription: str, *, is_forced: bool = False) -> None:
        found = await self._find(partition, subscription)
        if found.consumer_count and not is_forced:
            raise Busy(f"the subscription {subscription!r} has {found.consumer_count} consumers")
        await self.forget(found)

    @override
    async def seek(self, partition: PartitionKey, subscription: str, offset: int) -> None:
        await self.move(await self._find(partition, subscription), offset)

    @override
    async def seek_time(self, partition: PartitionKey, subscription: str, timestamp_ms: int) -> None:
        await self.move_to_time(await self._find(partition, subscription), timestamp_ms)

    @override
    async def skip(self, partition: PartitionKey, subscription: str, count: int) -> None:
        found = await self._find(partition, subscription)
        bounds = await self._bounds(partition)
        found.skip_before(bounds.start)  # trimmed offsets do not count
        found.skip_before(min(found.cursor.offset_behind(count), bounds.last_stable))
        await self.flush(found)

    @override
    async def expire(self, partition: PartitionKey, subscription: str, before_ms: int) -> None:
        found = await self._find(partition, subscription)
        stable = (await self._bounds(partition)).last_stable  # what is not decided is not expired
        found.skip_before(min(await self._offset_of_time(partition, before_ms), stable))
        await self.flush(found)

    async def _find(self, partition: PartitionKey, name: str) -> Subscription:
        """Return an existing durable subscription. Raises as `Holdings.open`."""
        held = await self._holdings.open(partition)
        found = await self._holdings.find(held, name)
        if found is None or held.is_left:
            raise NotFound(f"no subscription {name!r}")
        return found

    # -- internals -----------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        if self._tasks is None:
            work.close()
            raise Unavailable("the dispatcher of this server is not running")
        return self._tasks.start("read for subscriptions", work)

    async def _bounds(self, partition: PartitionKey) -> PartitionBounds:
        bounds = (await self._records.bounds([partition])).get(partition)
        if bounds is None:
            raise NotFound(f"no partition {partition}")
        return bounds

    async def _check_periodically(self) -> None:
        outage = Outage(log, "cannot look up leases and streams; retrying", "looking up leases and streams works again")
        while True:
            await asyncio.sleep(min(self.settings.idle_ms / 4000, CHECK_S_MAX))
            self._attached_count = self._consumer_count
            for subscription in self._local.all():
                contained(log, "look after a subscription", partial(self._local.forget_if_unused, subscription))
            try:
                await self._holdings.give_up_idle()
                await self._holdings.verify()
                await self._holdings.release_former()
                await self._close_deleted()
                self._isolation.end_round()
                outage.over()
            except BearlakeError as error:
                outage.failed(error)
            except Exception as error:  # noqa: BLE001 - boundary: the next round tries again
                outage.fault("look after subscriptions", error)

    async def _close_deleted(self) -> None:
        """Close the consumers of partitions whose stream was deleted."""
        touched = {held.partition for held in self._holdings.all()} | {item.partition for item in self._local.all()}
        unknown = [partition for partition in touched if not self._is_known(partition)]
        if not unknown:
            return
        existing = await self._records.bounds(unknown)
        for partition in unknown:
            if partition not in existing:
                async with self._isolation.of(str(partition)):
                    await self._close_partition(partition)

    async def _close_partition(self, partition: PartitionKey) -> None:
        held = self._holdings.get(partition)
        if held is not None:
            await self._holdings.leave(held, Closed.DELETED)
        for subscription in self._local.of(partition):
            contained(log, "close a subscription", partial(subscription.close, Closed.DELETED))
