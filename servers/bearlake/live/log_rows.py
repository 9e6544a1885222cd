"""Reads offsets of the log as rows, straight from the stores: data files where compaction has been, record batches elsewhere.

Records of aborted transactions are left out, and so are batches that cannot be decoded: the rows are those that the table has or will have.
Offsets are looked up again when an object is gone, because compaction may move them at any time. A reader that retention has overtaken
fails, or goes on at the start offset.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import Any, NamedTuple

from typing_extensions import override

from bearlake.clock import SystemClock
from bearlake.compaction.aborted import aborted_ranges, of_slices
from bearlake.compaction.converter import Converter
from bearlake.compaction.kept_batches import KeepReason, KeptBatches
from bearlake.compaction.model import AbortedRange, WrittenFile, missing_schemas
from bearlake.compaction.output import Output, Upload
from bearlake.compaction.row_passes import Group, load
from bearlake.compaction.stream_index import read_bounds
from bearlake.compaction.value_schemas import NO_PARTS, RequestedParts, ValueSchemas
from bearlake.compaction.windows import read_window, windows
from bearlake.compaction.workbench import MIB
from bearlake.errors import Conflict, Corrupt, NotFound, OutOfRange, Unavailable
from bearlake.live.settings import LogRowsSettings
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, SwapObject
from bearlake.metadata.model import (
    NO_ROW,
    LocatedSlice,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    Slice,
    Stream,
    partition_index,
)
from bearlake.objects import ObjectStore
from bearlake.table.footer import Footer
from bearlake.table.model import DataFile
from bearlake.table.projection import Bounds, Columns, ranges_of, read_group
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.value_plan import FileColumns, ValuePlan
from bearlake.table.value_typing import MissingSchemas, ValueTyping
from bearlake.table.writer import Rows
from bearlake.wal.keys import KeySource

log = logging.getLogger(__name__)

_RESOLVE_COUNT_MAX = 20
"""Look-ups in a row that name an object which is gone."""
_MICROSECONDS = 1000


class Part(NamedTuple):
    """Offsets `[start, end)` of a partition, with times in µs `[since_us, until_us)`; None: any."""

    partition: PartitionKey
    start: int
    end: int
    since_us: int | None = None
    until_us: int | None = None

    def bounds(self, start: int) -> Bounds:
        """Return the bounds of the rows from offset `start` on."""
        return Bounds(partition_index(self.partition), start, self.end, self.since_us, self.until_us)


class LogRows:
    """Reads rows. Belongs to one event loop; the caller closes the stores."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        settings: LogRowsSettings | None = None,
        values: Callable[[], ValueSchemas] | None = None,
    ) -> None:
        """`values` is called once a reader wants typed columns; None: readers want none."""
        self._metadata = metadata
        self._store = store
        self._settings = settings or LogRowsSettings()
        self._values = values
        self._files = DataFileReader(store, DataFileSettings(thread_count=0))  # the loop has a thread of its own
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._requested: dict[int, RequestedParts] = {}

    async def read(
        self, stream: Stream, part: Part, columns: Columns, *, is_typed: bool, skips_lost: bool = False
    ) -> AsyncIterator[Any]:
        """Yield the part's rows as Arrow record batches with the `columns`, in order of offset.

        `skips_lost`: go on at the start offset if offsets are gone.

        Raises:
            OutOfRange: offsets of the part are gone, or not there (any more).
            NotFound: there is no such partition (any more).
            Conflict: values do not fit the columns.
            Corrupt: an object contradicts its checksums.
            Unavailable: a store did not answer.
        """
        aborted = await aborted_ranges(self._metadata, [OffsetRange(part.partition, part.start, part.end)])
        at, failed_count = part.start, 0
        while at < part.end:
            start, found = await self._located(part, at, skips_lost=skips_lost)
            at = max(at, start)
            plan = await self._plan(stream) if is_typed and _has_batches(found) else None
            for group in _groups(found, self._settings.window_bytes):
                end = min(part.end, group[-1].slice.end_offset)
                if end <= at or _is_too_old(group, part):
                    at = max(at, end)
                    continue
                try:
                    async for next_offset, batches in self._group(stream, group, part, at, aborted, columns, plan):
                        for batch in batches:
                            yield batch
                        at, failed_count = next_offset, 0
                except NotFound as error:  # compacted, merged or trimmed meanwhile
                    failed_count += 1
                    if failed_count == _RESOLVE_COUNT_MAX:
                        raise Unavailable(f"stream {stream.name}: {error}, after {failed_count} look-ups") from error
                    break
                at = end

    async def newest_columns(self, stream: Stream) -> None:
        """Give columns to the schemas of the newest records that compaction has not reached, one slice per partition.

        Raises as `read`.
        """
        keys = [stream.partition(index) for index in range(stream.partition_count)]
        known = await read_bounds(self._metadata, keys)
        for key in keys:
            bounds = known.get(key)
            if bounds is None or bounds.start >= bounds.last_stable:
                continue
            found = (await self._metadata.log.locate(key, bounds.last_stable - 1, limit=1)).slices
            plan = await self._plan(stream)
            if plan is None or not found or found[0].kind is not ObjectKind.WAL:
                continue
            with suppress(NotFound):  # compacted meanwhile, so its schemas have their columns
                await self._decoded(stream, found[:1], [], plan)

    async def _located(self, part: Part, at: int, *, skips_lost: bool) -> tuple[int, Sequence[LocatedSlice]]:
        """Return where the part goes on, and slices from there."""
        found = await self._metadata.log.locate(part.partition, at, limit=self._settings.slices_per_lookup)
        start, _, stable = found.bounds
        if start > at:
            if not skips_lost:
                raise OutOfRange(
                    f"offsets [{at}, {min(start, part.end)}) of partition {partition_index(part.partition)} are gone: retention or a"
                    " deletion of records has passed the reader",
                    start=start,
                    end=stable,
                )
            log.warning("offsets are gone; the reader goes on at the start offset", extra={"from": at, "to": start})
        if part.end > stable:
            raise OutOfRange(
                f"partition {partition_index(part.partition)} ends at offset {stable}, before {part.end}",
                start=start,
                end=stable,
            )
        slices = [located for located in found.slices if located.slice.base_offset < part.end]
        if not slices and start < part.end:
            raise Corrupt(f"the index has no slice at offset {max(at, start)} of a partition that ends at {stable}")
        return start, slices

    async def _group(
        self,
        stream: Stream,
        group: Sequence[LocatedSlice],
        part: Part,
        at: int,
        aborted: dict[PartitionKey, list[AbortedRange]],
        columns: Columns,
        plan: ValuePlan | None,
    ) -> AsyncIterator[tuple[int, list[Any]]]:
        """Yield the rows of a data file's segment or of some record batches, with the offset after them."""
        if group[0].kind is ObjectKind.PARQUET:
            async for found in self._segment(group[0], part, at, columns):
                yield found
            return
        plan, found_rows = await self._decoded(stream, group, of_slices(aborted, group), plan)
        bounds, book = part.bounds(at), None if plan is None else plan.columns.book
        batches = [batch for rows in found_rows for batch in columns.of(rows, bounds, book).batches]
        yield min(part.end, group[-1].slice.end_offset), batches

    async def _segment(
        self, located: LocatedSlice, part: Part, at: int, columns: Columns
    ) -> AsyncIterator[tuple[int, list[Any]]]:
        if located.slice.position == NO_ROW:  # key compaction has left no record of it
            return
        ref, index = located.object, partition_index(part.partition)
        end = min(part.end, located.slice.end_offset)
        footer = await self._footer(ref)
        for group in footer.holding(index, at, end):
            bounds = part._replace(end=end).bounds(at)
            found = footer.groups[group]
            if part.since_us is not None and found.timestamp_max < part.since_us:
                continue
            ranges = ranges_of(footer, group, columns, bounds)
            file = await load(Group(ref, footer, group), ranges, self._store)
            batches, at = read_group(file, footer, group, columns, bounds)
            yield at, batches

    async def _footer(self, ref: ObjectRef) -> Footer:
        footer = self._footers.get(ref.key)
        if footer is None:
            footer = self._footers[ref.key] = await self._files.footer(ref)
        self._footers.move_to_end(ref.key)
        while len(self._footers) > self._settings.footer_count_max:
            self._footers.popitem(last=False)
        return footer

    # -- record batches ------------------------------------------------------------------------------------------

    async def _plan(self, stream: Stream) -> ValuePlan | None:
        """Return how values become columns; called after their slices were located, so that it knows their schemas."""
        assert self._values is not None, "this reader has no typed columns"
        return await self._values().plan(stream, self._requested.get(stream.number, NO_PARTS))

    async def _decoded(
        self,
        stream: Stream,
        group: Sequence[LocatedSlice],
        aborted: Sequence[AbortedRange],
        plan: ValuePlan | None,
    ) -> tuple[ValuePlan | None, list[Rows]]:
        """Return the rows of record batches, and the plan by which they were decoded."""
        loaded = await read_window(group, self._store, self._settings.read_concurrent_count)
        for _ in range(self._settings.schema_count_max):
            collected = _Collected(None if plan is None else plan.columns)
            kept = KeptBatches(stream.id.bytes, KeySource(SystemClock(), SystemRandom().getrandbits, ""), MIB)
            converter = Converter(
                collected,
                kept,
                row_group_bytes=self._settings.row_group_bytes,
                file_bytes_max=0,
                batch_bytes_max=self._settings.batch_bytes_max,
                aborted=aborted,
                typing=None if plan is None else ValueTyping(plan),
            )
            try:
                for _ in (*converter.feed(loaded), *converter.finish()):
                    pass
            except MissingSchemas as missing:
                assert plan is not None
                asked = missing_schemas(missing.ids, missing.messages, missing.key_ids, missing.key_messages)
                self._requested[stream.number] = self._requested.get(stream.number, NO_PARTS).and_missing(asked)
                plan = await self._plan(stream)
                continue
            if count := kept.counts[KeepReason.UNDECODABLE.value]:
                extra = {"stream": stream.name, "batch_count": count, "offset": group[0].slice.base_offset}
                log.warning("record batches cannot be decoded and have no rows", extra=extra)
            return plan, collected.rows
        raise Conflict(f"stream {stream.name}: its values name more than {self._settings.schema_count_max} new schemas")


