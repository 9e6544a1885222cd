"""Which offsets a view adds to its table, and which pieces it keeps."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bearlake.live.tail import Piece, choose, joined, tail_of
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_key

STREAM = 7


def key(index: int) -> PartitionKey:
    """The key of a partition."""
    return partition_key(STREAM, index)


def piece(*ranges: tuple[int, int, int], made_ms: int = 100) -> Piece:
    """A piece with these (partition index, start, end)."""
    parts = tuple(OffsetRange(key(index), start, end) for index, start, end in ranges)
    return Piece(ranges=parts, files=(), columns=None, made_ms=made_ms)


def offsets(ranges: list[OffsetRange]) -> list[tuple[PartitionKey, int]]:
    """Every offset, as often as the ranges name it, in order."""
    return sorted((partition, offset) for partition, start, end in ranges for offset in range(start, end))


def test_the_tail_begins_where_the_table_ends_and_ends_at_the_last_stable_offset() -> None:
    bounds = {key(0): PartitionBounds(0, 9, 7), key(1): PartitionBounds(0, 4, 4), key(2): PartitionBounds(5, 8, 8)}

    assert tail_of({0: 3, 1: 4, 2: 2}, {}, bounds) == [OffsetRange(key(0), 3, 7), OffsetRange(key(2), 5, 8)]


def test_offsets_that_were_compacted_without_a_table_are_not_in_the_tail() -> None:
    assert tail_of({}, {key(0): 6}, {key(0): PartitionBounds(0, 9, 9)}) == [OffsetRange(key(0), 6, 9)]


def test_a_piece_that_compaction_has_reached_into_is_dropped() -> None:
    tail = [OffsetRange(key(0), 5, 30)]

    kept, missing = choose([piece((0, 0, 10)), piece((0, 10, 30))], tail, made_after_ms=0)

    assert kept == [piece((0, 10, 30))]
    assert missing == [OffsetRange(key(0), 5, 10)]


def test_an_old_piece_is_written_again() -> None:
    tail = [OffsetRange(key(0), 0, 30)]

    kept, missing = choose([piece((0, 0, 29), made_ms=100)], tail, made_after_ms=100)

    assert (kept, missing) == ([], tail)


def test_nothing_is_written_when_nothing_is_new() -> None:
    assert choose([piece((0, 0, 2)), piece((0, 2, 3))], [OffsetRange(key(0), 0, 3)], made_after_ms=0)[1] == []


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=30), st.data())
def test_each_offset_of_the_tail_is_in_one_piece_and_pieces_stay_few(
    growth: list[list[int]], data: st.DataObject
) -> None:
    """Readers come again and again while the log grows and compaction moves on: a model of what they see."""
    starts, ends = [0, 0, 0], [0, 0, 0]
    pieces: list[Piece] = []
    for grown in growth:
        ends = [end + more for end, more in zip(ends, grown, strict=True)]
        if data.draw(st.booleans()):
            starts = [data.draw(st.integers(start, end)) for start, end in zip(starts, ends, strict=True)]
        tail = [OffsetRange(key(i), starts[i], ends[i]) for i in range(3) if starts[i] < ends[i]]

        kept, missing = choose(pieces, tail, made_after_ms=0)

        named = [range_ for found in kept for range_ in found.ranges] + missing
        assert offsets(named) == offsets(tail)
        pieces = [*kept, *([Piece(ranges=tuple(missing), files=(), columns=None, made_ms=1)] if missing else [])]
        assert len(pieces) <= 2 + sum(range_.end - range_.start for range_ in tail).bit_length()


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 30))))
def test_joined_ranges_have_the_same_offsets(wanted: set[tuple[int, int]]) -> None:
    single = [OffsetRange(key(index), offset, offset + 1) for index, offset in wanted]

    found = joined(single)

    assert offsets(found) == offsets(single)
    assert all(left.partition != right.partition or left.end < right.start for left, right in pairwise(found))
