"""Copies the positions of subscriptions, after the messages that they name.

Acknowledged entries become acknowledged offsets: everything up to the mark-delete position, and what was acknowledged one by one behind
it. What is not copied yet is left to the next round. A position only moves forward here, as those of consumer groups do (decision 228).
The stream itself says which offsets an entry has (`locating.py`).
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.importing.pulsar.cluster import SourceCursor
from bearlake.importing.pulsar.copying import PulsarPartition
from bearlake.importing.pulsar.locating import Locator
from bearlake.importing.pulsar.positions import Place
from bearlake.metadata.subscriptions import ACKNOWLEDGED_BYTES_MAX
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.model import NotHolder

RANGES_MAX = ACKNOWLEDGED_BYTES_MAX // 2
"""Ranges of a subscription that are copied: a stored range has at least two bytes. Which of them have room depends on their sizes."""


@dataclass(slots=True)
class SubscriptionsCopied:
    """The newest round: subscriptions whose positions the streams have, as `STREAM/SUBSCRIPTION`, and why others could not be copied."""

    names: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


class SubscriptionPositions:
    """The subscriptions of one import."""

    def __init__(self, streams: Streams, prefix: str) -> None:
        """`prefix`: how the names of subscriptions begin that imports have made, which are not copied; empty: there are none."""
        self._streams = streams
        self._prefix = f"{prefix}-"
        self.copied = SubscriptionsCopied()

    async def copy(self, partitions: Sequence[PulsarPartition]) -> None:
        """Copy the positions of all durable subscriptions in these partitions, as `PulsarPartition.ledgers` has them.

        Raises `Unavailable` if a stream cannot be read.
        """
        round_ = SubscriptionsCopied()
        for copy in partitions:
            cursors = {
                name: cursor
                for name, cursor in copy.ledgers.cursors.items()
                if cursor.is_durable and not (len(self._prefix) > 1 and name.startswith(self._prefix))
            }
            if cursors:
                await self._copy(copy, cursors, round_)
        round_.names -= round_.refused.keys()
        self.copied = round_

    async def _copy(
        self, copy: PulsarPartition, cursors: Mapping[str, SourceCursor], round_: SubscriptionsCopied
    ) -> None:
        partition = copy.view.partition(copy.index)
        bounds = (await self._streams.bounds([partition])).get(partition)
        if bounds is None:
            raise Unavailable(f"stream {copy.view.name!r} is gone")
        places = await asyncio.to_thread(_sorted, cursors.values())
        found = await Locator(self._streams, copy.view, copy.index, bounds).behind(places)
        offsets = dict(zip(places, found, strict=True))
        for name, cursor in cursors.items():
            shown = f"{copy.topic.name}/{name}"
            acknowledged = [(offsets[after], offsets[through]) for after, through in _kept(cursor)]
            try:
                await self._streams.subscriptions.merge(
                    partition, name, offsets[cursor.through], acknowledged, cursor.properties
                )
                if len(cursor.acknowledged) > RANGES_MAX:
                    raise Overloaded(
                        f"it has acknowledged {len(cursor.acknowledged)} ranges one by one: {RANGES_MAX} have room here"
                    )
                round_.names.add(shown)
            except NotHolder:
                round_.refused[shown] = f"another server dispatches partition {copy.index} to consumers"
            except BearlakeError as error:
                round_.refused[shown] = str(error)
        await self._streams.subscriptions.release(partition)


def _kept(cursor: SourceCursor) -> Sequence[tuple[Place, Place]]:
    """Return the ranges that have room here, the lowest ones."""
    return cursor.acknowledged[:RANGES_MAX]


def _sorted(cursors: Collection[SourceCursor]) -> list[Place]:
    """Return all places of these cursors, each once."""
    ends = (place for cursor in cursors for pair in _kept(cursor) for place in pair)
    return sorted({*(cursor.through for cursor in cursors), *ends})
