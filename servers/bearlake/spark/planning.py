"""Which streams and offsets a query reads, and how its tasks share them.

Readers see committed records only: they end at last stable offsets. Offsets or streams that are gone fail a query, unless it says
`failOnDataLoss=false`: then it goes on with what there is.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bearlake.compaction.stream_index import read_bounds
from bearlake.errors import Invalid, NotFound
from bearlake.live.log_rows import LogRows, Part
from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionBounds, PartitionKey, Stream
from bearlake.spark.filters import Pushed
from bearlake.spark.offsets import Offsets, StreamOffsets, shares, split
from bearlake.spark.options import EARLIEST, Bound, ReadOptions
from bearlake.table.projection import Columns, first_at, time_schema

log = logging.getLogger(__name__)

_PAGE_COUNT = 1_000
_ALL = Pushed()


class DataLoss(Invalid):
    """Records that the query should read are gone."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads: offsets `[start, end)` of a partition of the stream with this number, and times as in `Part`."""

    name: str
    number: int
    index: int
    start: int
    end: int
    since_us: int | None = None
    until_us: int | None = None

    def part(self, stream: Stream) -> Part:
        """Return the same for `LogRows`."""
        return Part(stream.partition(self.index), self.start, self.end, self.since_us, self.until_us)


class _Place(NamedTuple):
    stream: str
    partition: int


