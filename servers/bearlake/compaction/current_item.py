"""Work items of current tables: each brings some buckets up to the stream's table (`table/current_state.py` has the rule).

    places of the round's records (keys, offsets, timestamps)  →  rows of the newest ones  →  bucket by bucket: the rows so far without
    those that are superseded, then the new ones, in new files

A bucket of which no record is newer keeps its files. Rows so far pass in slices of row groups, so a bucket may have any size. Memory: the
newest records of the round in the item's buckets, slices of a row group and a file. The round bounds the bytes that it reads
(`compaction.current.round_bytes_max`), the item those that they become: producers and other engines choose how well their records can be
compressed.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import NamedTuple, TypeVar

from bearlake.compaction.concurrency import run_all
from bearlake.compaction.model import CurrentWork, ItemResult, WorkItem, WrittenFile
from bearlake.compaction.output import Upload
from bearlake.compaction.workbench import Workbench
from bearlake.errors import Corrupt, Invalid, Unsupported
from bearlake.metadata.compaction import SwapObject
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects import ByteRange, ObjectStore
from bearlake.table import current_rows, current_state
from bearlake.table.current_bucket import BucketChange, ExceedsMemory, NewRecords, Span
from bearlake.table.current_rows import RowFile
from bearlake.table.current_state import Places
from bearlake.table.current_writer import CurrentFileWriter
from bearlake.table.file_tail import needed
from bearlake.table.reader import read_ranges
from bearlake.table.sparse import SparseFile
from bearlake.table.writer import Rows

T = TypeVar("T")

_ATTEMPT_BITS = 32
_TAIL_BYTES = 64 * 1024
_PLACES_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Memory (bytes) of the keys and places that are looked at together: about a million records."""


class _Group(NamedTuple):
    """A row group of a data file."""

    object: ObjectRef
    footer: RowFile
    number: int


