"""Reads row groups ahead of readers that read a partition in order. The only place that decides what is read ahead, and how much.

    a read goes on where one has been ──> its reader is in order ──> the next row groups are loaded, up to the reader's depth
    a reader waits for the store      ──> its depth doubles, up to `read_ahead_count_max`

- A read at a new place loads nothing ahead: most readers at random offsets read once.
- The store decides the depth: row groups of a local disk are there in time with a depth of one, those of a remote store are not.
- Readers in order share the room for row groups that nobody has read yet. It is at most `read_ahead_bytes_max`, and at most what the row
  groups that they are reading leave of the cache, so that nothing is evicted, and decoded again, before it is read.
- A reader has no name here: offsets tell readers apart, and readers near each other count as one. A reader that has not read for
  `idle_s` has left, and what is loaded or being loaded for it alone makes way.
- A reader that takes longer than `idle_s` for a row group is slow: it has nothing ahead, and leaves the room to those that need it. Waiting
  for its next row group takes a small part of its time.
- A store that does not answer is left alone for `PAUSE_S`.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from bearlake.cache.values import ValueCache
from bearlake.metadata.model import PartitionKey
from bearlake.streams.history_pieces import BlockKey, BlockPiece

if TYPE_CHECKING:
    from bearlake.table.blocks import Block

WAIT_S = 30.0
"""Time (s) after which a reader has left while its read waits for a row group: the store is slow, not the reader."""
SLOW_WAITS = 10
"""A reader is slow only if it takes so many times as long for a row group as its last wait for one: with a store that takes seconds, it
would wait for a large part of its time."""
PAUSE_S = 1.0
"""Time (s) without read-ahead after a failed load."""
READERS_PER_PARTITION = 8
"""Readers of one partition that are known at once; a further one replaces one that is not in order, or has the least ahead."""


class NextBlock(NamedTuple):
    """A row group that a reader needs after others. `end`: where its offsets end, about; `load_bytes`: the memory that its load takes."""

    key: BlockKey
    end: int
    size_bytes: int
    load_bytes: int
    load: "Callable[[], Coroutine[None, None, Block]]"


@dataclass(slots=True, eq=False)
class _Reader:
    """Where a reader is, and what is loaded for it."""

    partition: PartitionKey
    block: BlockKey
    """The row group in which its last read began."""
    size_bytes: int
    offset: int
    """Where its last read began."""
    end: int
    """The end of the row group in which its last read ended."""
    idle_from_s: float
    """When the reader has left unless it reads again, or still waits (s)."""
    waits_until_s: float = -WAIT_S
    """Until when a read of it may wait for a row group (s)."""
    depth: int = 0
    """Row groups to have ahead; 0: the reader has not shown yet that it reads in order."""
    ahead: dict[BlockKey, NextBlock] = field(default_factory=dict)
    """Row groups from `end` on that are loaded or being loaded."""
    late_from: int = -1
    """Where the last row group began for which the reader had to wait for the store."""
    since_s: float = 0.0
    """When it began to read the row group at which it is, later by the time of its waits in it (s)."""
    waits_from_s: float | None = None
    """When it began to wait for the row group for which it waits (s)."""
    wait_s: float = 0.0
    """How long it waited for a row group, the last time."""
    is_slow: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether the reader is in order, and needs a part of the room."""
        return self.depth > 0 and not self.is_slow

    @property
    def horizon(self) -> int:
        """A read in order begins here at the latest."""
        return max([self.end, *(block.end for block in self.ahead.values())])


_offset = attrgetter("offset")
_end = attrgetter("end")