class _Collected(Output):
    """Collects rows instead of writing a data file."""

    def __init__(self, columns: FileColumns | None) -> None:
        super().__init__("", lambda _: 0, columns)
        self.rows: list[Rows] = []
        self._count = 0

    @property
    @override
    def row_count(self) -> int:
        return self._count

    @property
    @override
    def size_bytes(self) -> int:
        return 0

    @override
    def write(self, rows: Rows) -> None:
        self.rows.append(rows)
        self._count += rows.num_rows

    @override
    def finish(
        self, segments: Sequence[Slice], metadata: Mapping[str, str] | None = None
    ) -> tuple[WrittenFile, Upload]:
        file = DataFile(
            key="",
            size=0,
            row_count=self._count,
            max_timestamp_ms=0,
            split_offsets=(),
            column_sizes={},
            value_counts={},
            null_value_counts={},
            lower_bounds={},
            upper_bounds={},
        )
        self._count = 0
        swap = SwapObject(object=ObjectRef("", 0, ObjectKind.PARQUET), slices=segments)
        return WrittenFile(file=file, swap=swap), Upload("", [])


def _has_batches(found: Collection[LocatedSlice]) -> bool:
    return any(located.kind is ObjectKind.WAL for located in found)


def _groups(found: Sequence[LocatedSlice], bytes_max: int) -> Iterator[Sequence[LocatedSlice]]:
    """Yield each segment, and slices of record batches that follow each other in windows."""
    batches: list[LocatedSlice] = []
    for located in found:
        if located.kind is ObjectKind.WAL:
            batches.append(located)
            continue
        yield from windows(batches, bytes_max)
        batches = []
        yield [located]
    yield from windows(batches, bytes_max)


def _is_too_old(group: Sequence[LocatedSlice], part: Part) -> bool:
    """Whether all records are older than the part wants them."""
    return part.since_us is not None and all(
        (located.slice.max_timestamp + 1) * _MICROSECONDS <= part.since_us for located in group
    )
