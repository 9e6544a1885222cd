"""Reads history: finds the slices and row groups with offsets that the tail index no longer holds.

    plan (segment index, else the metadata store; footers say which row groups) → block (cache, else read and decoded) → pieces

- Segments are read by row group. Each row group is decoded once into a block of batches for all readers (single flight, bounded in bytes).
- While the server serves a block, it reads the next block of the same partition ahead.
- Offsets in a segment without rows (control batches, aborted records) are answered with empty batches, so that readers get past them.
- Only the tail index's followed bounds or the store decide whether an offset is in range, never a cache.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from bearlake import kernel
from bearlake.cache.values import ValueCache
from bearlake.errors import Corrupt, NotFound, OutOfRange
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex, TailSlice
from bearlake.metadata import CommitLog
from bearlake.metadata.model import (
    NO_ROW,
    LocatedSlice,
    ObjectKind,
    ObjectRef,
    PartitionBounds,
    PartitionKey,
    Slice,
    partition_index,
)
from bearlake.records.batch import HEADER_BYTES, NO_LEADER_EPOCH
from bearlake.streams.fetched import FetchRange
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.table.blocks import Block
    from bearlake.table.footer import Footer

RESOLVE_COUNT_MAX = 3
"""Attempts to look up an offset when objects are swept between look-up and read. One such sweep is already rare."""

_FROM_HISTORY = metrics.FETCH_LOOKUPS.labels("history")
_FROM_STORE = metrics.FETCH_LOOKUPS.labels("store")

_BLOCKS_FROM_MEMORY = metrics.HISTORY_BLOCKS.labels("memory")
_BLOCKS_FROM_FILES = metrics.HISTORY_BLOCKS.labels("files")

_PREFIX = Struct(">qiibI")
_FIELDS = Struct(">hiqqqhii")
_LENGTH_END = 12
_DELTA_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Limits of reading history."""

    piece_count_max: int = 20_000
    """Located slices and segments that are cached (about 500 bytes each). With fewer, lagging consumers need more look-ups in the metadata
    store."""
    block_bytes_max: int = 128 * 1024 * 1024
    """Bytes of decoded row groups kept in memory (except for a single larger group). With less than two row groups (8 MiB each) per
    partition that is being read, row groups are decoded more than once."""
    decoding_bytes_max: int = 64 * 1024 * 1024
    """Memory (bytes) of row groups that are being read and decoded at once; further row groups wait. A row group takes its compressed bytes
    and twice its uncompressed bytes."""
    footer_bytes_max: int = 16 * 1024 * 1024
    """Bytes of parsed footers kept in memory; a data file of 128 MiB takes about 50 KiB."""
    read_ahead_count: int = 1
    """Row groups that are read ahead of a consumer, per partition; 0: none. More row groups help if the object store is slow."""
    read_ahead_bytes_max: int = 64 * 1024 * 1024
    """Bytes of row groups that are read ahead, of all partitions, and that no consumer has read yet; with that many, further row groups are
    read when a consumer needs them. More than half of `block_bytes_max` may evict row groups before they are read."""
    files: DataFileSettings = field(default_factory=DataFileSettings)
    """How data files are read."""


class Moved(NotFound):
    """An object that the index named is gone; its offsets are in another object now: look them up again."""


class BlockPiece(NamedTuple):
    """The part of a segment in one row group.

    `slice` has the part's approximate offsets and bytes; `end` is the segment's end; `rest` holds the segment's later row groups.
    """

    slice: Slice
    object: ObjectRef
    footer: "Footer"
    group: int
    end: int
    rest: Sequence[int]

    def runs(self, block: "Block", start: int) -> Iterator[tuple[TailSlice, memoryview]]:
        """Yield the block's batches from offset `start` on, as slices with their bytes; empty batches cover offsets without rows."""
        partition = self.slice.partition
        at = start
        for base, end, view in block.views(partition_index(partition), start, self.end):
            yield from self._gap(at, base)
            yield TailSlice(Slice(partition, base, end - base, 0, len(view), 0), self.object), view
            at = end
        if not self.rest:
            yield from self._gap(at, self.end)

    def _gap(self, start: int, end: int) -> Iterator[tuple[TailSlice, memoryview]]:
        while start < end:
            count = min(end - start, _DELTA_MAX)
            view = empty_batch(start, count)
            yield TailSlice(Slice(self.slice.partition, start, count, 0, len(view), 0), self.object), view
            start += count


