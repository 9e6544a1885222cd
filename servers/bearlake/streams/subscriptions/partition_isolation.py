"""Steps of rounds over many partitions: the error of one partition stops only that partition's step (I11).

`telemetry/isolation.py` handles expected errors, `telemetry/containment.py` bugs. Only a failure of the metadata store ends a round.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey
from bearlake.telemetry.containment import fault
from bearlake.telemetry.isolation import Isolation

log = logging.getLogger(__name__)


class PartitionIsolation:
    """Used by one service, from one thread. `probe` makes a cheap request to the metadata store."""

    def __init__(self, probe: Callable[[], Awaitable[object]]) -> None:
        self._isolation = Isolation(log, "subscriptions", probe)

    @asynccontextmanager
    async def of(self, partition: PartitionKey) -> AsyncIterator[None]:
        """Run the partition's step in the block. Raises `Unavailable` and `Overloaded` of the metadata store."""
        try:
            async with self._isolation.of(str(partition)):
                yield
        except BearlakeError:
            raise
        except Exception as error:  # noqa: BLE001 - boundary: one partition
            fault(log, "look after a partition", error)

    def end_round(self) -> None:
        """End a round over all partitions."""
        self._isolation.end_round()