async def update(item: WorkItem, work: CurrentWork, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Update the item's buckets, with the contract of `compaction.task.run`."""
    reader = _Reader(store, workbench)
    span = Span(starts=work.starts, ends=work.ends)
    records = NewRecords(
        span, work.bucket_count, list(work.buckets), work.columns, bytes_max=workbench.limits.current_bytes
    )
    updater = _Updater(item, work, records, reader, store, workbench)
    try:
        for reference, numbers in (await _see(records, item.inputs, work, reader, workbench)).items():
            footer = await reader.footer(reference)  # again: those of all files may take much memory
            for number in sorted(numbers):
                slices = await reader.rows(_Group(reference, footer, number), work)
                while (rows := await slices.next()) is not None:
                    await workbench.compute(partial(records.take, [rows]))
    except ExceedsMemory:
        return replace(updater.result(read_bytes=0), exceeds_memory=True)
    await workbench.compute(records.ready)
    for bucket in sorted(work.buckets):
        await updater.update(bucket)
    return updater.result(read_bytes=sum(reference.size for reference in item.inputs))


async def _see(
    records: NewRecords, inputs: Sequence[ObjectRef], work: CurrentWork, reader: "_Reader", workbench: Workbench
) -> Mapping[ObjectRef, Collection[int]]:
    """Let the records see the files; return the row groups with records of the item's buckets, by file, in order."""
    taken: dict[ObjectRef, set[int]] = {reference: set() for reference in inputs}
    tables: list[Places] = []
    places_of: list[tuple[ObjectRef, int]] = []
    """The row group of each table."""

    async def look() -> None:
        for reference, number in compress(places_of, await workbench.compute(partial(records.see, tables))):
            taken[reference].add(number)
        tables.clear()
        places_of.clear()

    async for reference, footer in reader.footers(inputs):
        for number in await workbench.compute(partial(footer.groups_with, work.starts, work.ends)):
            slices = await reader.places(_Group(reference, footer, number))
            while (places := await slices.next()) is not None:
                tables.append(places)
                places_of.append((reference, number))
                if sum(table.nbytes for table in tables) >= _PLACES_AT_ONCE_BYTES:
                    await look()
    await look()
    return {reference: numbers for reference, numbers in taken.items() if numbers}


class _Slices:
    """The rows of a row group, slice by slice."""

    def __init__(self, reference: ObjectRef, slices: Iterator[Rows], workbench: Workbench) -> None:
        self._reference = reference
        self._slices = slices
        self._workbench = workbench

    async def next(self) -> Rows | None:
        """Return the next slice; None: there are no more. Raises as `current_rows.read_places`, with the file's name."""
        return await _of_file(self._reference, partial(next, self._slices, None), self._workbench)


async def _of_file(reference: ObjectRef, step: Callable[[], T], workbench: Workbench) -> T:
    """Compute a step, and name the file in its errors."""
    try:
        return await workbench.compute(step)
    except (Corrupt, Unsupported) as error:
        raise type(error)(f"{reference.key}: {error}") from error
    except Invalid as error:
        raise Invalid(f"{reference.key}: {error}") from error


class _Reader:
    """Reads data files."""

    def __init__(self, store: ObjectStore, workbench: Workbench) -> None:
        self._store = store
        self._workbench = workbench

    async def footers(self, references: Sequence[ObjectRef]) -> AsyncIterator[tuple[ObjectRef, RowFile]]:
        """Yield the footers of the files. The ends of some are read at once, but only one footer is in memory: it may be large."""
        at_once = self._workbench.limits.read_concurrent_count
        for start in range(0, len(references), at_once):
            batch = references[start : start + at_once]
            for reference, tail in zip(batch, await run_all([self._tail(found) for found in batch]), strict=True):
                yield reference, await self._parsed(reference, tail)

    async def footer(self, reference: ObjectRef) -> RowFile:
        """Read a file's footer. Raises `Corrupt`, `Invalid`, `NotFound`, `Unavailable`."""
        return await self._parsed(reference, await self._tail(reference))

    async def _tail(self, reference: ObjectRef) -> memoryview:
        start = max(0, reference.size - _TAIL_BYTES)
        (tail,) = await read_ranges(self._store, reference, [ByteRange(start, reference.size)])
        return tail

    async def _parsed(self, reference: ObjectRef, tail: memoryview) -> RowFile:
        try:
            while (count := self._footer_bytes(reference, tail)) > len(tail):
                (tail,) = await read_ranges(self._store, reference, [ByteRange(reference.size - count, reference.size)])
        except Corrupt as error:
            raise Corrupt(f"data file {reference.key}: {error}") from error
        return await _of_file(reference, partial(current_rows.parse_file, tail, reference.size), self._workbench)

    def _footer_bytes(self, reference: ObjectRef, tail: memoryview) -> int:
        """Return `needed`. Raises `Corrupt`, and `Invalid` if it is too much."""
        count, limit = needed(tail, reference.size), self._workbench.limits.current_footer_bytes
        if count > limit:
            raise Invalid(
                f"{reference.key}: its footer takes {count} bytes; the limit is compaction.task.current_footer_bytes, {limit} bytes"
            )
        return count

    async def places(self, group: _Group) -> _Slices:
        """Return the keys and places of a row group."""
        return await self._slices(group, group.footer.place_ranges(group.number), current_rows.read_places)

    async def rows(self, group: _Group, work: CurrentWork) -> _Slices:
        """Return the rows of a row group of the stream's table."""
        read = partial(current_rows.read_rows, columns=work.columns)
        return await self._slices(group, [group.footer.row_range(group.number)], read)

    async def current(self, group: _Group, work: CurrentWork) -> _Slices:
        """Return the rows of a row group of the current table."""
        read = partial(current_rows.read_current, columns=work.columns)
        return await self._slices(group, [group.footer.row_range(group.number)], read)

    async def _slices(self, group: _Group, ranges: Sequence[ByteRange], read: Callable[..., Iterator[Rows]]) -> _Slices:
        key, size = group.object.key, group.object.size
        if not all(0 <= start <= end <= size for start, end in ranges):
            raise Corrupt(f"{key}: data file, row group {group.number}: its columns are not in the file")
        count = sum(end - start for start, end in ranges)
        if count > (limit := self._workbench.limits.current_group_bytes):
            raise Invalid(
                f"{key}: data file, row group {group.number}: it takes {count} bytes of the file; "
                f"the limit is compaction.task.current_group_bytes, {limit} bytes"
            )
        file = SparseFile(size, ranges, await read_ranges(self._store, group.object, ranges))
        slices = read(file, group.footer, group.number, bytes_max=self._workbench.limits.current_bytes)
        return _Slices(group.object, slices, self._workbench)


class _Updater:
    """Updates buckets, one after the other."""

    def __init__(
        self,
        item: WorkItem,
        work: CurrentWork,
        records: NewRecords,
        reader: _Reader,
        store: ObjectStore,
        workbench: Workbench,
    ) -> None:
        self._item = item
        self._work = work
        self._records = records
        self._reader = reader
        self._store = store
        self._workbench = workbench
        self._attempt = f"{workbench.random_bits(_ATTEMPT_BITS):08x}"
        self._files: list[WrittenFile] = []
        self._buckets: list[int] = []
        self._unchanged: list[str] = []
        self._row_count = self._dropped_count = self._read_bytes = self._written_bytes = 0
        self._newest_us = max(work.newest_us, records.newest_us)
        self._writer: CurrentFileWriter | None = None

    async def update(self, bucket: int) -> None:
        """Update a bucket."""
        files = self._work.buckets[bucket]
        places = await self._workbench.compute(partial(self._records.of_bucket, bucket))
        groups: list[_Group] = []
        change: BucketChange | None = None
        if places.num_rows:
            change, groups = await self._change(bucket, places, files)
        if change is None:
            self._unchanged += [reference.key for reference in files]
            return
        self._read_bytes += sum(reference.size for reference in files)
        for group in groups:
            slices = await self._reader.current(group, self._work)
            while (rows := await slices.next()) is not None:
                kept = await self._workbench.compute(partial(change.kept, rows))
                self._dropped_count += rows.num_rows - kept.num_rows
                await self._write(bucket, kept)
        await self._write(bucket, change.rows)
        if self._writer is None and change.remembered.num_rows:
            self._writer = self._opened(bucket)
        if self._writer is not None:
            await self._finish(bucket, change)

    async def _change(
        self, bucket: int, places: Places, files: Sequence[ObjectRef]
    ) -> tuple[BucketChange | None, list[_Group]]:
        footers = [await self._reader.footer(reference) for reference in files]
        groups = [
            _Group(reference, footer, at)
            for reference, footer in zip(files, footers, strict=True)
            for at in range(footer.metadata.num_row_groups)
        ]
        known = [current_state.no_places()]
        for group in groups:
            slices = await self._reader.places(group)
            while (table := await slices.next()) is not None:
                known.append(await self._workbench.compute(partial(current_state.of_keys_of, table, places)))
        texts = [footer.text(current_state.FOOTER_NAME) for footer in footers]
        change = partial(
            self._records.change,
            bucket,
            current_state.joined(known),
            current_state.joined([current_state.decode_remembered(text) for text in (None, *texts)]),
            remember_us=self._work.remember_us,
            newest_us=self._newest_us,
        )
        return await self._workbench.compute(change), groups

    async def _write(self, bucket: int, rows: Rows) -> None:
        """Write rows in row groups of about `row_group_bytes`; a file ends at `file_bytes_max`."""
        if rows.num_rows == 0:
            return
        count = max(1, rows.num_rows * self._item.row_group_bytes // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, count):
            writer = self._writer = self._writer or self._opened(bucket)
            await self._workbench.compute(partial(writer.write, rows.slice(start, count)))
            if writer.size_bytes >= self._item.file_bytes_max:
                await self._finish(bucket, None)
        self._row_count += rows.num_rows

    def _opened(self, bucket: int) -> CurrentFileWriter:
        key = f"{self._item.output_prefix}-{self._attempt}-{bucket:04x}-{len(self._files):04x}.parquet"
        return CurrentFileWriter(key, self._work.columns)

    async def _finish(self, bucket: int, change: BucketChange | None) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        finished = await self._workbench.compute(partial(writer.finish, {} if change is None else change.footer()))
        file = finished.file
        swap = SwapObject(object=ObjectRef(file.key, file.size, ObjectKind.PARQUET), slices=())
        upload = Upload(file.key, finished.parts)
        await self._store.put(*upload)
        self._files.append(WrittenFile(file=file, swap=swap))
        self._buckets.append(bucket)
        self._written_bytes += file.size

    def result(self, *, read_bytes: int) -> ItemResult:
        """Return the result; `read_bytes`: of the item's inputs."""
        return ItemResult(
            files=self._files,
            kept_objects=(),
            row_count=self._row_count,
            read_bytes=read_bytes + self._read_bytes,
            record_bytes=0,
            written_bytes=self._written_bytes,
            kept_counts={},
            unchanged=sorted(self._unchanged),
            dropped_count=self._dropped_count,
            buckets=self._buckets,
            newest_us=self._newest_us,
        )
