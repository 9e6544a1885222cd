"""Which partitions this server dispatches: leases taken at the first use, given up when idle or drained, lost when overtaken.

    absent ── open ──> taking (lease, cursors) ──> held ── idle, drain, stream deleted ──> leaving (saved, released) ──> absent
                                                     └──── overtaken ──> absent, at once

While a partition is leaving its acknowledgements still count, and whoever wants it waits until it has left.

A lease lives as long as its holder's registration. A server that has learned that its own had lapsed, or is not sure of it for a moment (it
or its machine stood still, or the store did not answer its heartbeats), delivers nothing until it has seen in the store that its leases are
still its own.
"""

import asyncio
import logging

from bearlake.errors import BearlakeError, Conflict, Fenced, NotFound, Overloaded, Unavailable
from bearlake.metadata import Leases
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore, dispatch_lease
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.model import Closed, NotHolder
from bearlake.streams.subscriptions.saving import SavedCursor, Saver
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.streams.tenure import HeldLease, Tenure
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

LEAVE_COUNT = 32
"""Partitions that are given up at once."""
STOP_COUNT = 1_024
"""Partitions whose consumers acknowledge at once what they have, before those are given up."""
ACK_POLL_MS = 10
"""Pause between two looks whether they have."""
LAST_SAVE_COUNT_MAX = 3
"""Saves of a partition that is given up while acknowledgements keep coming; later ones are delivered again elsewhere."""


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
        self._around = surroundings
        self._saver = saver

    @property
    def consumer_count(self) -> int:
        """Attached consumers."""
        return sum(subscription.consumer_count for subscription in self.subscriptions.values())

    def adopt(self, stored: Cursor, start: int) -> Subscription:
        """The subscription of a stored cursor; the one that is here already knows better. `start` is the partition's start offset."""
        known = self.subscriptions.get(stored.name)
        if known is not None:
            return known
        cursor = AckCursor.unpack(stored.mark_delete, stored.acknowledged)
        cursor.acknowledge_before(start)
        saved = SavedCursor(
            partition=self.partition,
            name=stored.name,
            cursor=cursor,
            lease=self.lease,
            revision=stored.revision,
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

    def end(self, reason: Closed, error: BearlakeError) -> None:
        """Everything here is over; whoever waits for a save gets `error`."""
        self.is_left = True
        for subscription in list(self.subscriptions.values()):
            if subscription.saved is not None:
                subscription.saved.end(error)
            subscription.close(reason)


class Holdings:
    """All partitions that this server dispatches. Used from the event loop's thread only."""

    def __init__(
        self,
        leases: Leases,
        cursors: CursorStore,
        surroundings: Surroundings,
        saver: Saver,
        tenure: Tenure,
    ) -> None:
        self._tenure = tenure
        self._leases = leases
        self._cursors = cursors
        self._around = surroundings
        self._settings = surroundings.settings
        self._saver = saver
        self._held: dict[PartitionKey, HeldPartition] = {}
        self._opening: dict[PartitionKey, asyncio.Task[HeldPartition]] = {}
        self._leaving: dict[PartitionKey, asyncio.Task[None]] = {}
        self._is_draining = False
        metrics.SUBSCRIPTION_PARTITIONS.set_function(lambda: len(self._held))

    def get(self, partition: PartitionKey) -> HeldPartition | None:
        """The partition if this server dispatches it now."""
        return self._held.get(partition)

    def all(self) -> list[HeldPartition]:
        """All that this server dispatches now."""
        return list(self._held.values())

    async def open(self, partition: PartitionKey) -> HeldPartition:
        """The partition, taken over if nobody live has it. Raises `NotHolder`, `NotFound`, `Overloaded`, `Fenced`, `Unavailable`."""
        while True:
            held = self._held.get(partition)
            leaving = self._leaving.get(partition)
            if held is not None and leaving is None:
                held.last_used = asyncio.get_running_loop().time()
                return held
            if self._is_draining:
                raise NotHolder("this server is draining", None)
            if leaving is not None:
                await asyncio.wait([leaving])
                continue
            return await self._open_new(partition)

    async def _open_new(self, partition: PartitionKey) -> HeldPartition:
        task = self._opening.get(partition)
        if task is None:
            if len(self._held) + len(self._opening) >= self._settings.partition_count_max:
                raise Overloaded(f"this server dispatches {len(self._held)} partitions already")
            task = self._opening[partition] = asyncio.get_running_loop().create_task(self._take(partition))
            task.add_done_callback(lambda done: self._opened(partition, done))
        return await asyncio.shield(task)

    def _opened(self, partition: PartitionKey, task: "asyncio.Task[HeldPartition]") -> None:
        self._opening.pop(partition, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have gone

    async def _take(self, partition: PartitionKey) -> HeldPartition:
        taken = await self._acquire(partition)
        lease = taken.lease
        held = HeldPartition(partition, taken, self._around, self._saver)
        try:
            bounds = (await self._around.records.bounds([partition])).get(partition)
            if bounds is None:
                raise NotFound(f"no partition {partition}")
            for cursor in await self._cursors.load(partition):
                held.adopt(cursor, bounds.start)
        except BearlakeError:
            await self._release(lease)
            raise
        if self._is_draining:
            await self._release(lease)
            raise NotHolder("this server is draining", None)
        self._held[partition] = held
        return held

    async def _acquire(self, partition: PartitionKey) -> HeldLease:
        name = dispatch_lease(partition)
        try:
            taken = await HeldLease.take(self._tenure, self._leases, name)
        except Conflict as error:
            metrics.LEASE_ACQUIRES.labels("refused").inc()
            holder = await self._leases.holder(name)
            raise NotHolder(str(error), holder.holder if holder is not None else None) from error
        metrics.LEASE_ACQUIRES.labels("taken").inc()
        return taken

    async def forget(self, subscription: Subscription, saved: SavedCursor) -> None:
        """Delete the cursor. Raises `Fenced`; `Unavailable`: it may be deleted or not.

        Then, or when the caller gives up, nothing more is saved or confirmed here: its consumers are closed, and find it or make it anew.
        """
        try:
            await self._cursors.delete(saved.partition, [saved.name], saved.lease)
        except (Unavailable, asyncio.CancelledError):
            self._drop(subscription, saved, Unavailable(f"the subscription {saved.name!r} may be deleted"))
            subscription.close(Closed.FAILED)
            raise
        self._drop(subscription, saved, Fenced(f"the subscription {saved.name!r} is deleted"))

    def _drop(self, subscription: Subscription, saved: SavedCursor, error: BearlakeError) -> None:
        saved.end(error)
        held = self._held.get(saved.partition)
        if held is not None and held.subscriptions.get(saved.name) is subscription:
            del held.subscriptions[saved.name]

    # -- being sure ----------------------------------------------------------------------------------------------

    def may_deliver(self, partition: PartitionKey) -> bool:
        """Whether the partition is this server's as far as it can know without asking the store."""
        held = self._held.get(partition)
        if not self._tenure.is_sure():
            self._doubt_all()
        return held is not None and not held.is_doubted and not held.held.is_doubted

    def _doubt_all(self) -> None:
        for held in self._held.values():
            held.is_doubted = True

    async def verify(self) -> None:
        """Confirm the leases that are in doubt. Raises `Unavailable`."""
        if not self._tenure.is_sure():
            self._doubt_all()
        for held in [held for held in self.all() if held.is_doubted or held.held.is_doubted]:
            try:
                await held.held.confirm()
            except Fenced:
                self._lose(held)
            else:
                held.is_doubted = not self._tenure.is_sure()

    # -- leaving -------------------------------------------------------------------------------------------------

    def overtaken(self, partition: PartitionKey) -> None:
        """Another server has the partition by now: stop at once."""
        held = self._held.get(partition)
        if held is not None:
            self._lose(held)

    def _lose(self, held: HeldPartition) -> None:
        partition = held.partition
        if self._held.get(partition) is held:
            del self._held[partition]
            log.warning("another server has taken a partition over", extra={"partition": partition})
            metrics.SUBSCRIPTION_PARTITIONS_LOST.inc()
            held.end(Closed.FENCED, Fenced(f"another server dispatches partition {partition}"))

    async def give_up_idle(self) -> None:
        """Give up partitions that have had no consumers for long."""
        now = asyncio.get_running_loop().time()
        for held in self.all():
            if held.consumer_count:
                held.last_used = now
            elif (now - held.last_used) * 1000 > self._settings.idle_ms:
                await self.leave(held, Closed.MOVED)

    async def drain(self) -> None:
        """Give everything up; what is asked for from now on is `NotHolder`."""
        self._is_draining = True
        if self._opening:
            await asyncio.wait(self._opening.values())
        held = self.all()
        for start in range(0, len(held), STOP_COUNT):
            await self._give_up(held[start : start + STOP_COUNT])

    async def _give_up(self, held: list[HeldPartition]) -> None:
        await self._acknowledged([one for item in held for one in item.subscriptions.values()])
        for start in range(0, len(held), LEAVE_COUNT):
            await asyncio.gather(*(self.leave(item, Closed.MOVED) for item in held[start : start + LEAVE_COUNT]))

    async def _acknowledged(self, subscriptions: list[Subscription]) -> None:
        """Deliver nothing more, and let consumers acknowledge what they have, so that they do not get it again elsewhere."""
        for subscription in subscriptions:
            subscription.stop()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.last_ack_wait_ms / 1000
        while loop.time() < end and any(one.awaits_acknowledgements for one in subscriptions):  # noqa: ASYNC110 - many callbacks
            await asyncio.sleep(ACK_POLL_MS / 1000)

    async def leave(self, held: HeldPartition, reason: Closed) -> None:
        """Give a partition up: deliver nothing more, save, release, and tell the consumers, in this order."""
        partition = held.partition
        task = self._leaving.get(partition)
        if task is None and self._held.get(partition) is held:
            task = self._leaving[partition] = asyncio.get_running_loop().create_task(self._leave(held, reason))
            task.add_done_callback(lambda _: self._leaving.pop(partition, None))
        if task is not None:
            await asyncio.wait([task])

    async def _leave(self, held: HeldPartition, reason: Closed) -> None:
        for subscription in held.subscriptions.values():
            subscription.stop()
        try:
            for _ in range(LAST_SAVE_COUNT_MAX):
                dirty = [item.saved for item in held.subscriptions.values() if item.saved and item.saved.is_dirty]
                if not dirty:
                    break
                await asyncio.gather(*map(self._saver.flushed, dirty))
        except BearlakeError as error:
            log.warning("cursors not saved when giving up", extra={"partition": held.partition, "error": repr(error)})
        if self._held.get(held.partition) is held:  # else it was overtaken meanwhile
            await self._release(held.lease)
            self._held.pop(held.partition, None)
            held.end(reason, Fenced(f"this server has given up partition {held.partition}"))

    async def _release(self, lease: Lease) -> None:
        try:
            await self._leases.release(lease)
        except BearlakeError as error:
            log.warning(
                "lease not released, it ends with this server", extra={"lease": lease.name, "error": repr(error)}
            )

    async def close(self) -> None:
        """Stop; consumers are told to go elsewhere."""
        tasks = [*self._opening.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self.all():
            held.end(Closed.MOVED, Fenced("this server stops"))
        self._held.clear()
