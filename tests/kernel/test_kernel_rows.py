"""Packed rows: the bytes, the sequence that they are read as, and the native calls that take them."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.kernel import Append, BatchCommit, CommitRows, PartitionKey
from bearlake.metadata.model import Outcome, OutcomeKind, OutcomeRows, Slice, SliceRows
from bearlake.records.codec import Record, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
BATCH = encode([Record(), Record()])


def test_a_row_is_its_fields_in_eight_bytes_each() -> None:
    rows = OutcomeRows.of([Outcome(OutcomeKind.DUPLICATE, -1, 256)])

    assert rows.packed == bytes.fromhex("0100000000000000 ffffffffffffffff 0001000000000000")


@given(rows=st.lists(st.tuples(*[INT64] * 6), max_size=9))
def test_rows_are_read_as_they_were_packed(rows: list[tuple[int, ...]]) -> None:
    packed = SliceRows.of(rows)

    assert packed == rows
    assert list(packed) == [packed[at] for at in range(len(rows))] == rows
    assert packed[1:] == rows[1:]
    assert SliceRows(packed.packed) == packed == SliceRows.of(packed)
    assert all(type(row) is Slice for row in packed)
    assert (rows == []) == (not packed)


def test_rows_that_are_packed_are_not_packed_again() -> None:
    rows = CommitRows.of([BatchCommit(PartitionKey(1), 2, 3, 4, 5)])

    assert CommitRows.of(rows) is rows
    assert rows[-1] == BatchCommit(PartitionKey(1), 2, 3, 4, 5)
    with pytest.raises(IndexError):
        rows[1]


@pytest.mark.parametrize("packed", [b"x", bytes(23), bytes(25)])
def test_bytes_that_are_not_whole_rows_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="whole rows"):
        OutcomeRows(packed)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="3 fields"):
        OutcomeRows.of([(1, 2)])


def test_other_rows_differ() -> None:
    rows = OutcomeRows.of([(0, 1, 2)])

    assert rows != OutcomeRows.of([(0, 1, 3)])
    assert rows != OutcomeRows()
    assert rows != [(0, 1)]
    assert rows != 7


def test_the_kinds_of_batches_that_are_not_accepted_are_listed() -> None:
    rows = OutcomeRows.of([(0, 1, 0), (kind := OutcomeKind.FENCED, -1, 0), (0, 2, 0), (OutcomeKind.UNSURE, -1, -1)])

    assert rows.others() == rows.others() == (kind, OutcomeKind.UNSURE)
    assert OutcomeRows().others() == ()


def test_the_records_of_slices_are_summed() -> None:
    assert SliceRows.of([(1, 0, 5, 0, 1, 0), (2, 9, 7, 1, 1, 0)]).record_count() == 12
    assert SliceRows().record_count() == 0


# -- calls that take rows --------------------------------------------------------------------------------------------


def test_packed_slices_write_the_same_offsets(kernel: ModuleType) -> None:
    slices = [
        Slice(PartitionKey(1), 7, 4, 0, 2 * len(BATCH), 0),
        Slice(PartitionKey(2), 9, 2, 2 * len(BATCH), len(BATCH), 0),
    ]
    by_tuples, by_rows = bytearray(BATCH * 3), bytearray(BATCH * 3)

    kernel.rebase(by_tuples, slices, 3)
    kernel.rebase(by_rows, SliceRows.of(slices), 3)

    assert by_tuples == by_rows != BATCH * 3
    for wrong, error in (((1, 0, 4, 0, len(BATCH), 0), Corrupt), ((1, -1, 2, 0, len(BATCH), 0), ValueError)):
        with pytest.raises(error):
            kernel.rebase(by_rows, SliceRows.of([wrong]), 3)
    with pytest.raises(ValueError, match="6"):
        kernel.rebase(by_rows, OutcomeRows(bytes(24)), 3)


def test_packed_outcomes_reach_their_calls(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    appends = [Append(PartitionKey(at), bytes(16), b"x", None, 1, 0, -1, -1, -1, 0) for at in (2, 1)]
    results = kernel.Results(2, (8, -1, -1))
    buffer.add(results, appends, 0, 0)
    buffer.join(0, 0)

    with pytest.raises(ValueError, match="1 results for 2"):
        buffer.resolve(OutcomeRows.of([(0, 1, 0)]))
    assert buffer.resolve(OutcomeRows.of([(0, 5, 1), (3, -1, 2)])) == [results]
    assert list(results) == [(3, -1, 2), (0, 5, 1)]
    assert buffer.resolve(OutcomeRows.of([(0, 6, 1), (0, 7, 2)])) == []


def test_a_buffer_gives_its_batches_as_packed_rows(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    buffer.add(
        kernel.Results(1, (8, -1, -1)),
        [Append(PartitionKey(9), bytes(16), b"xy", None, 2, 3, 4, 5, 6, 7, 8, 2**40)],
        0,
        0,
    )
    buffer.join(1, 0)

    commits = buffer.commits()

    assert type(commits) is CommitRows
    assert commits == [BatchCommit(PartitionKey(9), 1, 2, 2, 3, 4, 5, 6, 7, 8, 2**40)]
