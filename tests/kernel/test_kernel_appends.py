"""Admission of batches, and their offsets, native and in Python: same values, same errors."""

import itertools
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata.model import BatchCommit, Outcome, OutcomeKind, PartitionKey, Slice
from bearlake.streams.append import Append

STREAM = bytes(range(16))
RULES = (STREAM, 7 << 20, 4, 100, 1_000, 2_000, 0)


def entry(index: int = 0, **changes: Any) -> tuple[Any, ...]:
    fields = {
        "topic": "t", "index": index, "start": 10, "end": 20, "status": 0, "attributes": 4, "count": 3, "base": 1_000,
        "newest": 2_000, "producer_id": 5, "epoch": 1, "sequence": 9,
    }  # fmt: skip
    return tuple((fields | changes).values())


# -- admission -------------------------------------------------------------------------------------------------------


def test_plain_batches_become_appends(kernel: ModuleType) -> None:
    frame, hold, appends = memoryview(bytes(range(40))), object(), []

    at = kernel.admit_plain([entry(0), entry(3, start=20, end=25)], 0, frame, hold, RULES, appends)

    assert at == 2
    assert appends == [
        Append(PartitionKey(7 << 20), STREAM, frame[10:20], hold, 3, 2_000, 5, 1, 9, 0, -1, -1),
        Append(PartitionKey(7 << 20 | 3), STREAM, frame[20:25], hold, 3, 2_000, 5, 1, 9, 0, -1, -1),
    ]
    assert all(type(item) is Append and item.batch.obj is frame.obj for item in appends)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "other"}, {"topic": STREAM}, {"index": -1}, {"index": 4}, {"end": 111}, {"status": -6}, {"attributes": 8},
        {"attributes": 16}, {"attributes": -8}, {"base": 999}, {"newest": 2_001},
    ],
)  # fmt: skip
def test_the_first_batch_that_is_not_plain_ends_the_run(kernel: ModuleType, changes: dict[str, Any]) -> None:
    appends: list[Append] = []
    entries = [entry(0), entry(1), entry(**{"index": 2} | changes), entry(3)]

    at = kernel.admit_plain(entries, 1, memoryview(bytes(200)), None, RULES, appends)

    assert at == 2
    assert [item.partition & 0xFF for item in appends] == [1]


@pytest.mark.parametrize(("entries", "start"), [([], 0), ([entry()], 1), ([entry()], -1)])
def test_a_place_outside_of_the_entries_is_refused(kernel: ModuleType, entries: list[Any], start: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        kernel.admit_plain(entries, start, memoryview(bytes(40)), None, RULES, [])


# -- outcomes --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    partition: int
    gap: int
    length: int
    count: int
    newest: int
    producer_id: int
    expected: int


ROWS = st.lists(
    st.builds(
        Row, st.integers(1, 2), st.sampled_from([0, 0, 3]), st.integers(1, 9), st.integers(1, 5), st.integers(0, 9),
        st.sampled_from([-1, -1, 4]), st.sampled_from([-1, -1, -1, 0, 2**40]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(rows=ROWS)
def test_offsets_are_dense_and_slices_cover_the_bytes(kernel: ModuleType, rows: list[Row]) -> None:
    batches, position = [], 0
    for row in rows:
        position += row.gap
        batches.append(
            BatchCommit(
                PartitionKey(row.partition),
                position,
                row.length,
                row.count,
                row.newest,
                row.producer_id,
                expected_offset=row.expected,
            )
        )
        position += row.length
    outcomes: list[Outcome] = []
    slices: list[Slice] = []
    at, ends = 0, {1: 100, 2: 200}

    while at < len(batches):
        partition, start = batches[at].partition, at
        at, end, size = kernel.assign_offsets(
            Outcome, OutcomeKind.ACCEPTED, Slice, batches, at, 7, ends[partition], outcomes, slices
        )
        run = batches[start:at]
        assert all(batch.partition == partition for batch in run)
        assert all(batch.producer_id < 0 and batch.expected_offset < 0 for batch in run[1:])
        if at < len(batches) and batches[at].partition == partition:
            assert batches[at].producer_id >= 0 or batches[at].expected_offset >= 0
        assert size == sum(batch.length for batch in run)
        assert end == ends[partition] + sum(batch.record_count for batch in run)
        ends[partition] = end

    expected: dict[int, int] = {1: 100, 2: 200}
    for batch, outcome in zip(batches, outcomes, strict=True):
        assert outcome == Outcome(OutcomeKind.ACCEPTED, expected[batch.partition], 7)
        expected[batch.partition] += batch.record_count
    assert sum(piece.length for piece in slices) == sum(row.length for row in rows)
    for piece in slices:
        inside = [
            (batch, outcome)
            for batch, outcome in zip(batches, outcomes, strict=True)
            if piece.position <= batch.position < piece.position + piece.length
        ]
        assert {batch.partition for batch, _ in inside} == {piece.partition}
        assert piece.base_offset == inside[0][1].base_offset
        assert piece.record_count == sum(batch.record_count for batch, _ in inside)
        assert piece.length == sum(batch.length for batch, _ in inside)
        assert piece.max_timestamp == max(batch.max_timestamp for batch, _ in inside)
    for left, right in itertools.pairwise(slices):
        assert (left.partition, left.position + left.length) != (right.partition, right.position)


def test_a_batch_without_records_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="I2"):
        kernel.assign_offsets(Outcome, 0, Slice, [BatchCommit(PartitionKey(1), 0, 9, 0, 0)], 0, 0, 0, [], [])
