"""Ends of terminated streams: reads the final end offsets and passes them to the subscriptions.

The catalog reports that a stream is terminated; end offsets that the store returns after that are final. `Subscription.ends_at` tells
the consumers once all entries are acknowledged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.reading import Records
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.telemetry.containment import contained
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


class Endings:
    """Finds subscriptions of terminated streams. Use it from the event loop's thread only."""

    def __init__(
        self,
        records: Records,
        is_terminated: Callable[[PartitionKey], bool],
        subscriptions: Callable[[], Iterable[Subscription]],
        *,
        retry_pause_ms: int,
    ) -> None:
        """`is_terminated` reads this server's catalog; `subscriptions` yields all its subscriptions. Retries after `retry_pause_ms`."""
        self._records = records
        self._is_terminated = is_terminated
        self._subscriptions = subscriptions
        self._retry_pause_ms = retry_pause_ms
        self._wake = asyncio.Event()
        self._outage = Outage(
            log, "cannot look up the ends of streams; retrying", "looking up the ends of streams works again"
        )

    def look(self) -> None:
        """Check soon: a stream has changed, or a consumer has attached."""
        self._wake.set()

    def came(self, partition: PartitionKey) -> None:
        """A consumer has attached. If its stream is terminated, check soon, but after the consumer knows that it is attached."""
        if self._is_terminated(partition):
            self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
                self._outage.over()
            except BearlakeError as error:
                self._outage.failed(error)
                await asyncio.sleep(self._retry_pause_ms / 1000)
                self._wake.set()

    async def _look(self) -> None:
        waiting = [
            subscription
            for subscription in self._subscriptions()
            if subscription.awaits_end and self._is_terminated(subscription.partition)
        ]
        if not waiting:
            return
        bounds = await self._records.bounds(sorted({subscription.partition for subscription in waiting}))
        for subscription in waiting:
            if subscription.partition in bounds:
                end_at = partial(subscription.ends_at, bounds[subscription.partition].end)
                contained(log, "end a subscription", end_at, partial(_give_up, subscription))


def _give_up(subscription: Subscription, _: Exception) -> None:
    subscription.close(Closed.FAILED)
