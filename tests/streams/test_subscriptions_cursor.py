"""A cursor against its model: the set of acknowledged offsets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.streams.subscriptions.cursor import AckCursor

SIZE = 40

spans = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: (min(pair), max(pair)))


class Model:
    """Acknowledged offsets of `[0, SIZE)`, one by one; all offsets after SIZE are unacknowledged."""

    def __init__(self, mark_delete: int) -> None:
        self.offsets = set(range(mark_delete))

    def acknowledge(self, start: int, end: int) -> int:
        fresh = set(range(start, end)) - self.offsets
        self.offsets |= fresh
        return len(fresh)

    def check(self, cursor: AckCursor) -> None:
        mark = next(offset for offset in range(SIZE + 1) if offset not in self.offsets)
        above = {offset for offset in self.offsets if offset > mark}
        assert cursor.mark_delete == mark
        assert {offset for start, end in cursor.ranges for offset in range(start, end)} == above
        assert cursor.range_offset_count == len(above)
        flat = [mark, *(bound for span in cursor.ranges for bound in span)]
        assert all(low < high for low, high in pairwise(flat)), "ranges ascend and do not touch"


@given(
    st.integers(0, SIZE),
    st.lists(st.tuples(st.booleans(), spans), max_size=25),
    spans,
    st.integers(1, SIZE),
)
def test_a_cursor_equals_a_set_of_offsets_after_any_acknowledgements(
    mark: int, steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int], count: int
) -> None:
    cursor, model = AckCursor(mark), Model(mark)
    for is_cumulative, (start, end) in steps:
        if is_cumulative:
            assert cursor.acknowledge_before(end) == model.acknowledge(0, end)
        else:
            assert cursor.acknowledge(start, end) == model.acknowledge(start, end)
        model.check(cursor)

    inside = [offset for start, end in cursor.within(*asked) for offset in range(start, end)]
    assert inside == [offset for offset in range(*asked) if offset in model.offsets]
    assert cursor.open_count(*asked) == len(set(range(*asked)) - model.offsets)
    behind = cursor.offset_behind(count)
    assert len(set(range(behind)) - model.offsets) == count
    assert behind - 1 not in model.offsets


@given(st.integers(0, SIZE), st.lists(spans, max_size=15))
def test_a_cursor_is_saved_and_loaded_unchanged(mark: int, steps: list[tuple[int, int]]) -> None:
    cursor = AckCursor(mark)
    for span in steps:
        cursor.acknowledge(*span)

    packed, is_whole = cursor.pack()
    loaded = AckCursor.unpack(cursor.mark_delete, packed)

    assert is_whole
    assert (loaded.mark_delete, loaded.ranges) == (cursor.mark_delete, cursor.ranges)
    assert loaded.range_offset_count == cursor.range_offset_count


def test_a_cursor_with_too_many_ranges_saves_the_lowest_and_reports_the_rest() -> None:
    cursor = AckCursor(0, [(start, start + 1) for start in range(1, 2_001, 2)])

    packed, is_whole = cursor.pack(bytes_max=500)

    assert not is_whole
    assert len(packed) <= 500
    kept = AckCursor.unpack(0, packed).ranges
    assert kept == cursor.ranges[: len(kept)]
    assert len(kept) > 200


def test_a_change_grows_the_version_and_a_repeat_does_not() -> None:
    cursor = AckCursor(10)
    versions = [cursor.version]
    for span in [(12, 14), (12, 14), (0, 5), (13, 13)]:
        cursor.acknowledge(*span)
        versions.append(cursor.version)

    assert versions == [0, 1, 1, 1, 1]


def test_bytes_that_are_not_ranges_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        AckCursor.unpack(0, b"\x01\x05")
