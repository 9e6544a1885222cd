"""Offsets in checkpoints, and the limits of a micro-batch."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt, Unsupported
from bearlake.spark.offsets import Offsets, StreamOffsets, decode, encode, shares, split

ORDERS = {"orders": StreamOffsets("id-1", {0: 5, 10: 7})}


def test_checkpoints_keep_offsets_and_where_the_query_began() -> None:
    began = {"orders": StreamOffsets("id-1", {0: 1})}
    for offsets in (Offsets(ORDERS), Offsets(ORDERS, began)):
        assert decode(json.loads(json.dumps(encode(offsets)))) == offsets


def test_the_format_of_a_checkpoint_is_fixed() -> None:
    assert encode(Offsets(ORDERS)) == {"version": 1, "streams": {"orders": {"id": "id-1", "ends": {"0": 5, "10": 7}}}}


@pytest.mark.parametrize("fields", [{}, {"version": 1}, {"version": 1, "streams": {"a": {"id": "x"}}}])
def test_what_is_no_offset_of_ours_is_corrupt(fields: dict[str, object]) -> None:
    with pytest.raises(Corrupt):
        decode(fields)


def test_offsets_of_a_later_format_are_refused() -> None:
    with pytest.raises(Unsupported, match="format 2"):
        decode({"version": 2, "streams": {}})


def test_a_partition_that_was_not_there_begins_at_zero() -> None:
    offsets = Offsets(ORDERS)
    assert [offsets.at("orders", "id-1", index) for index in (0, 1)] == [5, 0]
    assert offsets.at("orders", "id-2", 0) == 0, "another stream of the same name"


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 10**12))
def test_shares_follow_the_backlog_and_leave_nobody_out(sizes: list[int], limit: int) -> None:
    backlog = {("s", at): size for at, size in enumerate(sizes)}
    found = shares(backlog, limit)
    assert all(min(1, size) <= found[key] <= size for key, size in backlog.items())
    assert sum(found.values()) <= max(limit, 0) + len(sizes)
    assert sum(sizes) > limit or found == backlog


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 50))
def test_split_ranges_follow_each_other(start: int, size: int, count: int) -> None:
    parts = split(start, start + size, count)
    assert [low for low, _ in parts] == [start, *(high for _, high in parts)][: len(parts)]
    assert sum(high - low for low, high in parts) == size
    assert len(parts) <= max(1, count)
