"""The packed form of acknowledged ranges: golden bytes, round trips, hostile input."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.metadata.subscriptions import ACKNOWLEDGED_BYTES_MAX, pack_ranges, unpack_ranges


def test_golden_bytes() -> None:
    assert pack_ranges(10, []) == b""
    assert pack_ranges(10, [(11, 12), (300, 301)]) == bytes((1, 1, 1, 0xA0, 2, 1))
    assert unpack_ranges(10, bytes((1, 1, 1, 0xA0, 2, 1))) == [(11, 12), (300, 301)]


@given(
    mark=st.integers(0, 2**62),
    steps=st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), max_size=50),
)
def test_ranges_survive_a_round_trip(mark: int, steps: list[tuple[int, int]]) -> None:
    edges = list(itertools.accumulate(itertools.chain.from_iterable(steps), initial=mark))[1:]
    ranges = list(zip(edges[::2], edges[1::2], strict=True))

    assert unpack_ranges(mark, pack_ranges(mark, ranges)) == ranges


def test_ten_thousand_ranges_fit() -> None:
    ranges = [(at * 2**60 // 20_000 + 1, (at + 1) * 2**60 // 20_000) for at in range(10_000)]
    assert len(pack_ranges(0, ranges)) <= ACKNOWLEDGED_BYTES_MAX


@pytest.mark.parametrize("ranges", [[(10, 11)], [(12, 12)], [(12, 13), (13, 14)], [(12, 14), (13, 15)], [(9, 11)]])
def test_ranges_that_touch_or_overlap_are_a_bug(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError):
        pack_ranges(10, ranges)


@pytest.mark.parametrize("packed", ["02", "0101", "010181", "010000", "01010001", "0180"])
def test_damaged_bytes_are_reported(packed: str) -> None:
    with pytest.raises(Corrupt):
        unpack_ranges(0, bytes.fromhex(packed))


@given(packed=st.binary(max_size=40))
def test_any_bytes_are_either_ranges_or_corrupt(packed: bytes) -> None:
    try:
        ranges = unpack_ranges(5, packed)
    except Corrupt:
        return
    edges = [5, *itertools.chain.from_iterable(ranges)]
    assert all(before < after for before, after in itertools.pairwise(edges))
