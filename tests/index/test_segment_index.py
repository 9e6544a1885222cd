"""The segment index: locations of older offsets from the store, while they are valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.index.segments import SegmentIndex
from bearlake.metadata.model import (
    Entry,
    EntryKind,
    Located,
    LocatedSlice,
    ObjectKind,
    PartitionBounds,
    PartitionKey,
    Slice,
)

ONE, OTHER = PartitionKey(1), PartitionKey(2)


def located(partition: PartitionKey, start: int, end: int, *, step: int = 10, position: int = 100) -> Located:
    """An answer of the store: pieces of `step` offsets in `[start, end)`, as of log position `position`."""
    pieces = [
        LocatedSlice(Slice(partition, base, step, 0, 100, 0), f"o{base}-{position}", 100, ObjectKind.PARQUET)
        for base in range(start, end, step)
    ]
    return Located(slices=pieces, bounds=PartitionBounds(0, end, end), position=position)


def bases(index: SegmentIndex, partition: PartitionKey, offset: int, limit: int = 100) -> list[int]:
    return [piece.slice.base_offset for piece in index.find(partition, offset, limit=limit)]


def swap(index: SegmentIndex, position: int, *ranges: tuple[PartitionKey, int, int]) -> None:
    index.apply(Entry(position=position, kind=EntryKind.SWAP, ranges=ranges))


def test_pieces_are_found_from_the_one_that_holds_the_offset() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 20, 60))

    assert bases(index, ONE, 35) == [30, 40, 50]
    assert bases(index, ONE, 20, limit=2) == [20, 30]


@pytest.mark.parametrize("offset", [0, 19, 60, 1_000])
def test_offsets_that_were_not_loaded_are_unknown(offset: int) -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 20, 60))

    assert bases(index, ONE, offset) == []
    assert bases(index, OTHER, 30) == []


def test_pages_that_follow_each_other_become_one_run() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))
    index.learn(ONE, located(ONE, 20, 50))
    index.learn(ONE, located(ONE, 50, 60))

    assert bases(index, ONE, 0) == [0, 10, 20, 30, 40, 50]
    assert index.piece_count == 6


def test_a_page_elsewhere_replaces_the_run() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))
    index.learn(ONE, located(ONE, 50, 60))

    assert (bases(index, ONE, 0), bases(index, ONE, 50), index.piece_count) == ([], [50], 1)


def test_pages_whose_borders_do_not_meet_are_not_joined() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))
    index.learn(ONE, located(ONE, 5, 65, step=20))  # after a swap that was not followed yet

    assert bases(index, ONE, 5) == [5, 25, 45]
    assert bases(index, ONE, 0) == []


def test_a_swap_takes_away_what_it_moved_and_nothing_else() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))
    index.learn(OTHER, located(OTHER, 0, 30))

    swap(index, 101, (ONE, 30, 90), (OTHER, 20, 40))

    assert bases(index, ONE, 0) == [0, 10, 20]
    assert (bases(index, OTHER, 0), index.piece_count) == ([], 3)


def test_an_answer_that_is_older_than_the_last_swap_is_not_learned() -> None:
    index = SegmentIndex(100)
    swap(index, 101, (OTHER, 0, 10))

    index.learn(ONE, located(ONE, 0, 30, position=100))
    is_learned_late = bool(bases(index, ONE, 0))
    index.learn(ONE, located(ONE, 0, 30, position=101))

    assert not is_learned_late
    assert bases(index, ONE, 0) == [0, 10, 20]


def test_an_answer_from_before_entries_that_were_not_followed_is_not_learned() -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))

    index.reset(200)
    index.learn(ONE, located(ONE, 0, 30, position=199))

    assert (bases(index, ONE, 0), index.piece_count) == ([], 0)


@pytest.mark.parametrize(("start", "left"), [(5, [0, 10, 20]), (10, [10, 20]), (29, [20]), (30, []), (99, [])])
def test_a_trim_drops_entries_before_the_start(start: int, left: list[int]) -> None:
    index = SegmentIndex(100)
    index.learn(ONE, located(ONE, 0, 30))

    index.apply(Entry(position=101, kind=EntryKind.TRIM, partition=ONE, start_offset=start))

    assert bases(index, ONE, left[0] if left else 0) == left
    assert index.piece_count == len(left)


def test_the_partitions_used_least_recently_go_first() -> None:
    index = SegmentIndex(6)
    keys = [PartitionKey(number) for number in range(3)]
    for key in keys[:2]:
        index.learn(key, located(key, 0, 30))
    bases(index, keys[0], 0)

    index.learn(keys[2], located(keys[2], 0, 30))

    assert [bool(bases(index, key, 0)) for key in keys] == [True, False, True]
    assert index.piece_count == 6


def test_a_single_partition_keeps_the_pieces_ahead_of_its_reader() -> None:
    index = SegmentIndex(10)
    for start in range(0, 1_000, 50):
        index.learn(ONE, located(ONE, start, start + 50))
        assert bases(index, ONE, start) == list(range(start, start + 50, 10))
        assert index.piece_count <= 10


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["learn", "late", "swap", "trim", "forget"]),
            st.sampled_from([ONE, OTHER]),
            st.integers(0, 9),
            st.integers(1, 5),
        ),
        max_size=40,
    ),
    piece_count_max=st.integers(1, 12),
)
def test_found_pieces_are_always_true_dense_and_bounded(
    steps: list[tuple[str, PartitionKey, int, int]], piece_count_max: int
) -> None:
    index = SegmentIndex(piece_count_max)
    position = 0
    home: dict[tuple[PartitionKey, int], str] = {}  # the object of each ten offsets
    start: dict[PartitionKey, int] = {}

    def told(key: PartitionKey, first: int, count: int) -> Located:
        pieces = [
            LocatedSlice(Slice(key, 10 * at, 10, 0, 1, 0), home.get((key, at), "first"), 1)
            for at in range(max(first, start.get(key, 0) // 10), first + count)
        ]
        return Located(slices=pieces, bounds=PartitionBounds(0, 1_000, 1_000), position=position)

    late: list[tuple[PartitionKey, Located]] = []
    for what, key, first, count in steps:
        if what == "learn":
            index.learn(key, told(key, first, count))
        elif what == "late":
            late.append((key, told(key, first, count)))
        elif what == "swap":
            position += 1
            for at in range(first, first + count):
                home[key, at] = f"swap {position}"
            swap(index, position, (key, 10 * first, 10 * (first + count)))
            for asked, answer in late:
                index.learn(asked, answer)
            late.clear()
        elif what == "trim":
            position += 1
            start[key] = max(start.get(key, 0), 10 * first)
            index.apply(Entry(position=position, kind=EntryKind.TRIM, partition=key, start_offset=10 * first))
        else:
            index.forget(key)
        total = 0
        for partition in (ONE, OTHER):
            for at in range(20):
                pieces = index.find(partition, 10 * at, limit=100)
                for next_at, piece in enumerate(pieces, at):
                    assert piece.slice.base_offset == 10 * next_at
                    assert piece.object_key == home.get((partition, next_at), "first")
            total += max((len(index.find(partition, 10 * at, limit=100)) for at in range(20)), default=0)
        assert index.piece_count == total <= max(piece_count_max, 5)