class ReadAhead:
    """The readers of one server's history. Use it from the event loop's thread only."""

    def __init__(
        self,
        blocks: "ValueCache[BlockKey, Block]",
        *,
        count: int,
        count_max: int,
        bytes_max: int,
        cache_bytes_max: int,
        reader_count_max: int,
        idle_s: float,
        now: Callable[[], float],
    ) -> None:
        """`count` and `count_max`: the least and the largest depth of readers in order; 0: read nothing ahead.

        `bytes_max` and `cache_bytes_max` (bytes): what may be ahead, and what `blocks` keeps. `reader_count_max`: readers that are known at
        once; a further one replaces the one that has not read for longest. `idle_s`: the time (s) after which a reader that does not read
        has left. `now`: a monotonic clock (s).
        """
        self._blocks = blocks
        self._count = count
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._cache_bytes_max = cache_bytes_max
        self._reader_count_max = reader_count_max
        self._idle_s = idle_s
        self._now = now
        self._readers: OrderedDict[_Reader, None] = OrderedDict()
        """The reader that has not read for longest first."""
        self._of: dict[PartitionKey, list[_Reader]] = {}
        self._wanted: Counter[BlockKey] = Counter()
        """Of how many readers a row group is ahead."""
        self._holders: dict[_Reader, None] = {}
        """The readers that have row groups ahead."""
        self._counted = 0
        """Readers in order that are not slow: they share the room."""
        self._in_order_bytes = 0
        """Bytes of the row groups at which the readers in order are."""
        self._paused_until_s = -PAUSE_S

    @property
    def reader_count(self) -> int:
        """Readers that are known."""
        return len(self._readers)

    def note_read(
        self, offset: int, first: BlockPiece, last: BlockPiece, following: Callable[[], Iterable[NextBlock]]
    ) -> None:
        """A read from `offset` on has got its records from the row groups of `first` to `last`.

        `following` yields the row groups after `last`, in order.
        """
        if self._count == 0:
            return
        now = self._now()
        self._forget_idle(now)
        partition = last.slice.partition
        reader = self._reader_at(partition, offset) or self._begun(partition, offset, first, now)
        if offset > reader.offset and reader.depth == 0:
            reader.depth = self._count
            self._in_order_bytes += reader.size_bytes
            self._count_in(reader)
        reader.offset, reader.waits_until_s = offset, now
        self._touch(reader, now)
        if first.block != reader.block:
            self._note_pace(reader, now)
        else:
            self._note_time(reader, now)
        if first.block != reader.block or last.next_offset > reader.end:
            self._move(reader, first, last)
        if reader.is_counted and len(reader.ahead) < reader.depth and now >= self._paused_until_s:
            self._load(reader, following())

    def note_wait(self, piece: BlockPiece, *, is_for_store: bool) -> None:
        """A read waits for a row group, which the store has not sent yet, or which is being decoded.

        If the reader reads in order and waits for the store, too few row groups were ahead. Decoding is bound by the processor.
        """
        start = piece.slice.base_offset
        reader = self._reader_at(piece.slice.partition, start)
        if reader is None:
            return
        now = self._now()
        reader.waits_until_s = now + WAIT_S
        if reader.waits_from_s is None:
            reader.waits_from_s = now
        self._touch(reader, now)
        if is_for_store and not reader.is_slow and reader.late_from < start:
            reader.late_from = start
            reader.depth = min(2 * reader.depth, max(self._count, self._count_max))

    def note_failure(self, key: BlockKey) -> None:
        """The store did not answer: load nothing ahead for a while. The row group is not ahead of its readers any more."""
        self._paused_until_s = self._now() + PAUSE_S
        if self._wanted.pop(key, 0):
            for reader in list(self._holders):
                reader.ahead.pop(key, None)
                self._note_held(reader)

    # -- readers -------------------------------------------------------------------------------------------------

    def _reader_at(self, partition: PartitionKey, offset: int) -> _Reader | None:
        """Return the reader whose next read may begin at the offset; of several, the one that is nearest."""
        found = [reader for reader in self._of.get(partition, ()) if reader.offset <= offset <= reader.horizon]
        return max(found, key=_offset, default=None)

    def _begun(self, partition: PartitionKey, offset: int, first: BlockPiece, now: float) -> _Reader:
        readers = self._of.get(partition, [])
        if len(readers) >= READERS_PER_PARTITION:
            self._forget(min(readers, key=lambda known: (known.depth, known.idle_from_s)))
        reader = _Reader(partition, first.block, _size_bytes(first), offset, offset, now, since_s=now)
        self._of.setdefault(partition, []).append(reader)
        self._readers[reader] = None
        return reader

    def _move(self, reader: _Reader, first: BlockPiece, last: BlockPiece) -> None:
        """The reader reads from `first` to `last` now."""
        if first.block != reader.block:
            self._blocks.done_with(reader.block)  # readers move forward: what they have read is the next to evict
            before, reader.block, reader.size_bytes = reader.size_bytes, first.block, _size_bytes(first)
            if reader.depth:
                self._in_order_bytes += reader.size_bytes - before
        reader.end = last.next_offset
        for key, block in list(reader.ahead.items()):
            if block.end <= reader.end:
                self._give_up(reader, key)

    def _note_pace(self, reader: _Reader, now: float) -> None:
        """The reader has read a row group, and begins to read another one."""
        end_s = now if reader.waits_from_s is None else reader.waits_from_s
        self._set_slow(reader, is_slow=self._is_long(reader, end_s - reader.since_s))
        if reader.waits_from_s is not None:
            reader.wait_s = now - reader.waits_from_s
        reader.since_s, reader.waits_from_s = now, None

    def _note_time(self, reader: _Reader, now: float) -> None:
        """The reader still reads its row group."""
        if reader.waits_from_s is not None:
            reader.since_s += now - reader.waits_from_s
            reader.waits_from_s = None
        if self._is_long(reader, now - reader.since_s):
            self._set_slow(reader, is_slow=True)

    def _is_long(self, reader: _Reader, time_s: float) -> bool:
        return time_s > max(self._idle_s, SLOW_WAITS * reader.wait_s)

    def _set_slow(self, reader: _Reader, *, is_slow: bool) -> None:
        if reader.depth == 0 or reader.is_slow == is_slow:
            return
        reader.is_slow = is_slow
        if not is_slow:
            self._count_in(reader)
            return
        self._counted -= 1
        for key in list(reader.ahead):
            self._give_up(reader, key)

    def _count_in(self, reader: _Reader) -> None:
        """The reader needs a part of the room."""
        if reader.is_counted:
            self._counted += 1
            self._share_room()

    def _touch(self, reader: _Reader, now: float) -> None:
        """The reader is there: it reads or waits."""
        reader.idle_from_s = now + self._idle_s
        self._readers.move_to_end(reader)

    def _forget_idle(self, now: float) -> None:
        while self._readers:
            reader = next(iter(self._readers))
            is_full = len(self._readers) >= self._reader_count_max
            if reader.idle_from_s > now and not is_full:
                return
            if reader.waits_until_s > now and not is_full:
                self._touch(reader, now)  # so that it hides no readers behind it that have left
            else:
                self._forget(reader)

    def _forget(self, reader: _Reader) -> None:
        del self._readers[reader]
        readers = self._of[reader.partition]
        readers.remove(reader)
        if not readers:
            del self._of[reader.partition]
        if reader.depth:
            self._in_order_bytes -= reader.size_bytes
        self._counted -= reader.is_counted
        for key in list(reader.ahead):
            self._give_up(reader, key)

    def _give_up(self, reader: _Reader, key: BlockKey) -> None:
        """The reader does not need a row group any more, or uses it; readers of other partitions may share it."""
        del reader.ahead[key]
        self._note_held(reader)
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key]
            self._blocks.forget_ahead(key)

    def _note_held(self, reader: _Reader) -> None:
        if not reader.ahead:
            self._holders.pop(reader, None)

    # -- loads ---------------------------------------------------------------------------------------------------

    def _load(self, reader: _Reader, following: Iterable[NextBlock]) -> None:
        """Load the row groups after the reader's, as far as its depth and its part of the room allow."""
        held = sum(block.size_bytes for block in reader.ahead.values())
        for block in islice(following, reader.depth):
            if block.key not in reader.ahead and block.end > reader.end:
                if not self._has_room(held, block.size_bytes):
                    return
                if not self._blocks.read_ahead(block.key, block.load_bytes, block.load, size_bytes=block.size_bytes):
                    return
                reader.ahead[block.key] = block
                self._holders[reader] = None
                self._wanted[block.key] += 1
                held += block.size_bytes

    def _has_room(self, held: int, size_bytes: int) -> bool:
        """Whether a reader that has `held` bytes ahead may have more: within its part of the room, but one row group if there is room."""
        room = self._room()
        part = room // self._counted
        return held + size_bytes <= (part if held else room - self._blocks.ahead_bytes)

    def _room(self) -> int:
        return min(self._bytes_max, self._cache_bytes_max - self._in_order_bytes)

    def _share_room(self) -> None:
        """Give up what readers have beyond their parts, the farthest first: a slow reader would keep it for long."""
        part = self._room() // self._counted
        for reader in list(self._holders):
            held = sum(block.size_bytes for block in reader.ahead.values())
            while held > part and len(reader.ahead) > 1:
                farthest = max(reader.ahead.values(), key=_end)
                held -= farthest.size_bytes
                self._give_up(reader, farthest.key)


def _size_bytes(piece: BlockPiece) -> int:
    return piece.footer.groups[piece.group].size_bytes
