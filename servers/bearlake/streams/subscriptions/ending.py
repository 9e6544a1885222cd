"""The ends of terminated streams: subscriptions learn where nothing more will come, and tell their consumers.

The catalog says that a stream is terminated; its ends are asked from the store after that, so they are final. Consumers are told by
`Subscription.ends_at`: at once if they have acknowledged all, else when they have.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey
from bearlake.streams.subscriptions.reading import Records
from bearlake.streams.subscriptions.subscription import Subscription
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


class Endings:
    """Looks for subscriptions of terminated streams. Used from the event loop's thread only."""

    def __init__(
        self,
        records: Records,
        is_terminated: Callable[[PartitionKey], bool],
        subscriptions: Callable[[], Iterable[Subscription]],
        *,
        retry_pause_ms: int,
    ) -> None:
        """`is_terminated` is what this server knows; `subscriptions` are all that it has. After a failure it waits `retry_pause_ms`."""
        self._records = records
        self._is_terminated = is_terminated
        self._subscriptions = subscriptions
        self._retry_pause_ms = retry_pause_ms
        self._wake = asyncio.Event()
        self._outage = Outage(log, "ends of streams not looked up, trying again", "ends of streams looked up again")

    def look(self) -> None:
        """A stream has changed, or a consumer has come: look soon."""
        self._wake.set()

    def came(self, partition: PartitionKey) -> None:
        """A consumer of the partition has come: if its stream is terminated, look soon, when it has heard that it is attached."""
        if self._is_terminated(partition):
            self._wake.set()

    async def run(self) -> None:
        """Ends only by cancellation."""
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
        waiting = [one for one in self._subscriptions() if one.awaits_end and self._is_terminated(one.partition)]
        if not waiting:
            return
        bounds = await self._records.bounds(sorted({one.partition for one in waiting}))
        for one in waiting:
            if one.partition in bounds:
                one.ends_at(bounds[one.partition].end)