Piece = TailSlice | BlockPiece


class History:
    """One server's access to offsets before its tail index. Use it from the event loop's thread only."""

    def __init__(
        self,
        commit_log: CommitLog,
        tail: TailIndex,
        segments: SegmentIndex,
        files: DataFileReader,
        settings: HistorySettings,
        *,
        slices_per_lookup: int,
    ) -> None:
        self._log = commit_log
        self._tail = tail
        self._segments = segments
        self._files = files
        self._settings = settings
        self._slices_per_lookup = slices_per_lookup
        self._footers: ValueCache[str, Footer] = ValueCache(
            bytes_max=settings.footer_bytes_max,
            loading_bytes_max=settings.footer_bytes_max,
            size_of=lambda footer: footer.memory_bytes,
        )
        self._blocks: ValueCache[tuple[str, int], Block] = ValueCache(
            bytes_max=settings.block_bytes_max,
            loading_bytes_max=settings.decoding_bytes_max,
            ahead_bytes_max=settings.read_ahead_bytes_max,
            size_of=lambda block: block.memory_bytes,
            on_lookup=_count_lookup,
            on_evicted=metrics.HISTORY_EVICTED_BYTES.inc,
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of decoded row groups in memory."""
        return self._blocks.size_bytes

    @property
    def ahead_bytes(self) -> int:
        """Bytes of row groups that were read ahead and that no consumer has read yet."""
        return self._blocks.ahead_bytes

    @property
    def piece_count(self) -> int:
        """Located pieces in memory."""
        return self._segments.piece_count

    # -- plan ----------------------------------------------------------------------------------------------------

    async def plan(
        self, partition: PartitionKey, offset: int, bytes_max: int, *, is_fresh: bool
    ) -> tuple[PartitionBounds, list[Piece]]:
        """Return the partition's bounds, and about `bytes_max` bytes of pieces from `offset` on. `is_fresh`: ask the store.

        Raises:
            OutOfRange: according to the store, the offset is not in `[start, end]`.
            NotFound: no such partition.
            Moved: a data file is gone: call again with `is_fresh`.
            Corrupt, Unavailable, Unsupported: reading a data file failed.
        """
        known = None if is_fresh else self._known(partition, offset)
        bounds, found = known or await self._ask(partition, offset)
        pieces: list[Piece] = []
        room = bytes_max
        for located in found:
            for piece in await self._pieces(located, offset):
                pieces.append(piece)
                room -= bytes_from(piece.slice, offset)
                if room <= 0:
                    return bounds, pieces
        return bounds, pieces

    def _known(self, partition: PartitionKey, offset: int) -> tuple[PartitionBounds, Sequence[LocatedSlice]] | None:
        tail = self._tail.get(partition)
        if tail is None or not 0 <= tail.start <= offset < tail.end:
            return None
        found = self._segments.find(partition, offset, limit=self._slices_per_lookup)
        if not found:
            return None
        _FROM_HISTORY.value += 1
        end = max(tail.end, found[-1].slice.end_offset)  # the store's answer may be ahead of this server's follower
        return PartitionBounds(tail.start, end, end), found

    async def _ask(self, partition: PartitionKey, offset: int) -> tuple[PartitionBounds, Sequence[LocatedSlice]]:
        _FROM_STORE.value += 1
        located = await self._log.locate(partition, offset, limit=self._slices_per_lookup)
        start, end, _ = located.bounds
        if not start <= offset <= end:
            raise OutOfRange(f"offset {offset} is outside [{start}, {end})", start=start, end=end)
        self._segments.learn(partition, located)
        return located.bounds, located.slices

    async def _pieces(self, located: LocatedSlice, offset: int) -> Iterable[Piece]:
        if located.kind is not ObjectKind.PARQUET:
            return [TailSlice(located.slice, located.object)]
        return _blocks_of(located, await self._footer(located.object), offset)

    async def _footer(self, ref: ObjectRef) -> "Footer":
        try:
            return self._footers.peek(ref.key) or await self._footers.get(
                ref.key, self._settings.files.footer_bytes, partial(self._files.footer, ref)
            )
        except NotFound as error:
            raise Moved(f"data file {ref.key}") from error

    def from_memory(self, item: FetchRange, end: int, room: int, *, is_first: bool) -> tuple[list[memoryview], bool] | None:  # fmt: skip
        """Return whole batches from row groups in memory, up to `room` bytes but one at least if `is_first`, and whether memory had
        too few; None if it has not even the first. Never waits; reads ahead. The caller knows that the partition has the offset, and that
        it ends at `end`: segments beyond count as not in memory.
        """
        found: list[memoryview] = []
        last, at = None, item.offset
        try:
            for piece, block in self._in_memory(item, end):
                last = piece
                for run, view in piece.runs(block, at):
                    at = run.slice.end_offset
                    start, cut = kernel.find_run(view, 0, len(view), item.offset, room, is_first)
                    if cut > start:
                        found.append(view[start:cut])
                        room -= cut - start
                        is_first = False
                    if cut < len(view) or room <= 0:
                        return found, False
        except Corrupt:  # the caller reads again, and learns which file
            return None
        finally:
            if last is not None:
                _FROM_HISTORY.value += 1
                self.read_ahead(last)
        return (found, True) if found else None

    def _in_memory(self, item: FetchRange, end: int) -> "Iterator[tuple[BlockPiece, Block]]":
        """Yield the pieces from an offset on with their blocks, until one is not in memory or goes beyond `end`."""
        for located in self._segments.find(item.partition, item.offset, limit=self._slices_per_lookup):
            footer = self._footers.peek(located.object.key) if located.kind is ObjectKind.PARQUET else None
            if footer is None or located.slice.end_offset > end:
                return
            for piece in _blocks_of(located, footer, item.offset):
                block = self.peek(piece)
                if block is None:
                    return
                yield piece, block

    # -- blocks --------------------------------------------------------------------------------------------------

    def peek(self, piece: BlockPiece) -> "Block | None":
        """Return the piece's block if it is cached, else None; never waits."""
        return self._blocks.peek((piece.object.key, piece.group))

    async def block(self, piece: BlockPiece) -> "Block":
        """Return the piece's block; reads and decodes the row group if needed. Raises `Moved`, `Corrupt`, `Unavailable`."""
        ref, group = piece.object, piece.group
        try:
            return await self._blocks.get(
                (ref.key, group), _load_bytes(piece.footer, group), partial(self._read, ref, piece.footer, group)
            )
        except NotFound as error:
            raise Moved(f"data file {ref.key}") from error

    async def _read(self, ref: ObjectRef, footer: "Footer", group: int) -> "Block":
        loop = asyncio.get_running_loop()
        started = loop.time()
        block = await self._files.block(ref, footer, group)
        metrics.HISTORY_DECODE_SECONDS.observe(loop.time() - started)
        return block

    def read_ahead(self, piece: BlockPiece) -> None:
        """Start to read the row groups after `piece`, as far as the segment index knows them.

        Marks the block before `piece` as next to evict, because consumers move forward. Plain LRU would evict blocks read ahead for others.
        """
        self._blocks.done_with((piece.object.key, piece.group - 1))
        left = self._settings.read_ahead_count
        ref, footer, groups, end = piece.object, piece.footer, piece.rest, piece.end
        while left > 0:
            for group in groups[:left]:
                load = partial(self._read, ref, footer, group)
                size_bytes = footer.groups[group].size_bytes
                self._blocks.read_ahead((ref.key, group), _load_bytes(footer, group), load, size_bytes=size_bytes)
            left -= len(groups)
            found = self._segments.find(piece.slice.partition, end, limit=1)
            if left <= 0 or not found or found[0].kind is not ObjectKind.PARQUET:
                return
            ref, next_end = found[0].object, found[0].slice.end_offset
            known = self._footers.peek(ref.key)
            if known is None:  # load the footer now; the next fetch reads its first row group ahead
                self._footers.read_ahead(ref.key, self._settings.files.footer_bytes, partial(self._files.footer, ref))
                return
            footer, groups = known, known.holding(partition_index(piece.slice.partition), end, next_end)
            end = next_end

    # -- timestamps ----------------------------------------------------------------------------------------------

    async def first_at(self, found: LocatedSlice, timestamp: int | None, start: int) -> tuple[int, int] | None:
        """Return (offset, timestamp in ms) of the segment's first record at or after `timestamp` (ms) from offset `start` on.

        If `timestamp` is None, of the first record with the largest timestamp. None: no such record.
        Raises `Moved`, `Corrupt`, `Unavailable`.
        """
        from bearlake.table.blocks import Rows

        piece, ref = found.slice, found.object
        footer = await self._footer(ref)
        rows = Rows(partition_index(piece.partition), max(start, piece.base_offset), piece.end_offset)
        best: tuple[int, int] | None = None
        for group in footer.holding(*rows):
            newest = footer.groups[group].timestamp_max // 1000
            if newest < timestamp if timestamp is not None else best is not None and newest <= best[1]:
                continue
            try:
                answer = await self._files.first_at(ref, footer, group, rows, timestamp)
            except NotFound as error:
                raise Moved(f"data file {ref.key}") from error
            if answer is not None and timestamp is not None:
                return answer
            if answer is not None and (best is None or answer[1] > best[1]):
                best = answer
        return best

    async def close(self) -> None:
        """Cancel reads and drop all cached values."""
        await self._footers.close()
        await self._blocks.close()
        await self._files.close()


def _count_lookup(is_hit: bool) -> None:
    (_BLOCKS_FROM_MEMORY if is_hit else _BLOCKS_FROM_FILES).inc()


def bytes_from(piece: Slice, offset: int) -> int:
    """Estimate the bytes of the slice from `offset` on, at least 1; exact if `offset` is not inside the slice."""
    _, base, count, _, length, _ = piece
    return length if offset <= base else max(1, length * (base + count - offset) // count)


def empty_batch(base_offset: int, count: int) -> memoryview:
    """Build a record batch without records that covers `count` offsets (1 … 2**31 - 1), like those that Kafka's log cleaner leaves."""
    fields = _FIELDS.pack(0, count - 1, -1, -1, -1, -1, -1, 0)
    length = _PREFIX.size + len(fields) - _LENGTH_END
    return memoryview(_PREFIX.pack(base_offset, length, NO_LEADER_EPOCH, 2, kernel.crc32c(fields)) + fields)


def _blocks_of(located: LocatedSlice, footer: "Footer", offset: int) -> Iterator[BlockPiece]:
    """Yield the segment's row groups, starting with the one that may hold `offset`. Most fetches need one of the many in a file.

    A row group shared with other partitions may end before the offset. Such a piece counts as zero bytes if another piece follows, so
    that a plan never ends with it.
    """
    piece = located.slice
    start, end = max(offset, piece.base_offset), piece.end_offset
    index = partition_index(piece.partition)
    groups = footer.holding(index, start, end)
    if not groups:  # `offset` is after the last row: that row's group yields the empty batch
        groups = footer.holding(index, piece.base_offset, end)[-1:]
    if (
        not groups and piece.position == NO_ROW
    ):  # in any row group there is no row of it, so all of it becomes empty batches
        about = Slice(piece.partition, start, end - start, 0, HEADER_BYTES, piece.max_timestamp)
        yield BlockPiece(about, located.object, footer, 0, end, ())
        return
    if not groups:
        raise Corrupt(f"data file {located.object_key} has no rows of the segment {piece}")
    for at, number in enumerate(groups):
        group = footer.groups[number]
        base, next_base, length = start, end, 0
        if group.is_of_one_partition:
            base, next_base, length = group.offset_min, group.offset_max + 1, group.size_bytes
        elif at == len(groups) - 1:
            length = group.size_bytes * min(piece.record_count, group.row_end - group.row_start)
            length //= group.row_end - group.row_start
        about = Slice(piece.partition, base, next_base - base, 0, length, piece.max_timestamp)
        yield BlockPiece(about, located.object, footer, number, end, groups[at + 1 :])


def _load_bytes(footer: "Footer", group: int) -> int:
    found = footer.groups[group]
    return found.end - found.start + 2 * found.size_bytes
