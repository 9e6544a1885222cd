"""Partitions that this server dispatches: takes leases at first use, releases them when idle or draining, loses them to other servers.

    absent ── open ──> taking (lease, cursors) ──> held ── idle, drain, stream deleted ──> leaving (saved, released) ──> absent
                                                     └──── overtaken ──> absent, at once

While a partition is leaving, acknowledgements still count, and new requests for the partition wait until it has left.

A lease lasts as long as its holder's registration. A server stops delivering when it learns that its registration had lapsed, or when it is
unsure (the process or the machine was suspended, or the store did not answer heartbeats). It delivers again once it has read in the store
that it still holds its leases.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from bearlake.errors import BearlakeError, Conflict, Fenced, NotFound, Overloaded, Unavailable
from bearlake.metadata import Leases
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import Cursor, CursorStore, dispatch_lease
from bearlake.streams.subscriptions.creating import ATTEMPTS_MAX, changing, create_cursor, refuse_deletions
from bearlake.streams.subscriptions.feeding import Surroundings
from bearlake.streams.subscriptions.held import HeldPartition
from bearlake.streams.subscriptions.model import Closed, NotHolder
from bearlake.streams.subscriptions.saving import SavedCursor, Saver
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.streams.tenure import HeldLease, Tenure
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import noticed
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger(__name__)

LEAVE_COUNT = 32
"""Partitions released concurrently."""
STOP_COUNT = 1_024
"""Partitions whose consumers may finish their acknowledgements concurrently, before the partitions are released."""
ACK_POLL_MS = 10
"""Pause (ms) between two checks whether the consumers have acknowledged everything."""
LAST_SAVE_COUNT_MAX = 3
"""Saves of a partition being released while acknowledgements keep arriving; entries acknowledged later are redelivered elsewhere."""


class Holdings:
    """All partitions that this server dispatches. Use it from the event loop's thread only."""

    def __init__(
        self,
        leases: Leases,
        cursors: CursorStore,
        surroundings: Surroundings,
        saver: Saver,
        tenure: Tenure,
        isolation: FaultIsolation,
    ) -> None:
        self._tenure = tenure
        self._isolation = isolation
        self._leases = leases
        self.cursors = cursors
        self._around = surroundings
        self.settings = surroundings.settings
        self._saver = saver
        self._held: dict[PartitionKey, HeldPartition] = {}
        self._opening: dict[PartitionKey, asyncio.Task[HeldPartition]] = {}
        self._leaving: dict[PartitionKey, asyncio.Task[None]] = {}
        self._taken: dict[PartitionKey, Lease] = {}
        """Leases that this server may still hold according to the store."""
        self.is_draining = False
        """Whether it takes no more partitions."""
        metrics.SUBSCRIPTION_PARTITIONS.set_function(lambda: len(self._held))

    def get(self, partition: PartitionKey) -> HeldPartition | None:
        """Return the partition if this server dispatches it now, else None."""
        return self._held.get(partition)

    def all(self) -> list[HeldPartition]:
        """Return all partitions that this server dispatches now."""
        return list(self._held.values())

    async def open(self, partition: PartitionKey) -> HeldPartition:
        """Return the partition; takes it over if no live server holds it.

        Raises `NotHolder`, `NotFound`, `Overloaded`, `Fenced`, `Unavailable`.
        """
        while True:
            held = self._held.get(partition)
            leaving = self._leaving.get(partition)
            if held is not None and leaving is None:
                held.last_used = asyncio.get_running_loop().time()
                return held
            if self.is_draining:
                raise NotHolder("this server is draining", None)
            if leaving is not None:
                await asyncio.wait([leaving])
                continue
            return await self._open_new(partition)

    async def _open_new(self, partition: PartitionKey) -> HeldPartition:
        task = self._opening.get(partition)
        if task is None:
            if len(self._held) + len(self._opening) >= self.settings.partition_count_max:
                raise Overloaded(f"this server has reached its limit of {len(self._held)} dispatched partitions")
            task = self._opening[partition] = asyncio.get_running_loop().create_task(self._take(partition))
            task.add_done_callback(noticed(log, "take a partition"))
            task.add_done_callback(lambda _: self._opening.pop(partition, None))
        return await asyncio.shield(task)

    async def _take(self, partition: PartitionKey) -> HeldPartition:
        taken = await self._acquire(partition)
        held = HeldPartition(partition, taken, self._around, self._saver)
        try:
            bounds = (await self._around.records.bounds([partition])).get(partition)
            if bounds is None:
                raise NotFound(f"no partition {partition}")
            for cursor in await self.cursors.load(partition):
                held.adopt_any(cursor, bounds.start)
        except BearlakeError:
            await self._release(partition)
            raise
        if self.is_draining:
            await self._release(partition)
            raise NotHolder("this server is draining", None)
        self._held[partition] = held
        return held

    async def _acquire(self, partition: PartitionKey) -> HeldLease:
        name = dispatch_lease(partition)
        await self._release_former(partition)
        try:
            taken = await HeldLease.take(self._tenure, self._leases, name)
        except Conflict as error:
            metrics.LEASE_ACQUIRES.labels("refused").inc()
            holder = await self._leases.holder(name)
            raise NotHolder(str(error), holder.holder if holder is not None else None) from error
        metrics.LEASE_ACQUIRES.labels("taken").inc()
        self._taken[partition] = taken.lease
        return taken

    async def _release_former(self, partition: PartitionKey) -> None:
        """Release this server's earlier lease of the partition. Raises `Unavailable`.

        The next lease then has a larger epoch, so the store refuses late writes under the earlier one.
        """
        former = self._taken.get(partition)
        if former is not None:
            await self._leases.release(former)
            if self._taken.get(partition) == former:
                del self._taken[partition]

    async def release_former(self) -> None:
        """Release the leases that this server may still hold in the store but no longer uses. Raises `Unavailable`."""
        for partition in [*self._taken]:
            if partition not in self._held and partition not in self._opening:
                async with self._isolation.of(str(partition)):
                    await self._release_former(partition)

    # -- cursors -------------------------------------------------------------------------------------------------

    async def create(
        self, held: HeldPartition, name: str, mark_delete: int, properties: Mapping[str, str]
    ) -> Subscription:
        """Return the subscription; creates it if needed, once.

        Raises as `create_cursor`; `Fenced` if the partition was released meanwhile.
        """
        drop_count = held.drop_count
        stored = await create_cursor(self.cursors, held.partition, name, mark_delete, properties)
        if held.drop_count == drop_count:
            return held.adopt(stored, stored.mark_delete)
        found = await self.find(held, name)  # it may be deleted again
        if found is None:
            raise changing(held.partition)
        return found

    async def find(self, held: HeldPartition, name: str) -> Subscription | None:
        """Return the subscription if it exists; no pending deletion can remove it afterwards. Raises `Fenced`, `Unavailable`."""
        if name not in held.subscriptions:
            await self.adopt_stored(held)
        return held.subscriptions.get(name)

    async def adopt_stored(self, held: HeldPartition, start: int = 0) -> Sequence[Cursor]:
        """Adopt cursors that other servers created; returns all stored cursors. Raises `Fenced`, `Unavailable`."""
        for _ in range(ATTEMPTS_MAX):
            drop_count = held.drop_count
            if held.open_deletion is not None:
                await refuse_deletions(self.cursors, held.partition, held.lease, held.open_deletion)
            stored = await self.cursors.load(held.partition)
            if held.drop_count == drop_count:
                held.open_deletion = None
                for cursor in stored:
                    held.adopt_any(cursor, start)
                return stored
        raise changing(held.partition)

    async def forget(self, saved: SavedCursor) -> None:
        """Delete the cursor. Raises `Fenced`; `Unavailable`: the cursor may or may not be deleted.

        If the outcome is unknown or the call is cancelled, this server stops saving and confirming the cursor and closes its consumers.
        They attach again and so find or recreate the subscription.
        """
        held = self._held.get(saved.partition)
        if held is None:
            raise _gone(saved)
        async with held.deletions:
            await self._delete(saved)

    async def _delete(self, saved: SavedCursor) -> None:
        """Delete the cursor, unless a client has found it since the look-up. Looks up once and does not try a refused deletion again."""
        after = await self.cursors.deletion_count(saved.partition)
        held = self._held.get(saved.partition)
        if held is None or saved.is_over:
            raise _gone(saved)
        try:
            await self.cursors.delete(saved.partition, {saved.name: saved.generation}, saved.lease, after=after)
        except Conflict as error:
            raise changing(saved.partition) from error
        except (Unavailable, asyncio.CancelledError):
            held.deletion_unknown(after)
            self._end(held, saved, Unavailable(f"the subscription {saved.name!r} may be deleted"))
            raise
        held.drop(saved, Fenced(f"the subscription {saved.name!r} is deleted"))

    def unsaved(self, saved: SavedCursor, error: BearlakeError) -> None:
        """Handle a cursor that is missing in the store or cannot be saved: close its consumers, which attach again and recreate it."""
        held = self._held.get(saved.partition)
        if held is None:
            saved.end(error)
        elif not saved.is_over:
            details = {"partition": saved.partition, "error": repr(error)}
            log.warning("a cursor is not saved; its consumers attach again", extra=details)
            self._end(held, saved, error)

    def _end(self, held: HeldPartition, saved: SavedCursor, error: BearlakeError) -> None:
        subscription = held.drop(saved, error)
        if subscription is not None:
            subscription.close(Closed.FAILED)

    # -- confirming ownership ------------------------------------------------------------------------------------

    def may_acquire(self, partition: PartitionKey) -> bool:
        """Whether members of share groups may acquire records: while a partition is leaving, another server may acquire them."""
        return partition not in self._leaving and self.may_deliver(partition)

    def may_deliver(self, partition: PartitionKey) -> bool:
        """Whether this server may deliver, as far as it knows without asking the store."""
        held = self._held.get(partition)
        if not self._tenure.is_sure():
            self._set_all_unsure()
        return held is not None and not held.is_unverified and not held.held.is_unverified

    def _set_all_unsure(self) -> None:
        for held in self._held.values():
            held.is_unverified = True

    async def verify(self) -> None:
        """Confirm the leases that may be lost. Raises `Unavailable`."""
        if not self._tenure.is_sure():
            self._set_all_unsure()
        for held in [held for held in self.all() if held.is_unverified or held.held.is_unverified]:
            async with self._isolation.of(str(held.partition)):
                await self._verify(held)

    async def _verify(self, held: HeldPartition) -> None:
        try:
            await held.held.confirm()
        except Fenced:
            self._lose(held)
        else:
            held.is_unverified = not self._tenure.is_sure()

    # -- releasing -----------------------------------------------------------------------------------------------

    def overtaken(self, partition: PartitionKey, lease: Lease) -> None:
        """Another server took the lease: stop at once, unless this server already holds the partition under a later lease."""
        held = self._held.get(partition)
        if held is not None and held.lease == lease:
            self._lose(held)

    def _lose(self, held: HeldPartition) -> None:
        partition = held.partition
        if self._held.get(partition) is held:
            del self._held[partition]
            log.warning("another server took over a partition", extra={"partition": partition})
            metrics.SUBSCRIPTION_PARTITIONS_LOST.inc()
            held.end(Closed.FENCED, Fenced(f"another server dispatches partition {partition}"))

    async def give_up_idle(self) -> None:
        """Release partitions that have had no consumers for long."""
        now = asyncio.get_running_loop().time()
        for held in self.all():
            if held.is_used:
                held.last_used = now
            elif (now - held.last_used) * 1000 > self.settings.idle_ms:
                await self.leave(held, Closed.MOVED)

    def refuse(self) -> None:
        """Take no more partitions: later requests raise `NotHolder`."""
        self.is_draining = True

    async def drain(self) -> None:
        """Release all partitions, and take no more."""
        self.refuse()
        if self._opening:
            await asyncio.wait(self._opening.values())
        held = self.all()
        for start in range(0, len(held), STOP_COUNT):
            await self._give_up(held[start : start + STOP_COUNT])

    async def _give_up(self, held: list[HeldPartition]) -> None:
        await self._acknowledged([subscription for item in held for subscription in item.subscriptions.values()])
        for start in range(0, len(held), LEAVE_COUNT):
            await asyncio.gather(*(self.leave(item, Closed.MOVED) for item in held[start : start + LEAVE_COUNT]))

    async def _acknowledged(self, subscriptions: list[Subscription]) -> None:
        """Stop delivering, and let consumers acknowledge their entries, so that another server does not redeliver them."""
        for subscription in subscriptions:
            subscription.stop()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.last_ack_wait_ms / 1000
        while loop.time() < end and any(subscription.awaits_acknowledgements for subscription in subscriptions):  # noqa: ASYNC110 - many callbacks
            await asyncio.sleep(ACK_POLL_MS / 1000)

    async def leave(self, held: HeldPartition, reason: Closed) -> None:
        """Release a partition: stop delivering, save, release the lease, and close the consumers, in this order."""
        partition = held.partition
        task = self._leaving.get(partition)
        if task is None and self._held.get(partition) is held:
            task = self._leaving[partition] = asyncio.get_running_loop().create_task(self._leave(held, reason))
            task.add_done_callback(noticed(log, "leave a partition"))
            task.add_done_callback(lambda _: self._leaving.pop(partition, None))
        if task is not None:
            await asyncio.wait([task])

    async def _leave(self, held: HeldPartition, reason: Closed) -> None:
        """Release a partition. A bug on the way ends the partition here: consumers attach again instead of waiting for a held partition."""
        try:
            await self._save_last(held)
            if self._held.get(held.partition) is held:  # otherwise another server took it over meanwhile
                await self._release(held.partition)
        finally:
            if self._held.get(held.partition) is held:
                del self._held[held.partition]
                held.end(reason, Fenced(f"this server has given up partition {held.partition}"))

    async def _save_last(self, held: HeldPartition) -> None:
        for subscription in held.subscriptions.values():
            subscription.stop()
        for share in held.shares.values():
            share.wake()
        try:
            for _ in range(LAST_SAVE_COUNT_MAX):
                dirty = [saved for saved in held.saved_cursors() if saved.is_dirty]
                if not dirty:
                    break
                await asyncio.gather(*map(self._saver.flushed, dirty))
        except BearlakeError as error:
            log.warning(
                "cannot save cursors before releasing a partition",
                extra={"partition": held.partition, "error": repr(error)},
            )

    async def _release(self, partition: PartitionKey) -> None:
        try:
            await self._release_former(partition)
        except BearlakeError as error:
            log.warning("cannot release a lease; retrying", extra={"partition": partition, "error": repr(error)})

    async def close(self) -> None:
        """Stop; closes the consumers so that they attach to other servers."""
        tasks = [*self._opening.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self.all():
            held.end(Closed.MOVED, Fenced("this server is stopping"))
        self._held.clear()


def _gone(saved: SavedCursor) -> Fenced:
    return Fenced(f"the subscription {saved.name!r} was deleted or taken over by another server")
