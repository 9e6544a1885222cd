"""A consumer attached to a subscription of this server: `Attachment`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from bearlake.errors import Fenced, Unavailable
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.model import Busy, Closed, ConsumerSpec, ConsumerStats, EntryAck
from bearlake.streams.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import Consumer, EntryReader
    from bearlake.streams.subscriptions.owner import SubscriptionOwner as SubscriptionService

_FORGETTING = (Closed.RESET, Closed.DELETED, Closed.UNSUBSCRIBED)
"""Reasons of closing after which no earlier acknowledgement has any effect left."""


class Attached(Attachment):
    """Implements `Attachment`. After its end, calls have no effect, and acknowledgements that would be lost are refused."""

    def __init__(
        self,
        service: "SubscriptionService",
        subscription: Subscription,
        spec: ConsumerSpec,
        consumer: "Consumer",
        reader: "EntryReader",
    ) -> None:
        """Attach the consumer. Raises `Busy`, `Overlap`, `Overloaded`, `Invalid`."""
        self._service = service
        self._subscription = subscription
        self._ended: Closed | None = None
        self._is_detached = False
        self._consumer = subscription.add(spec, consumer, reader, self._closed)

    def _closed(self, reason: Closed) -> None:
        self._ended = reason

    @property
    def _is_over(self) -> bool:
        return self._is_detached or self._ended is not None

    @property
    @override
    def mark_delete(self) -> int:
        return self._subscription.cursor.mark_delete

    @property
    @override
    def is_active(self) -> bool:
        return not self._is_over and self._subscription.is_active(self._consumer)

    @override
    def flow(self, permits: int) -> None:
        if not self._is_over:
            self._subscription.flow(self._consumer, permits)

    @override
    def give_back(self, permits: int) -> None:
        if not self._is_over:
            self._consumer.give_back(permits)

    @override
    def resume(self) -> None:
        if not self._is_over:
            self._subscription.resume()

    @override
    def acknowledge(self, acks: Sequence[EntryAck]) -> None:
        if self._may_acknowledge():
            self._subscription.acknowledge(self._consumer, acks, is_through=False)

    @override
    def acknowledge_through(self, ack: EntryAck) -> None:
        if self._may_acknowledge():
            self._subscription.acknowledge(self._consumer, [ack], is_through=True)

    def _may_acknowledge(self) -> bool:
        """False if acknowledgements no longer have an effect. Raises `Unavailable` if they would be lost."""
        if self._is_over and self._ended not in _FORGETTING:
            raise Unavailable("the consumer is closed")
        return not self._is_over

    @override
    def redeliver(self, base_offsets: Sequence[int]) -> None:
        if not self._is_over:
            self._subscription.redeliver(self._consumer, base_offsets)

    @override
    def redeliver_all(self) -> None:
        if not self._is_over:
            self._subscription.redeliver(self._consumer, None)

    @override
    async def flushed(self) -> None:
        if self._ended is Closed.FENCED:
            raise Fenced("another server dispatches the partition")
        await self._service.flush(self._subscription)
        if self._consumer.has_dropped and self._ended not in _FORGETTING:
            raise Unavailable("acknowledgements were dropped")

    @override
    async def seek(self, offset: int) -> None:
        if not self._is_over:
            await self._service.move(self._subscription, offset)

    @override
    async def seek_time(self, timestamp_ms: int) -> None:
        if not self._is_over:
            await self._service.move_to_time(self._subscription, timestamp_ms)

    @override
    async def unsubscribe(self) -> None:
        if self._is_over:
            return
        if self._subscription.consumer_count > 1:
            raise Busy(f"the subscription {self._subscription.name!r} has other consumers")
        await self._service.forget(self._subscription, on_forgotten=self.detach)

    @override
    def detach(self) -> None:
        if not self._is_over:
            self._is_detached = True
            self._subscription.remove(self._consumer)

    @override
    def stats(self) -> ConsumerStats:
        return self._subscription.consumer_stats(self._consumer)
