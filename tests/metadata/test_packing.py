"""The packed layouts of the metadata store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.metadata.model import Outcome, OutcomeKind, PartitionKey, Slice
from bearlake.metadata.packing import (
    OUTCOME_WIDTH,
    PAGE_WIDTH,
    SLICE_WIDTH,
    columns,
    pack_number,
    pack_rows,
    page_fields,
    slices_of,
    unpack_outcomes,
    unpack_rows,
    unpack_slices,
)

signed = st.integers(-(2**63), 2**63 - 1)


def test_the_layout_is_fixed() -> None:
    assert pack_rows([(1, -1), (256, 2)], 2) == bytes.fromhex(
        "01" + "0100000000000000" + "ffffffffffffffff" + "0001000000000000" + "0200000000000000"
    )
    assert pack_rows([], 2) == b""


@given(rows=st.lists(st.tuples(signed, signed, signed)))
def test_rows_survive_a_round_trip(rows: list[tuple[int, ...]]) -> None:
    blob = pack_rows(rows, 3)

    assert list(unpack_rows(blob, 3)) == rows
    assert list(zip(*columns(blob[1:], 3), strict=True)) == rows


def test_the_row_of_a_page_is_the_row_of_a_slice_without_its_partition_and_with_its_object() -> None:
    slices = [Slice(PartitionKey(1), 2, 3, 4, 5, 6), Slice(PartitionKey(7), 8, 9, 10, 11, -12)]
    rows = [(partition, fields + pack_number(-3)) for partition, fields in page_fields(pack_rows(slices, SLICE_WIDTH))]

    assert rows == [(slice_.partition, pack_rows([(*slice_[1:], -3)], PAGE_WIDTH)[1:]) for slice_ in slices]


def test_slices_and_outcomes_survive_a_round_trip() -> None:
    slices = [Slice(PartitionKey(1), 2, 3, 4, 5, 6), Slice(PartitionKey(7), 8, 9, 10, 11, -12)]
    outcomes = [Outcome(OutcomeKind.DUPLICATE, 5, 0), Outcome(OutcomeKind.NOT_FOUND, -1, -1)]

    assert unpack_slices(pack_rows(slices, SLICE_WIDTH)) == slices
    assert list(slices_of(pack_rows(slices, SLICE_WIDTH), 7)) == slices[1:]
    assert unpack_outcomes(pack_rows(outcomes, OUTCOME_WIDTH)) == outcomes
    assert unpack_outcomes(pack_rows(outcomes, OUTCOME_WIDTH))[0].kind is OutcomeKind.DUPLICATE


@pytest.mark.parametrize("blob", [b"\x02" + bytes(24), b"\x01" + bytes(23), b"\x01" + bytes(16), b"\x00"])
def test_other_versions_and_parts_of_rows_are_corrupt(blob: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack_rows(blob, 3)


@given(blob=st.binary(max_size=100))
def test_arbitrary_bytes_are_rows_or_corrupt(blob: bytes) -> None:
    try:
        rows = list(unpack_rows(blob, 3))
    except Corrupt:
        return

    assert pack_rows(rows, 3) == (blob if rows else pack_rows([], 3))


def test_an_outcome_of_unknown_kind_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="332"):
        unpack_outcomes(pack_rows([(332, 1280, -256)], OUTCOME_WIDTH))
