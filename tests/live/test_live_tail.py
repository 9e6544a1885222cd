"""Which offsets a view adds to its table, and which pieces it keeps."""

from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from bearlake.live.slices import portions
from bearlake.live.tail import Piece, choose, joined, tail_of
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import LocatedSlice, PartitionBounds, PartitionKey, Slice, partition_key

STREAM = 7
NOW_MS = 1_000


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

    kept, missing = choose([piece((0, 0, 10)), piece((0, 10, 30))], tail, made_after_ms=0, now_ms=NOW_MS)

    assert kept == [piece((0, 10, 30))]
    assert missing == [OffsetRange(key(0), 5, 10)]


def test_a_piece_of_the_future_is_written_again() -> None:
    """The clock was set back, so nobody knows how old the piece is; it would be used until the sweep has deleted it."""
    tail = [OffsetRange(key(0), 0, 30)]

    kept, missing = choose([piece((0, 0, 30), made_ms=NOW_MS + 1)], tail, made_after_ms=0, now_ms=NOW_MS)

    assert (kept, missing) == ([], tail)


def test_an_old_piece_is_written_again() -> None:
    tail = [OffsetRange(key(0), 0, 30)]

    kept, missing = choose([piece((0, 0, 29), made_ms=100)], tail, made_after_ms=100, now_ms=NOW_MS)

    assert (kept, missing) == ([], tail)


def test_nothing_is_written_when_nothing_is_new() -> None:
    assert (
        choose([piece((0, 0, 2)), piece((0, 2, 3))], [OffsetRange(key(0), 0, 3)], made_after_ms=0, now_ms=NOW_MS)[1]
        == []
    )


def test_a_full_piece_is_not_written_again_with_what_is_new() -> None:
    full = replace(piece((0, 0, 1)), is_full=True)

    assert choose([full, piece((0, 1, 2))], [OffsetRange(key(0), 0, 9)], made_after_ms=0, now_ms=NOW_MS) == (
        [full],
        [OffsetRange(key(0), 1, 9)],
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 9))), st.integers(0, 2), st.integers(1, 30)
)
def test_portions_of_a_tail_have_each_offset_and_slice_once(
    sizes: list[tuple[int, int, int]], trimmed: int, bytes_max: int
) -> None:
    """Slices of (partition, records, bytes). A range may begin inside of a slice, and the last offsets may have no slice any more."""
    slices, ends = list[LocatedSlice](), [0, 0, 0]
    for index, count, size in sorted(sizes, key=itemgetter(0)):
        slices.append(LocatedSlice(Slice(key(index), ends[index], count, 0, size, 0), "key", size))
        ends[index] += count
    ranges = [OffsetRange(key(index), min(trimmed, end), end + 2) for index, end in enumerate(ends)]

    found = list(portions(ranges, slices, bytes_max))

    assert offsets([range_ for part, _ in found for range_ in part]) == offsets(ranges)
    assert [located for _, group in found for located in group] == slices
    for part, group in found:
        assert len(group) <= 1 or sum(located.slice.length for located in group) <= bytes_max
        named = set(offsets(part))
        for located in group:
            piece_ = located.slice
            inside = offsets([OffsetRange(piece_.partition, max(trimmed, piece_.base_offset), piece_.end_offset)])
            assert named.issuperset(inside)


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

        kept, missing = choose(pieces, tail, made_after_ms=0, now_ms=NOW_MS)

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
