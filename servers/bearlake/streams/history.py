"""Reads history: finds the slices and row groups with offsets that the tail index no longer holds.

    plan (segment index, else the metadata store; footers say which row groups) → block (cache, else read and decoded) → pieces

- Segments are read by row group. Each row group is decoded once into a block of batches for all readers (single flight, bounded in bytes).
- While a reader is in a block, its next blocks are read ahead: `streams/read_ahead.py`.
- Offsets in a segment without rows (control batches, aborted records) are answered with empty batches, so that readers get past them.
- Only the tail index's followed bounds or the store decide whether an offset is in range, never a cache.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bearlake import kernel
from bearlake.cache.gate import ByteGate
from bearlake.cache.values import ValueCache
from bearlake.errors import Corrupt, NotFound, OutOfRange, Unavailable
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex, TailSlice
from bearlake.metadata import CommitLog
from bearlake.metadata.model import (
    LocatedSlice,
    ObjectKind,
    ObjectRef,
    PartitionBounds,
    PartitionKey,
    partition_index,
)
from bearlake.streams.fetched import FetchRange
from bearlake.streams.history_pieces import BlockKey, BlockPiece, Piece, blocks_of, bytes_from
from bearlake.streams.read_ahead import NextBlock, ReadAhead
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.table.blocks import Block
    from bearlake.table.footer import Footer

RESOLVE_COUNT_MAX = 3
"""Attempts to look up an offset when objects are swept between look-up and read. One such sweep is already rare."""

PASS_S = 5.0
"""Time (s) for which reads answer without a row group that is being loaded. Then, for as long, reads wait for it, so that all of its
consumers get their records or their error even if others load it again and again."""
PASSED_COUNT_MAX = 1_000
"""Row groups without which reads answered that are known at once; beyond, the oldest may be passed for longer."""

_FROM_HISTORY = metrics.FETCH_LOOKUPS.labels("history")
_FROM_STORE = metrics.FETCH_LOOKUPS.labels("store")

_BLOCKS_FROM_MEMORY = metrics.HISTORY_BLOCKS.labels("memory")
_BLOCKS_FROM_FILES = metrics.HISTORY_BLOCKS.labels("files")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Limits of reading history."""

    piece_count_max: int = 20_000
    """Located slices and segments that are cached (about 500 bytes each). With fewer, lagging consumers need more look-ups in the metadata
    store."""
    block_bytes_max: int = 128 * 1024 * 1024
    """Bytes of decoded row groups kept in memory (except for a single larger group). With less than two row groups (8 MiB each) per
    partition that is being read, row groups are decoded more than once."""
    reading_bytes_max: int = 32 * 1024 * 1024
    """Compressed bytes of row groups that are being read from the object store, or wait to be decoded; further row groups wait. Less than
    the rate of the readers times the store's latency makes readers wait: with 80 ms, 32 MiB are 400 MB/s."""
    decoding_bytes_max: int = 64 * 1024 * 1024
    """Memory (bytes) of row groups that are being decoded at once; further row groups wait. A row group takes twice its uncompressed
    bytes."""
    footer_bytes_max: int = 16 * 1024 * 1024
    """Bytes of parsed footers kept in memory; a data file of 128 MiB takes about 50 KiB."""
    read_ahead_count: int = 1
    """Row groups that are read ahead of a consumer that reads a partition in order, at first; 0: none."""
    read_ahead_count_max: int = 8
    """Most row groups that are read ahead of a consumer: their number doubles whenever it has to wait for a row group, as it does if the
    object store is slow. The bytes below limit them as well."""
    read_ahead_bytes_max: int = 64 * 1024 * 1024
    """Bytes of row groups that are read ahead, of all partitions, and that no consumer has read yet; with that many, further row groups are
    read when a consumer needs them. Consumers share them. The row groups that consumers are reading go first in `block_bytes_max`."""
    reader_count_max: int = 4_096
    """Consumers for which row groups may be read ahead at once, of one partition each (half a kilobyte each). With more, the one that has
    not read for longest is forgotten. If all of so many read in turn, nothing is read ahead for any of them."""
    reader_idle_ms: int = 2_000
    """Time (ms) after which a consumer that does not read has left, so that what is ahead of it makes way. A consumer that takes longer for
    a row group has nothing ahead. More: consumers that pause for long between reads wait less for a slow object store, and other consumers
    have less ahead."""
    files: DataFileSettings = field(default_factory=DataFileSettings)
    """How data files are read."""


