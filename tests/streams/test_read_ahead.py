"""What is read ahead: for readers in order, as deep as they wait, within a room that they share, until they leave."""

import asyncio
from array import array
from collections.abc import Iterator
from typing import cast

from bearlake.cache.values import ValueCache
from bearlake.errors import Unavailable
from bearlake.metadata.model import ObjectKind, ObjectRef, PartitionKey, Slice, partition_key
from bearlake.streams.history_pieces import BlockKey, BlockPiece
from bearlake.streams.read_ahead import PAUSE_S, READERS_PER_PARTITION, NextBlock, ReadAhead
from bearlake.table.blocks import Block
from bearlake.table.footer import Footer, RowGroup
from simulator.loop import virtual_time

ROWS = 10
"""Offsets of a row group."""
SIZE = 100
"""Bytes of a row group."""
GROUP_COUNT = 50
IDLE_S = 2.0
"""Time (s) after which a reader has left."""


class Files:
    """A data file per partition, whose row groups the readers of the test read."""

    def __init__(self, *, count: int = 1, count_max: int = 8, ahead: int = 10, cached: int = 100) -> None:
        """`ahead` and `cached`: row groups for which there is room."""
        self.latency_s = 0.1
        """Time (s) of a load."""
        self.is_store_slow = True
        """Whether the loads take their time in the store, or else in the decoder."""
        self.is_failing = False
        self.begun: list[BlockKey] = []
        self.ended: list[BlockKey] = []
        self.cache: ValueCache[BlockKey, Block] = ValueCache(
            bytes_max=cached * SIZE,
            loading_bytes_max=GROUP_COUNT * SIZE,
            ahead_bytes_max=ahead * SIZE,
            size_of=lambda block: len(cast("bytes", block)),
        )
        self.read_ahead = ReadAhead(
            self.cache,
            count=count,
            count_max=count_max,
            bytes_max=ahead * SIZE,
            cache_bytes_max=cached * SIZE,
            reader_count_max=4_096,
            idle_s=IDLE_S,
            now=lambda: asyncio.get_running_loop().time(),
        )

    async def read(self, offset: int, partition: int = 0, count: int = 1) -> None:
        """Read `count` row groups from `offset` on, as `Reader.fetch` does."""
        pieces = [piece_of(partition, offset // ROWS + at) for at in range(count)]
        for piece in pieces:
            if self.cache.peek(piece.block) is None:
                self.read_ahead.note_wait(piece, is_for_store=self.is_store_slow)
                await self.cache.get(piece.block, SIZE, lambda piece=piece: self._load(piece.block))  # type: ignore[misc]
        self.read_ahead.note_read(offset, pieces[0], pieces[-1], lambda: self._following(pieces[-1]))

    async def read_all(self, groups: range, partition: int = 0, *, per_group: int = 2, pause_s: float = 0.0) -> None:
        """Read row groups one after the other, each with several reads."""
        for offset in range(groups.start * ROWS, groups.stop * ROWS, ROWS // per_group):
            await self.read(offset, partition)
            await asyncio.sleep(pause_s)

    def ahead(self, partition: int = 0) -> list[int]:
        """The row groups of a partition that are loaded, or being loaded, and that no reader has read."""
        keys = self.cache._ahead  # noqa: SLF001 - nothing else tells which values they are
        return sorted(group for key, group in keys if key == file_of(partition))

    def _following(self, piece: BlockPiece) -> Iterator[NextBlock]:
        for group in range(piece.group + 1, GROUP_COUNT):
            key = piece.object.key, group
            yield NextBlock(key, (group + 1) * ROWS, SIZE, SIZE, lambda key=key: self._load(key))  # type: ignore[misc]

    async def _load(self, key: BlockKey) -> Block:
        self.begun.append(key)
        await asyncio.sleep(self.latency_s)
        if self.is_failing:
            self.read_ahead.note_failure(key)
            raise Unavailable("the store does not answer")
        self.ended.append(key)
        return cast("Block", b"x" * SIZE)


def file_of(partition: int) -> str:
    return f"{partition}.parquet"


def piece_of(partition: int, group: int) -> BlockPiece:
    key: PartitionKey = partition_key(1, partition)
    groups = [
        RowGroup(at * ROWS, (at + 1) * ROWS, partition, partition, at * ROWS, (at + 1) * ROWS - 1, 0, 0, SIZE, SIZE)
        for at in range(GROUP_COUNT)
    ]
    footer = Footer(groups=groups, metadata=None, memory_bytes=0, crcs=array("q"))
    rest = range(group + 1, GROUP_COUNT)
    about = Slice(key, group * ROWS, ROWS, 0, SIZE, 0)
    return BlockPiece(
        about, ObjectRef(file_of(partition), 1, ObjectKind.PARQUET), footer, group, GROUP_COUNT * ROWS, rest
    )


@virtual_time
async def test_a_read_at_a_random_offset_loads_nothing_ahead() -> None:
    files = Files()

    for offset in (0, 400, 100, 307, 12):
        await files.read(offset)
    await asyncio.sleep(1)

    assert files.begun == [(file_of(0), group) for group in (0, 40, 10, 30, 1)]


@virtual_time
async def test_the_second_read_in_order_loads_the_next_row_group() -> None:
    files = Files()

    await files.read(0)
    first = files.ahead()
    await files.read(5)

    assert (first, files.ahead()) == ([], [1])


@virtual_time
async def test_reads_of_several_row_groups_are_in_order_as_well() -> None:
    files = Files()

    await files.read(0, count=3)
    await files.read(30, count=3)

    assert files.ahead() == [6]


@virtual_time
async def test_a_reader_that_never_waits_has_one_row_group_ahead() -> None:
    files = Files()

    await files.read_all(range(10), pause_s=0.9)

    assert files.ahead() == [10]
    assert len(files.begun) == 11


@virtual_time
async def test_a_reader_that_waits_has_more_row_groups_ahead_each_time() -> None:
    files = Files(count_max=8)

    await files.read_all(range(30))
    loop = asyncio.get_running_loop()
    before = loop.time()
    await files.read_all(range(30, 38))

    assert loop.time() - before <= 2 * files.latency_s, "eight row groups are loaded at once"
    assert files.ahead() == list(range(38, 46))
    assert len(files.begun) == len(set(files.begun)) == 46


@virtual_time
async def test_a_reader_that_waits_for_the_decoder_has_no_more_row_groups_ahead() -> None:
    files = Files()
    files.is_store_slow = False

    await files.read_all(range(10))

    assert files.ahead() == [10]


@virtual_time
async def test_readers_share_the_room_and_evict_nothing_unread() -> None:
    files = Files(ahead=8, cached=16)

    async with asyncio.TaskGroup() as group:
        for partition in range(4):
            group.create_task(files.read_all(range(40), partition))

    assert [len(files.ahead(partition)) for partition in range(4)] == [2] * 4
    assert len(files.begun) == len(set(files.begun)), "a row group was loaded twice"


@virtual_time
async def test_readers_whose_row_groups_fill_the_cache_have_nothing_ahead() -> None:
    files = Files(ahead=8, cached=4)

    async with asyncio.TaskGroup() as group:
        for partition in range(4):
            group.create_task(files.read_all(range(10), partition, pause_s=0.01))

    assert len(files.begun) == len(set(files.begun)) == 40


@virtual_time
async def test_what_is_ahead_of_readers_that_left_makes_way_for_others() -> None:
    files = Files(ahead=4, cached=100)
    for partition in range(4):
        await files.read_all(range(1), partition)
    await asyncio.sleep(IDLE_S)

    await files.read_all(range(1), 9)

    assert [files.ahead(partition) for partition in (0, 1, 2, 3, 9)] == [[], [], [], [], [1]]


@virtual_time
async def test_loads_for_a_reader_that_left_are_cancelled_unless_a_read_waits_for_them() -> None:
    files = Files()
    for partition in range(3):
        await files.read(0, partition)
    files.latency_s = 10 * IDLE_S
    for partition in range(2):
        await files.read(5, partition)
    waiting = asyncio.create_task(files.read(10, partition=1))
    await asyncio.sleep(IDLE_S)

    await files.read(1, partition=2)
    await waiting

    assert files.ended[3:] == [(file_of(1), 1)]
    assert files.begun[3:5] == [(file_of(0), 1), (file_of(1), 1)]


@virtual_time
async def test_a_store_that_fails_is_left_alone_for_a_while() -> None:
    files = Files()
    await files.read(0)
    files.read_ahead.note_failure((file_of(0), 0))

    await files.read(2)
    paused = files.ahead()
    await asyncio.sleep(PAUSE_S)
    await files.read(4)

    assert (paused, files.ahead()) == ([], [1])


@virtual_time
async def test_row_groups_that_could_not_be_read_ahead_are_read_ahead_again() -> None:
    files = Files(count=8)
    files.is_failing = True
    first = piece_of(0, 0)
    for offset in (0, 1):
        files.read_ahead.note_read(offset, first, first, lambda: files._following(first))  # noqa: SLF001 - as `read` does
    await asyncio.sleep(PAUSE_S + files.latency_s)
    files.is_failing = False

    await files.read(2)

    assert files.ahead() == list(range(1, 9))


@virtual_time
async def test_the_readers_of_a_partition_are_bounded_and_those_in_order_stay() -> None:
    files = Files()
    files.latency_s = 0.01
    await files.read(0)

    for number in range(3 * READERS_PER_PARTITION):
        await files.read(400 - ROWS * number)
        await files.read(1 + number // 3)

    assert files.read_ahead.reader_count == READERS_PER_PARTITION
    assert files.ahead() == [1]


@virtual_time
async def test_random_reads_take_no_room_from_a_reader_in_order() -> None:
    files = Files(ahead=4, cached=8)
    for partition in range(1, 20):
        await files.read(100, partition)

    await files.read(0)
    await files.read(5)

    assert files.ahead() == [1]


@virtual_time
async def test_a_count_of_zero_reads_nothing_ahead() -> None:
    files = Files(count=0)

    await files.read_all(range(5))

    assert (len(files.begun), files.read_ahead.reader_count) == (5, 0)


@virtual_time
async def test_a_reader_that_waits_longer_than_idle_readers_may_keeps_what_is_ahead_of_it() -> None:
    files = Files()
    await files.read_all(range(3))
    await files.read(0, partition=1)
    files.latency_s = 3 * IDLE_S
    waiting = asyncio.create_task(files.read_all(range(3, 20)))
    await asyncio.sleep(2 * IDLE_S)

    await files.read(1, partition=1)
    await waiting

    assert len(files.begun) == len(set(files.begun))


@virtual_time
async def test_a_slow_reader_gives_back_what_exceeds_its_part_when_another_reader_comes() -> None:
    files = Files(ahead=8)
    await files.read_all(range(10))
    await asyncio.sleep(IDLE_S / 2)
    before = len(files.ahead())

    await files.read_all(range(1), partition=1)

    assert (before, len(files.ahead()), files.ahead(1)) == (8, 4, [1])


@virtual_time
async def test_a_reader_that_waits_hides_no_reader_that_left() -> None:
    files = Files()
    await files.read_all(range(2))
    files.read_ahead.note_wait(piece_of(0, 2), is_for_store=True)
    await files.read_all(range(1), partition=1)
    await asyncio.sleep(IDLE_S)

    await files.read(0, partition=2)

    assert (files.ahead(0), files.ahead(1)) == ([2, 3], [])


@virtual_time
async def test_a_reader_goes_on_behind_offsets_without_rows_at_the_end_of_a_segment() -> None:
    files = Files()
    last = piece_of(0, GROUP_COUNT - 1)._replace(end=GROUP_COUNT * ROWS + 7)
    for offset in (GROUP_COUNT * ROWS - 5, GROUP_COUNT * ROWS - 4):
        files.read_ahead.note_read(offset, last, last, lambda: ())

    following = piece_of(1, 0)
    piece = last._replace(
        slice=following.slice._replace(partition=last.slice.partition),
        object=following.object,
        group=0,
        footer=following.footer,
        rest=range(1, 3),
    )
    files.read_ahead.note_read(last.end, piece, piece, lambda: ())

    assert files.read_ahead.reader_count == 1


@virtual_time
async def test_row_groups_ahead_of_two_readers_are_given_up_with_the_second_one() -> None:
    files = Files(count=2)
    await files.read_all(range(1))
    await files.read(20)
    await asyncio.sleep(1)
    await files.read(21)
    await files.read(6)
    known = [files.cache.knows((file_of(0), group)) for group in range(1, 5)]
    await asyncio.sleep(IDLE_S)

    await files.read(0, partition=1)

    assert known == [True] * 4
    assert files.read_ahead.reader_count == 1
    assert files.ahead() == []
    assert not files.read_ahead._wanted  # noqa: SLF001 - a leak that nothing else shows


@virtual_time
async def test_slow_readers_leave_the_room_to_one_that_needs_it() -> None:
    files = Files(ahead=8, cached=16)
    for at in range(4):
        for partition in range(1, 7):
            await files.read(at, partition)
        await asyncio.sleep(IDLE_S / 2)
    slow = [files.ahead(partition) for partition in range(1, 7)]
    await files.read_all(range(10))

    assert slow == [[]] * 6
    assert len(files.ahead()) == 8


@virtual_time
async def test_a_slow_reader_that_becomes_fast_has_row_groups_ahead_again() -> None:
    files = Files()
    await files.read_all(range(2), pause_s=0.9 * IDLE_S)
    slow = files.ahead()

    await files.read_all(range(2, 4))

    assert (slow, files.ahead()) == ([], [4])


@virtual_time
async def test_a_reader_of_a_slow_store_is_not_slow_itself() -> None:
    files = Files(count_max=1)
    files.latency_s = 2 * IDLE_S

    await files.read_all(range(5), pause_s=0.7 * IDLE_S)

    assert files.ahead() == [5]
    assert len(files.begun) == len(set(files.begun)) == 6


@virtual_time
async def test_a_reader_has_nothing_ahead_that_it_has_read() -> None:
    files = Files(count=2)
    await files.read(0, count=3)

    await files.read(1)

    assert files.ahead() == []
    await files.read(30)
    assert files.ahead() == [4, 5, 6, 7]
