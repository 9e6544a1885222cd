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

log = logging.getLogger(__name__)

LEAVE_COUNT = 32
"""Partitions that are given up at once."""
STOP_COUNT = 1_024
"""Partitions whose consumers acknowledge at once what they have, before those are given up."""
ACK_POLL_MS = 10
"""Pause between two looks whether they have."""
LAST_SAVE_COUNT_MAX = 3
"""Saves of a partition that is given up while acknowledgements keep coming; later ones are delivered again elsewhere."""


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
        self._taken: dict[PartitionKey, Lease] = {}
        """Leases that the store may still have for this server."""
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
        held = HeldPartition(partition, taken, self._around, self._saver)
        try:
            bounds = (await self._around.records.bounds([partition])).get(partition)
            if bounds is None:
                raise NotFound(f"no partition {partition}")
            for cursor in await self._cursors.load(partition):
                held.adopt(cursor, bounds.start)
        except BearlakeError:
            await self._release(partition)
            raise
        if self._is_draining:
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
        """Release the lease under which this server had the partition before. Raises `Unavailable`.

        The next one has a larger epoch then, so nothing that was written under the former one can come late.
        """
        former = self._taken.get(partition)
        if former is not None:
            await self._leases.release(former)
            if self._taken.get(partition) == former:
                del self._taken[partition]

    async def release_former(self) -> None:
        """Release what is not held any more, but may be this server's in the store. Raises `Unavailable`."""
        for partition in [*self._taken]:
            if partition not in self._held and partition not in self._opening:
                await self._release_former(partition)

    # -- cursors -------------------------------------------------------------------------------------------------

    async def create(
        self, held: HeldPartition, name: str, mark_delete: int, properties: Mapping[str, str]
    ) -> Subscription:
        """The subscription, made if there is none. Raises as `create_cursor`, and `Fenced` if the partition was left meanwhile."""
        for _ in range(ATTEMPTS_MAX):
            drop_count = held.drop_count
            stored = await create_cursor(self._cursors, held.partition, name, mark_delete, properties)
            if held.drop_count == drop_count:
                return held.adopt(stored, stored.mark_delete)
        raise changing(held.partition)

    async def find(self, held: HeldPartition, name: str) -> Subscription | None:
        """The subscription if there is one; no deletion from before removes it afterwards. Raises `Fenced`, `Unavailable`."""
        if name not in held.subscriptions:
            await self.adopt_stored(held)
        return held.subscriptions.get(name)

    async def adopt_stored(self, held: HeldPartition, start: int = 0) -> Sequence[Cursor]:
        """Adopt the cursors that other servers made; returns all that are stored. Raises `Fenced`, `Unavailable`."""
        for _ in range(ATTEMPTS_MAX):
            drop_count = held.drop_count
            if held.open_deletion is not None:
                await refuse_deletions(self._cursors, held.partition, held.lease, held.open_deletion)
            stored = await self._cursors.load(held.partition)
            if held.drop_count == drop_count:
                held.open_deletion = None
                for cursor in stored:
                    held.adopt(cursor, start)
                return stored
        raise changing(held.partition)

    async def forget(self, saved: SavedCursor) -> None:
        """Delete the cursor. Raises `Fenced`; `Unavailable`: it may be deleted or not.

        If nobody knows, or the caller gives up, nothing more is saved or confirmed here: its consumers are closed, and find it or make it
        anew.
        """
        for _ in range(ATTEMPTS_MAX):
            after = await self._cursors.deletion_count(saved.partition)
            held = self._held.get(saved.partition)
            if held is None or saved.is_over:
                raise Fenced(f"the subscription {saved.name!r} was deleted, or is another server's")
            try:
                await self._cursors.delete(saved.partition, {saved.name: saved.generation}, saved.lease, after=after)
            except Conflict:
                continue
            except (Unavailable, asyncio.CancelledError):
                held.deletion_unknown(after)
                self._end(held, saved, Unavailable(f"the subscription {saved.name!r} may be deleted"))
                raise
            held.drop(saved, Fenced(f"the subscription {saved.name!r} is deleted"))
            return
        raise changing(saved.partition)

    def unsaved(self, saved: SavedCursor) -> None:
        """The store has no such cursor any more: its consumers are closed, and make it anew."""
        held = self._held.get(saved.partition)
        error = Unavailable(f"the cursor {saved.name!r} is not stored any more")
        if held is None:
            saved.end(error)
        elif not saved.is_over:
            log.warning("a cursor is not stored any more", extra={"partition": saved.partition})
            self._end(held, saved, error)

    def _end(self, held: HeldPartition, saved: SavedCursor, error: BearlakeError) -> None:
        subscription = held.drop(saved, error)
        if subscription is not None:
            subscription.close(Closed.FAILED)

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

    def overtaken(self, partition: PartitionKey, lease: Lease) -> None:
        """The lease was overtaken: stop at once, unless the partition is held under a later one by now."""
        held = self._held.get(partition)
        if held is not None and held.lease == lease:
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
            await self._release(held.partition)
            self._held.pop(held.partition, None)
            held.end(reason, Fenced(f"this server has given up partition {held.partition}"))

    async def _release(self, partition: PartitionKey) -> None:
        try:
            await self._release_former(partition)
        except BearlakeError as error:
            log.warning("lease not released, trying again", extra={"partition": partition, "error": repr(error)})

    async def close(self) -> None:
        """Stop; consumers are told to go elsewhere."""
        tasks = [*self._opening.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self.all():
            held.end(Closed.MOVED, Fenced("this server stops"))
        self._held.clear()