class Moved(NotFound):
    """An object that the index named is gone; its offsets are in another object now: look them up again."""


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
        self._blocks: ValueCache[BlockKey, Block] = ValueCache(
            bytes_max=settings.block_bytes_max,
            loading_bytes_max=settings.reading_bytes_max,
            ahead_bytes_max=settings.read_ahead_bytes_max,
            size_of=lambda block: block.memory_bytes,
            on_lookup=_count_lookup,
            on_evicted=metrics.HISTORY_EVICTED_BYTES.inc,
        )
        self._decoding = ByteGate(settings.decoding_bytes_max)
        self._passed: OrderedDict[BlockKey, float] = OrderedDict()
        """Since when (s) reads answer without a row group."""
        self._decoded: set[BlockKey] = set()
        """Row groups that are being decoded, or wait for it."""
        self._ahead = ReadAhead(
            self._blocks,
            count=settings.read_ahead_count,
            count_max=settings.read_ahead_count_max,
            bytes_max=settings.read_ahead_bytes_max,
            cache_bytes_max=settings.block_bytes_max,
            reader_count_max=settings.reader_count_max,
            idle_s=settings.reader_idle_ms / 1000,
            now=lambda: asyncio.get_running_loop().time(),
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
    def reader_count(self) -> int:
        """Readers for which row groups may be read ahead."""
        return self._ahead.reader_count

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
        return blocks_of(located, await self._footer(located.object), offset)

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
        first, last, at = None, None, item.offset
        try:
            for piece, block in self._in_memory(item, end):
                first, last = first or piece, piece
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
            if first is not None and last is not None:
                _FROM_HISTORY.value += 1
                self.note_read(item.offset, first, last)
        return (found, True) if found else None

    def is_coming(self, item: FetchRange, end: int) -> bool:
        """Whether the first row group that `from_memory` lacks is being loaded, so that a read may answer without it, for `PASS_S`."""
        for piece in self._known_pieces(item, end):
            if self.peek(piece) is None:
                self._note_wait(piece)
                return self._blocks.is_loading(piece.block) and self._may_pass(piece.block)
        return False

    def _may_pass(self, block: BlockKey) -> bool:
        now = asyncio.get_running_loop().time()
        since = self._passed.setdefault(block, now)
        if PASS_S <= now - since < 2 * PASS_S:
            return False
        if now - since >= 2 * PASS_S:
            self._passed[block] = now
        if len(self._passed) > PASSED_COUNT_MAX:
            self._passed.popitem(last=False)
        return True

    def _in_memory(self, item: FetchRange, end: int) -> "Iterator[tuple[BlockPiece, Block]]":
        """Yield the pieces from an offset on with their blocks, until one is not in memory."""
        for piece in self._known_pieces(item, end):
            block = self.peek(piece)
            if block is None:
                return
            yield piece, block

    def _known_pieces(self, item: FetchRange, end: int) -> Iterator[BlockPiece]:
        """Yield the pieces from an offset on, until a footer is not in memory or a segment goes beyond `end`."""
        for located in self._segments.find(item.partition, item.offset, limit=self._slices_per_lookup):
            footer = self._footers.peek(located.object.key) if located.kind is ObjectKind.PARQUET else None
            if footer is None or located.slice.end_offset > end:
                return
            yield from blocks_of(located, footer, item.offset)

    # -- blocks --------------------------------------------------------------------------------------------------

    def peek(self, piece: BlockPiece) -> "Block | None":
        """Return the piece's block if it is cached, else None; never waits."""
        return self._blocks.peek(piece.block)

    async def block(self, piece: BlockPiece) -> "Block":
        """Return the piece's block; reads and decodes the row group if needed. Raises `Moved`, `Corrupt`, `Unavailable`."""
        if (block := self.peek(piece)) is not None:
            return block
        self._note_wait(piece)
        ref, footer, group = piece.object, piece.footer, piece.group
        try:
            return await self._blocks.get(
                piece.block, _load_bytes(footer, group), partial(self._read, ref, footer, group)
            )
        except NotFound as error:
            raise Moved(f"data file {ref.key}") from error

    async def _read(self, ref: ObjectRef, footer: "Footer", group: int) -> "Block":
        loop = asyncio.get_running_loop()
        started = loop.time()
        decoding = partial(self._decode, (ref.key, group), 2 * footer.groups[group].size_bytes)
        try:
            block = await self._files.block(ref, footer, group, decoding)
        except Unavailable:
            self._ahead.note_failure((ref.key, group))
            raise
        self._passed.pop((ref.key, group), None)
        metrics.HISTORY_DECODE_SECONDS.observe(loop.time() - started)
        return block

    @asynccontextmanager
    async def _decode(self, block: BlockKey, memory_bytes: int) -> AsyncIterator[None]:
        """Wait for room to decode a row group that has been read from the store."""
        self._decoded.add(block)
        try:
            async with self._decoding.hold(memory_bytes):
                yield
        finally:
            self._decoded.discard(block)

    def _note_wait(self, piece: BlockPiece) -> None:
        self._ahead.note_wait(piece, is_for_store=piece.block not in self._decoded)

    def note_read(self, offset: int, first: BlockPiece, last: BlockPiece) -> None:
        """A read from `offset` on has got records from the row groups of `first` to `last`; read ahead what its reader needs next."""
        self._ahead.note_read(offset, first, last, partial(self._following, last))

    def _following(self, piece: BlockPiece) -> Iterator[NextBlock]:
        """Yield the row groups after `piece`, as far as the segment index knows them."""
        ref, footer, groups, end = piece.object, piece.footer, piece.rest, piece.end
        index = partition_index(piece.slice.partition)
        while True:
            for group in groups:
                block_end = end if group == groups[-1] else footer.offset_end(group, index, end)
                size_bytes = footer.groups[group].size_bytes
                load = partial(self._read, ref, footer, group)
                yield NextBlock((ref.key, group), block_end, size_bytes, _load_bytes(footer, group), load)
            following = self._segments.find(piece.slice.partition, end, limit=1)
            if not following or following[0].kind is not ObjectKind.PARQUET:
                return
            ref, next_end = following[0].object, following[0].slice.end_offset
            known = self._footers.peek(ref.key)
            if known is None:  # load the footer now; a later read loads its row groups
                self._footers.read_ahead(ref.key, self._settings.files.footer_bytes, partial(self._files.footer, ref))
                return
            footer, groups = known, known.holding(index, end, next_end)
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


def _load_bytes(footer: "Footer", group: int) -> int:
    found = footer.groups[group]
    return found.end - found.start