class Planner:
    """Plans the queries with these options."""

    def __init__(self, metadata: Metadata, rows: LogRows, options: ReadOptions) -> None:
        self._metadata = metadata
        self._rows = rows
        self._options = options

    async def streams(self) -> list[Stream]:
        """Return the streams that the options name. Raises `NotFound` if a stream that is named does not exist."""
        options = self._options
        if options.pattern is None:
            names = options.names or tuple(name for name, _ in options.assigned)
            return [await self._metadata.streams.get(name) for name in dict.fromkeys(names)]
        found: list[Stream] = []
        after = ""
        while page := await self._metadata.streams.list(after=after, limit=_PAGE_COUNT):
            after = page[-1].name
            found += [stream for stream in page if re.fullmatch(options.pattern, stream.name)]
        return found

    async def beginning(self, default: Bound) -> Offsets:
        """Return where a query begins; `default`: if the options do not say.

        Raises:
            Invalid: an offset does not exist; or the option that says so, and no record is at or after a time.
            NotFound: there is no such stream.
        """
        return await self._resolved(self._options.starting or default, is_start=True)

    async def ending(self) -> Offsets:
        """Return where a batch query ends. Raises as `beginning`."""
        return await self._resolved(self._options.ending, is_start=False)

    async def latest(self, start: Offsets) -> Offsets | None:
        """Return how far the micro-batch after `start` reads, within the limits of the options; None: there is nothing new.

        Raises:
            DataLoss: a stream of `start` is gone or was created again, or its log is shorter.
        """
        streams = await self._present(start)
        bounds = await self._bounds(streams)
        starts: dict[_Place, int] = {}
        limits: dict[_Place, int] = {}
        for stream in streams:
            for index in self._indexes(stream):
                place, bound = _Place(stream.name, index), bounds[stream.partition(index)]
                starts[place] = max(start.at(stream.name, str(stream.id), index), bound.start if self._skips else 0)
                limits[place] = bound.last_stable
                if starts[place] > bound.last_stable:
                    raise DataLoss(
                        f"partition {index} of stream {stream.name} ends at offset {bound.last_stable}, but the query has read up to"
                        f" {starts[place]}: an older state of the stores was restored"
                    )
        limits = await self._limited(streams, starts, limits)
        found = _offsets(streams, limits)
        return None if found.streams == start.streams else found

    async def tasks(self, start: Offsets, end: Offsets, pushed: Pushed = _ALL) -> list[Task]:
        """Return what the tasks read between two offsets. A partition that `start` does not have is read from its beginning.

        Raises:
            DataLoss: offsets or streams are gone, or `end` is of other streams than `start`.
        """
        streams = await self._present(end)
        self._check_same(start, {name: found.id for name, found in end.streams.items()})
        bounds = await self._bounds(streams)
        found: list[Task] = []
        for stream in streams:
            stops = end.streams.get(stream.name)
            if stops is None or stops.id != str(stream.id):  # it is newer than the end
                continue
            for index, stop in sorted(stops.ends.items()):
                if pushed.partitions is not None and index not in pushed.partitions:
                    continue
                low = max(start.at(stream.name, str(stream.id), index), pushed.start)
                high = min(stop, pushed.end)
                if low >= high:
                    continue
                low = self._checked(stream, index, low, high, bounds[stream.partition(index)])
                if low < high:
                    found.append(Task(stream.name, stream.number, index, low, high, pushed.since_us, pushed.until_us))
        return self._shared(found)

    @property
    def _skips(self) -> bool:
        return not self._options.fails_on_data_loss

    def _indexes(self, stream: Stream) -> Sequence[int]:
        if not self._options.assigned:
            return range(stream.partition_count)
        wanted = dict(self._options.assigned)[stream.name]
        if wanted and not 0 <= wanted[0] <= wanted[-1] < stream.partition_count:
            raise Invalid(
                f"option assign: stream {stream.name} has the partitions 0 to {stream.partition_count - 1}, not {list(wanted)}"
            )
        return wanted

    async def _bounds(self, streams: Sequence[Stream]) -> dict[PartitionKey, PartitionBounds]:
        keys = [stream.partition(index) for stream in streams for index in range(stream.partition_count)]
        found = await read_bounds(self._metadata, keys)
        if missing := [stream.name for stream in streams if stream.partition(0) not in found]:
            raise NotFound(f"streams were deleted just now: {', '.join(missing)}")
        return found

    async def _present(self, offsets: Offsets) -> list[Stream]:
        """Return the streams of the options; those of `offsets` must be the same ones."""
        try:
            streams = await self.streams()
        except NotFound as error:
            raise DataLoss(f"{error}; a query that had read it cannot go on") from error
        self._check_same(offsets, {stream.name: str(stream.id) for stream in streams})
        return streams

    def _check_same(self, offsets: Offsets, ids: Mapping[str, str]) -> None:
        """Compare the streams of `offsets` with later ones: `ids` by name."""
        for name, found in offsets.streams.items():
            if ids.get(name) == found.id:
                continue
            what = "was deleted and created again" if name in ids else "was deleted"
            self._lost(f"stream {name} {what} since the query has read it")

    def _checked(self, stream: Stream, index: int, low: int, high: int, bounds: PartitionBounds) -> int:
        """Return where the offsets begin that are there."""
        if low < bounds.start:
            self._lost(
                f"offsets [{low}, {min(bounds.start, high)}) of partition {index} of stream {stream.name} are gone: retention or a"
                " deletion of records has passed the query"
            )
        return max(low, bounds.start)

    def _lost(self, what: str) -> None:
        if not self._skips:
            raise DataLoss(
                f"{what}. Begin a new query with a new checkpoint, or set failOnDataLoss=false to go on with what is there"
            )
        log.warning("the query goes on, because failOnDataLoss=false", extra={"what": what})

    def _shared(self, tasks: list[Task]) -> list[Task]:
        """Divide large tasks, so that there are at least `minPartitions` of about the same size."""
        wanted, total = self._options.partition_count_min or 0, sum(task.end - task.start for task in tasks)
        if len(tasks) >= wanted:
            return tasks
        return [
            Task(task.name, task.number, task.index, low, high, task.since_us, task.until_us)
            for task in tasks
            for low, high in split(task.start, task.end, -(-(task.end - task.start) * wanted // total))
        ]

    # -- where a query begins and ends ---------------------------------------------------------------------------

    async def _resolved(self, bound: Bound, *, is_start: bool) -> Offsets:
        streams = await self.streams()
        if unknown := set(bound.given).difference(stream.name for stream in streams):
            raise Invalid(f"the query gives offsets of streams that it does not read: {', '.join(sorted(unknown))}")
        bounds = await self._bounds(streams)
        ends: dict[_Place, int] = {}
        for stream in streams:
            for index in self._indexes(stream):
                found = bounds[stream.partition(index)]
                ends[_Place(stream.name, index)] = await self._offset(stream, index, bound, found, is_start=is_start)
        return _offsets(streams, ends)

    async def _offset(self, stream: Stream, index: int, bound: Bound, found: PartitionBounds, *, is_start: bool) -> int:
        value = bound.of(stream.name, index)
        if value < 0:
            return found.start if value == EARLIEST else found.last_stable
        if bound.is_time:
            offset = await self._first_at(stream, index, value, found)
            if offset is None and is_start and not self._options.is_latest_if_late:
                raise Invalid(
                    f"partition {index} of stream {stream.name} has no record at or after {value} ms: set"
                    " startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
            return found.last_stable if offset is None else offset
        if value > found.last_stable:
            raise Invalid(
                f"partition {index} of stream {stream.name} ends at offset {found.last_stable}, before {value}"
            )
        return value if not self._skips else max(value, found.start)

    async def _first_at(self, stream: Stream, index: int, time_ms: int, bounds: PartitionBounds) -> int | None:
        """Return the offset of the first record at or after a time."""
        key = stream.partition(index)
        located = await self._metadata.log.locate_timestamp(key, time_ms)
        if not located.slices:
            return None
        start = max(located.slices[0].slice.base_offset, bounds.start)
        if start >= bounds.last_stable:
            return None
        columns = Columns(time_schema(), stream.name, None, is_typed=False)
        async for batch in self._rows.read(stream, Part(key, start, bounds.last_stable), columns, is_typed=False):
            if (offset := first_at([batch], time_ms)) is not None:
                return offset
        return None

    # -- limits of a micro-batch ---------------------------------------------------------------------------------

    async def _limited(
        self, streams: Sequence[Stream], starts: Mapping[_Place, int], ends: dict[_Place, int]
    ) -> dict[_Place, int]:
        """Return how far a micro-batch may read of each partition."""
        backlog = {place: ends[place] - start for place, start in starts.items()}
        if self._options.offsets_max is not None:
            backlog = shares(backlog, self._options.offsets_max)
        if self._options.bytes_max is not None:
            by_name = {stream.name: stream for stream in streams}
            total = max(1, sum(backlog.values()))
            for place, count in backlog.items():
                if count:
                    room = max(1, self._options.bytes_max * count // total)
                    key = by_name[place.stream].partition(place.partition)
                    backlog[place] = (
                        await self._count_within(key, starts[place], starts[place] + count, room) - starts[place]
                    )
        return {place: start + backlog[place] for place, start in starts.items()}

    async def _count_within(self, key: PartitionKey, start: int, end: int, room: int) -> int:
        """Return the end of the offsets from `start` on that have about `room` bytes, as stored: at least one offset."""
        at = start
        while at < end:
            located = await self._metadata.log.locate(key, at, limit=_PAGE_COUNT)
            if not located.slices:
                return end
            for found in located.slices:
                piece = found.slice
                low, high = max(at, piece.base_offset), min(end, piece.end_offset)
                size = piece.length * (high - low) // piece.record_count
                if size >= room:
                    return max(start + 1, low + (high - low) * room // max(1, size))
                room -= size
                at = high
                if at >= end:
                    return end
        return end


def _offsets(streams: Sequence[Stream], ends: Mapping[_Place, int]) -> Offsets:
    found: dict[str, dict[int, int]] = {stream.name: {} for stream in streams}
    for place, end in ends.items():
        found[place.stream][place.partition] = end
    return Offsets({stream.name: StreamOffsets(str(stream.id), found[stream.name]) for stream in streams})
