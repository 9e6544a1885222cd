"""One subscription in one partition, on the server that dispatches it: its cursor, its consumers, and its dispatcher.

The dispatcher (`dispatcher.py`) and the task that reads for it (`feeding.py`) exist only while there are consumers; the cursor stays.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, Corrupt, OutOfRange, Overloaded, Unavailable
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.metadata.subscriptions import Cursor
from bearlake.streams.fetched import FetchRange
from bearlake.streams.subscriptions.consumers import AttachedConsumer
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.dispatcher import Dispatcher
from bearlake.streams.subscriptions.feeding import Feeder, Surroundings
from bearlake.streams.subscriptions.key_shared import KeyShared
from bearlake.streams.subscriptions.model import (
    Busy,
    Closed,
    ConsumerSpec,
    ConsumerStats,
    Damaged,
    EntryAck,
    SubscriptionStats,
    SubscriptionType,
)
from bearlake.streams.subscriptions.reading import entries_of
from bearlake.streams.subscriptions.saving import SavedCursor
from bearlake.streams.subscriptions.shared import Shared
from bearlake.streams.subscriptions.single import SingleActive
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import Consumer, EntryReader

log = logging.getLogger(__name__)

REATTACH_S = 60.0
"""Time in which consumers attach again after a reset or a damaged read; clients attach at once, after 100 ms, or with a growing pause."""


class Subscription:
    """One subscription in one partition. Use it from the event loop's thread only."""

    def __init__(
        self,
        partition: PartitionKey,
        name: str,
        cursor: AckCursor,
        surroundings: Surroundings,
        *,
        saved: SavedCursor | None = None,
        properties: Mapping[str, str] | None = None,
        on_moved: Callable[["Subscription"], None] = lambda subscription: None,
    ) -> None:
        """`saved` is the stored cursor, None if non-durable; `on_moved` is called when the cursor may have moved."""
        self.partition = partition
        self.name = name
        self.cursor = cursor
        self.saved = saved
        self.properties = properties or {}
        self.machine: Dispatcher | None = None
        self.end: int | None = None
        """The partition's final end offset; None if the stream is not terminated or the end is not known yet."""
        self.retained_until_s = 0.0
        """Loop time until which a non-durable subscription is kept for its consumers to attach again."""
        self._around = surroundings
        self._on_moved = on_moved
        self._damaged_ranges: Sequence[FetchRange] = ()
        """What the last feeder read when it found damaged entries; empty if there is no damage."""
        self._feeder: Feeder | None = None
        self._closers: dict[AttachedConsumer, Callable[[Closed], None]] = {}
        self._handover: asyncio.TimerHandle | None = None

    # -- consumers -----------------------------------------------------------------------------------------------

    @property
    def consumer_count(self) -> int:
        """Number of attached consumers."""
        return len(self._closers)

    def add(
        self, spec: ConsumerSpec, sink: "Consumer", reader: "EntryReader", on_closed: Callable[[Closed], None]
    ) -> AttachedConsumer:
        """Attach a consumer; `on_closed` is called when it is closed. Raises `Busy`, `Overlap`, `Overloaded`, `Invalid`."""
        machine = self.machine or self._new_machine(spec.type)
        if machine.type is not spec.type:
            raise Busy(f"the subscription has consumers of type {machine.type.value}, not {spec.type.value}")
        if len(machine.consumers) >= self._around.settings.consumer_per_subscription_max:
            raise Overloaded(
                f"the subscription {self.name!r} has reached its limit of {len(machine.consumers)} consumers"
            )
        consumer = AttachedConsumer(spec, sink)
        machine.add(consumer)
        self._closers[consumer] = on_closed
        self.retained_until_s = 0.0
        if self._feeder is None:
            self.machine = machine
            self._feeder = Feeder(self.partition, machine, reader, self._around, self.moved, self.close, self._damaged)
        self._changed(machine)
        return consumer

    async def check_readable(self) -> None:
        """After a damaged read: read the same again. Call before `add`. Raises `Damaged` until the entries are repaired, `Unavailable`.

        The result of a read does not count if the cursor was moved meanwhile, by `reset` or `skip_before`.
        """
        while ranges := self._damaged_ranges:
            try:
                await self._read_entries(ranges)
            except Corrupt as error:
                if self._damaged_ranges is not ranges:
                    continue
                self._damaged(error, ranges)
                raise Damaged(f"entries from offset {ranges[0].offset} on are damaged in the store: {error}") from error
            if self._damaged_ranges is ranges:
                self._damaged_ranges = ()
                log.info("the entries of a subscription are readable again", extra={"partition": self.partition})

    async def _read_entries(self, ranges: Sequence[FetchRange]) -> None:
        bytes_max = max(self._around.settings.read_bytes_max, 1)
        for fetched in await self._around.records.fetch(ranges, bytes_min=0, bytes_max=bytes_max, wait_ms=0):
            if fetched.error is not None and not isinstance(fetched.error, OutOfRange):
                raise fetched.error
            entries_of(fetched)

    def _damaged(self, error: Corrupt, ranges: Sequence[FetchRange]) -> None:
        """Close all consumers. They attach again once `check_readable` succeeds; only the first damage is logged."""
        metrics.SUBSCRIPTION_DAMAGED_READS.inc()
        if not self._damaged_ranges:
            details = {"partition": self.partition, "offset": ranges[0].offset, "error": repr(error)}
            log.error(
                "entries of a subscription are damaged; its consumers cannot attach until a repair", extra=details
            )
        self._damaged_ranges = ranges
        self.retained_until_s = asyncio.get_running_loop().time() + REATTACH_S
        self.close(Closed.DAMAGED)

    def _new_machine(self, type_: SubscriptionType) -> Dispatcher:
        settings = self._around.settings
        if type_ is SubscriptionType.SHARED:
            return Shared(self.cursor, settings)
        if type_ is SubscriptionType.KEY_SHARED:
            return KeyShared(self.cursor, settings)
        return SingleActive(type_, self.cursor, settings)

    def _changed(self, machine: Dispatcher) -> None:
        """Handle attached or detached consumers."""
        if isinstance(machine, SingleActive) and machine.is_handing_over and self._handover is None:
            delay_s = self._around.settings.handover_ms / 1000
            self._handover = asyncio.get_running_loop().call_later(delay_s, self._end_handover, machine)
        self._poke(is_forced=True)

    def _end_handover(self, machine: SingleActive) -> None:
        self._handover = None
        machine.end_handover()
        self._poke()

    def remove(self, consumer: AttachedConsumer) -> None:
        """Remove a consumer."""
        if self.machine is None or self._closers.pop(consumer, None) is None:
            return
        self.machine.remove(consumer)
        if self.machine.consumers:
            self._changed(self.machine)
        else:
            self._end_machine()
        self.moved()

    def close(self, reason: Closed) -> None:
        """End all attachments."""
        closers, self._closers = self._closers, {}
        self._end_machine()
        for consumer, on_closed in closers.items():
            contained(log, "detach a consumer", partial(on_closed, reason))
            contained(log, "close a consumer", partial(consumer.sink.closed, reason))
        self.moved()

    def stop(self) -> None:
        """Stop delivering. Acknowledgements still count until `close`."""
        if self._feeder is not None:
            self._feeder.stop()
            self._feeder = None

    def _end_machine(self) -> None:
        self.stop()
        self.machine = None
        if self._handover is not None:
            self._handover.cancel()
            self._handover = None

    def _poke(self, *, is_forced: bool = False) -> None:
        if self._feeder is not None:
            self._feeder.poke(is_forced=is_forced)

    # -- requests of consumers -----------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        """Add to the consumer's permits."""
        if self.machine is not None and permits > 0:
            is_first = not consumer.has_flowed
            self.machine.flow(consumer, permits)
            self._poke(is_forced=is_first)

    def resume(self) -> None:
        """Deliver again after a consumer's pause."""
        self._poke(is_forced=True)

    def acknowledge(self, consumer: AttachedConsumer, acks: Sequence[EntryAck], *, is_through: bool) -> None:
        """Acknowledge entries; with `is_through`, also all earlier entries."""
        machine, refusal = self.machine, None
        if machine is None:
            raise Unavailable(f"the subscription {self.name!r} has no consumers")
        at = 0
        while at < len(acks):
            if not is_through and (count := machine.acknowledge_run(consumer, acks, at)):
                at += count
                continue
            ack = acks[at]
            at += 1
            if not machine.acknowledge(consumer, ack, is_through=is_through):
                try:
                    self._resolve(consumer, ack, is_through=is_through)
                except BearlakeError as error:
                    refusal = error
        self.moved()
        self._poke()
        if refusal is not None:
            raise refusal

    def _resolve(self, consumer: AttachedConsumer, ack: EntryAck, *, is_through: bool) -> None:
        if self._feeder is None:
            raise Unavailable(f"the subscription {self.name!r} is closed")
        self._feeder.resolve(consumer, ack, is_through=is_through)

    def redeliver(self, consumer: AttachedConsumer, bases: Sequence[int] | None) -> None:
        """Redeliver the consumer's unacknowledged entries: those at `bases`, or all if None."""
        if self.machine is None:
            return
        if bases is None:
            self.machine.redeliver_all(consumer)
        else:
            self.machine.redeliver(consumer, bases)
        self._poke(is_forced=True)

    async def resolved(self) -> None:
        """Return when all acknowledgements accepted so far are in the cursor."""
        if self._feeder is not None:
            await self._feeder.resolved()

    @property
    def awaits_acknowledgements(self) -> bool:
        """Whether its consumers have unacknowledged messages."""
        return self.machine is not None and self.machine.has_given

    # -- moving the cursor ---------------------------------------------------------------------------------------

    def reset(self, offset: int) -> None:
        """Acknowledge exactly the offsets below `offset`, and close all consumers."""
        self.retained_until_s = asyncio.get_running_loop().time() + REATTACH_S
        self.close(Closed.RESET)
        self.cursor.reset(offset)
        self._damaged_ranges = ()  # delivery continues elsewhere
        self.moved()

    def skip_before(self, offset: int) -> None:
        """Also acknowledge all offsets below `offset`."""
        if self.cursor.acknowledge_before(offset):
            self._damaged_ranges = ()  # delivery may continue behind the damage
            if self.machine is not None:
                self.machine.moved()
            self.moved()
            self._poke(is_forced=True)

    def merge(self, mark_delete: int, acknowledged: Sequence[tuple[int, int]]) -> None:
        """Also acknowledge all offsets below `mark_delete`, and the ranges `[start, end)`; there are no consumers."""
        before = self.cursor.version
        self.cursor.acknowledge_before(mark_delete)
        for start, end in acknowledged:
            self.cursor.acknowledge(start, end)
        if self.cursor.version != before:
            self._damaged_ranges = ()
            self.moved()

    def moved(self) -> None:
        """Call this when the cursor may have moved."""
        self._on_moved(self)
        if self.end is not None:
            self._notify_end()

    def ends_at(self, offset: int) -> None:
        """Set the final end offset of a terminated stream; consumers are notified once all earlier offsets are acknowledged."""
        self.end = offset
        self._notify_end()

    @property
    def awaits_end(self) -> bool:
        """Whether the end is not known yet, or a consumer does not know yet that it has reached the end."""
        return self.end is None or not all(consumer.notified_end for consumer in self._closers)

    def _notify_end(self) -> None:
        if self.end is None or self.cursor.mark_delete < self.end:
            return
        for consumer in self._closers:
            if not consumer.notified_end:
                consumer.notified_end = True
                consumer.sink.end_of_topic()

    # -- statistics ----------------------------------------------------------------------------------------------

    def is_active(self, consumer: AttachedConsumer) -> bool:
        """Whether the consumer gets messages now."""
        return self.machine is not None and self.machine.is_active(consumer)

    def consumer_stats(self, consumer: AttachedConsumer) -> ConsumerStats:
        """Return a consumer's statistics."""
        slot_ranges = self.machine.slot_ranges(consumer) if self.machine is not None else ()
        return consumer.stats(is_active=self.is_active(consumer), slot_ranges=slot_ranges)

    def stats(self, end: int) -> SubscriptionStats:
        """Return the subscription's statistics; `end` is the partition's last stable offset: its backlog can be delivered now."""
        machine, cursor = self.machine, self.cursor
        return SubscriptionStats(
            name=self.name,
            type=machine.type if machine is not None else None,
            is_durable=self.saved is not None,
            mark_delete=cursor.mark_delete,
            read_offset=machine.read_offset if machine is not None else cursor.mark_delete,
            backlog_count=max(0, end - cursor.mark_delete - cursor.range_offset_count),
            range_count=cursor.range_count,
            unacknowledged_count=machine.unacknowledged if machine is not None else 0,
            delayed_count=machine.delayed_count if machine is not None else 0,
            redelivery_count=machine.again_count if machine is not None else 0,
            properties=self.properties,
            consumers=[self.consumer_stats(consumer) for consumer in self._closers],
        )


def stored_stats(stored: Cursor, bounds: PartitionBounds) -> SubscriptionStats:
    """Return the statistics of a subscription that no server dispatches."""
    cursor = AckCursor.unpack(stored.mark_delete, stored.acknowledged)
    cursor.acknowledge_before(bounds.start)
    return SubscriptionStats(
        name=stored.name,
        type=None,
        is_durable=True,
        mark_delete=cursor.mark_delete,
        read_offset=cursor.mark_delete,
        backlog_count=max(0, bounds.last_stable - cursor.mark_delete - cursor.range_offset_count),
        range_count=cursor.range_count,
        unacknowledged_count=0,
        delayed_count=0,
        redelivery_count=0,
        properties=stored.properties,
        consumers=(),
    )
