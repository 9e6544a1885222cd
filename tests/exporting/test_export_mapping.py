"""Runs: which offset of the target a record of the source has."""

from hypothesis import given
from hypothesis import strategies as st

from bearlake.exporting.mapping import Runs

kept = st.lists(st.booleans(), min_size=1, max_size=200)


def runs_of(offsets: list[int], start: int) -> tuple[Runs, dict[int, int]]:
    """The runs of records at these offsets, of which the first gets offset `start` at the target, and the same as a table."""
    runs, table = Runs(), {}
    for target, source in enumerate(offsets, start):
        if not runs.goes_on(source, target):
            runs.add(source, target)
        table[source] = target
    return runs, table


@given(kept, st.integers(0, 50))
def test_each_offset_of_the_source_maps_to_its_record_or_the_next_one(kept: list[bool], start: int) -> None:
    offsets = [offset for offset, is_kept in enumerate(kept) if is_kept]
    runs, table = runs_of(offsets, start)
    end = start + len(offsets)

    for offset in range(len(kept) + 1):
        following = [table[source] for source in offsets if source >= offset]
        assert runs.target_of(offset, end) == (following[0] if following else end if offsets else None)


@given(kept, st.integers(0, 50))
def test_each_end_of_the_target_says_where_the_source_goes_on(kept: list[bool], start: int) -> None:
    offsets = [offset for offset, is_kept in enumerate(kept) if is_kept]
    runs, _ = runs_of(offsets, start)

    for count in range(len(offsets) + 1):
        source = runs.source_of(start + count)
        left = [offset for offset in offsets if source is not None and offset >= source]
        assert left == offsets[count:]


def test_a_cut_forgets_what_was_planned_from_there_on() -> None:
    runs, _ = runs_of([0, 1, 5, 6, 9], 0)

    runs.cut(2)
    runs.add(7, 2)

    assert [runs.target_of(offset, 3) for offset in (0, 1, 2, 5, 7, 8)] == [0, 1, 2, 2, 2, 3]


def test_only_the_newest_runs_are_remembered_and_older_offsets_are_unknown() -> None:
    runs = Runs(10)
    for number in range(100):
        runs.add(number * 2, number)

    assert len(runs) < 20
    assert runs.dropped == 100 - len(runs)
    assert runs.target_of(0, 100) is None
    assert runs.source_of(0) is None
    assert runs.target_of(198, 100) == 99
