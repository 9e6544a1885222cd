"""Coalescing of ranges: pure, so also by property."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Invalid
from bearlake.objects import ByteRange
from bearlake.objects.ranges import coalesce, scatter

CONTENT = bytes(range(256)) * 4

some_ranges = st.lists(
    st.tuples(st.integers(0, 1024), st.integers(0, 1024)).map(lambda pair: ByteRange(min(pair), max(pair))), max_size=20
)


@given(ranges=some_ranges, gap_bytes=st.integers(0, 300))
def test_scattering_the_spans_gives_each_range_its_bytes(ranges: list[ByteRange], gap_bytes: int) -> None:
    spans = coalesce(ranges, gap_bytes)
    views = scatter(ranges, spans, [memoryview(bytearray(CONTENT[span.start : span.end])) for span in spans])

    assert [bytes(view) for view in views] == [CONTENT[start:end] for start, end in ranges]


@given(ranges=some_ranges, gap_bytes=st.integers(0, 300))
def test_spans_ascend_with_more_than_the_gap_between_them(ranges: list[ByteRange], gap_bytes: int) -> None:
    spans = coalesce(ranges, gap_bytes)

    assert all(right.start - left.end > gap_bytes for left, right in pairwise(spans))
    assert sorted(position for span in spans for position in span.positions) == list(range(len(ranges)))


def test_a_gap_of_just_the_limit_is_read_over() -> None:
    ranges = [ByteRange(0, 10), ByteRange(20, 30), ByteRange(41, 50)]

    assert [(span.start, span.end) for span in coalesce(ranges, 10)] == [(0, 30), (41, 50)]


@pytest.mark.parametrize("wrong", [(-1, 1), (2, 1)])
def test_an_impossible_range_is_invalid_also_among_others(wrong: tuple[int, int]) -> None:
    with pytest.raises(Invalid):
        coalesce([ByteRange(*wrong)], 0)
    with pytest.raises(Invalid):
        coalesce([ByteRange(0, 1), ByteRange(*wrong)], 0)
