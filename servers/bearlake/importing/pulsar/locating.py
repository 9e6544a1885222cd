"""Finds entries of the source in a partition, by the places that its batches have.

The stream itself is the map between message ids and offsets: places grow with offsets, so a search halves the range until it is there.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import Conflict, Unavailable
from bearlake.importing.pulsar.positions import Place, place_of
from bearlake.metadata.model import PartitionBounds
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import Streams

_READ_BYTES = 256 * 1024
_TURN_COUNT = 1_000
"""Places that are searched in one turn of the event loop."""


class _Found(NamedTuple):
    place: Place
    start: int
    end: int


def _place(found: _Found) -> Place:
    return found.place


class Locator:
    """Searches in one partition of an imported stream."""

    def __init__(self, streams: Streams, view: StreamView, index: int, bounds: PartitionBounds) -> None:
        """`bounds`: what is searched. The partition may grow meanwhile."""
        self._streams = streams
        self._partition = view.partition(index)
        self._what = f"stream {view.name!r}, partition {index}"
        self._bounds = bounds
        self._window: Sequence[_Found] = ()
        """The batches that were read last."""

    async def last(self) -> Place:
        """Return the place of the last entry; the partition is not new.

        Raises:
            Conflict: its last batches are gone, so it does not say any more up to where it is copied.
            Unavailable: it cannot be read.
        """
        start, end = self._bounds.start, self._bounds.end
        if start < end:
            await self._read(end - 1)
            if self._window:
                return self._window[-1].place
        raise Conflict(
            f"{self._what}: retention or key compaction has removed its last records (offsets up to {end}), so it does not say "
            "any more which message of the source it ended with: promote or delete the stream"
        )

    async def behind(self, places: Sequence[Place]) -> list[int]:
        """Return for each place, which ascend, the offset of the first record of a later entry; the end if there is none.

        Raises `Unavailable`.
        """
        offsets: list[int] = []
        low = self._bounds.start
        for number, place in enumerate(places):
            if number % _TURN_COUNT == 0:
                await asyncio.sleep(0)
            low = await self._behind(place, low)
            offsets.append(low)
        return offsets

    async def _behind(self, place: Place, low: int) -> int:
        """`low`: an offset at which the search may begin; everything below it belongs to entries up to `place`."""
        high, at = self._bounds.end, low
        while low < high:
            covered = high
            if not self._covers(place):
                covered = await self._read(at)
            later = bisect_right(self._window, place, key=_place)
            if self._covers(place):
                return min(max(self._window[later].start, low), high)
            if later < len(self._window):
                high = max(low, min(self._window[later].start, high))
            elif self._window:
                low = max(low, min(self._window[-1].end, high))
            else:  # nothing but batches without a place
                low = max(low, min(covered, high))
            at = (low + high) // 2
        return high

    def _covers(self, place: Place) -> bool:
        """Whether what was read last has the last entry up to the place, and the first one behind it."""
        return bool(self._window) and self._window[0].place <= place < self._window[-1].place

    async def _read(self, offset: int) -> int:
        """Read the batches from that of `offset` on that have a place; returns the offset up to which they go. Raises `Unavailable`."""
        (answer,) = await self._streams.fetch(
            [FetchRange(self._partition, offset, _READ_BYTES)], bytes_min=1, bytes_max=_READ_BYTES, wait_ms=0
        )
        if answer.error is not None:
            raise Unavailable(f"{self._what}: {answer.error}") from answer.error
        found: list[_Found] = []
        end = offset + 1
        for records in answer.views:
            for position, base, header in kernel.batches(records, 0, len(records)):
                place = place_of(records[position : position + header.length])
                end = base + header.last_offset_delta + 1
                if place is not None:
                    found.append(_Found(place, base, end))
        self._window = found
        return end
