"""Protobuf messages as typed columns: every form that encoders write, damage, and the way back."""

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import codec, protobuf
from bearlake.table.typed.model import TypedColumns
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, ProtobufCase, files_of, google_class

DISPUTED = {
    "proto3 map entry with an unknown field": "upb takes the whole entry for unknown, Java and C++ only the field",
    "proto3 map key of another wire type": "as above",
    "recursion of a malformed message": "its content is not looked into",
    "proto3 timestamp with a nanosecond": "the column has microseconds",
}
"""Cases in which Google's parser in Python reads something else, and why."""


def columns_of(schema: str, *indexes: int) -> TypedColumns:
    return protobuf.columns_of(files_of(schema), indexes or (0,))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("is_verified", [False, True])
def test_a_message_becomes_a_row_that_gives_it_back(case: ProtobufCase, is_verified: bool) -> None:
    columns = columns_of(case.schema, *case.indexes)

    decoded = codec.decode(columns, pa.array([case.value], pa.binary()), is_verified=is_verified)

    (status,) = decoded.statuses.to_pylist()
    outcome, path = TypedOutcome(status & (1 << OUTCOME_BITS) - 1), columns.paths[status >> OUTCOME_BITS]
    assert (outcome, path) == (case.outcome, case.path)
    decoded.struct.validate(full=True)
    assert decoded.is_exact.to_pylist() == [case.outcome is TypedOutcome.EXACT]
    (row,) = decoded.struct.to_pylist()
    if outcome >= TypedOutcome.TRUNCATED:
        assert row is None
        assert decoded.problems[0].outcome is case.outcome
        return
    assert decoded.problems == {}
    if case.row is not None:
        assert {name: row[name] for name in case.row} == case.row
    if outcome is TypedOutcome.EXACT:
        assert codec.encode(columns, decoded.struct).to_pylist() == [case.value]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_googles_parser_takes_the_same_messages_and_reads_the_same_from_the_encoded_row(case: ProtobufCase) -> None:
    columns = columns_of(case.schema, *case.indexes)
    decoded = codec.decode(columns, pa.array([case.value], pa.binary()))
    theirs = google_class(files_of(case.schema), case.indexes[0])
    if case.label in DISPUTED:
        return
    try:
        message = theirs.FromString(case.value)
    except DecodeError:
        assert case.outcome >= TypedOutcome.DOMAIN
        return
    assert case.outcome < TypedOutcome.TRUNCATED
    if case.outcome is TypedOutcome.FORM:
        message.DiscardUnknownFields()
        (encoded,) = codec.encode(columns, decoded.struct).to_pylist()
        again = theirs.FromString(encoded)
        assert again.SerializePartialToString(deterministic=True) == message.SerializePartialToString(
            deterministic=True
        )


def test_all_rows_of_a_column_go_their_own_ways() -> None:
    columns = columns_of(PROTO3)
    chosen = [case for case in CASES if case.schema == PROTO3]
    values = [None, *(b"xyz" + case.value for case in chosen), b"xy"]

    decoded = codec.decode(columns, pa.array(values, pa.binary()), skip=3, is_verified=True)

    decoded.struct.validate(full=True)
    found = [TypedOutcome(status & (1 << OUTCOME_BITS) - 1) for status in decoded.statuses.to_pylist()]
    assert found == [TypedOutcome.NULL, *(case.outcome for case in chosen), TypedOutcome.TRUNCATED]
    exact = decoded.struct.filter(decoded.is_exact)
    expected = [b"xyz" + case.value for case in chosen if case.outcome is TypedOutcome.EXACT]
    assert codec.encode(columns, exact, prefix=b"xyz").to_pylist() == expected


def test_every_prefix_of_a_message_is_decoded_or_refused() -> None:
    columns = columns_of(PROTO3)
    whole = b"".join(case.value for case in CASES if case.schema == PROTO3 and case.outcome < TypedOutcome.TRUNCATED)
    values = [whole[:end] for end in range(len(whole))]

    decoded = codec.decode(columns, pa.array(values, pa.binary()), is_verified=True)

    decoded.struct.validate(full=True)


def test_few_bytes_that_stand_for_many_columns_are_bounded() -> None:
    fields = " ".join(f"optional double f{number} = {number};" for number in range(1, 500))
    schema = f'syntax = "proto2"; message M {{ repeated N n = 1; }} message N {{ {fields} }}'
    columns = columns_of(schema)
    bomb = bytes.fromhex("0a00") * 1000

    decoded = codec.decode(columns, pa.array([bomb], pa.binary()), bytes_max=1_000_000)

    assert decoded.problems[0].outcome is TypedOutcome.SIZE
    with pytest.raises(TooLarge):
        codec.decode(columns, pa.array([bomb, bomb], pa.binary()), bytes_max=1_000_000)


@pytest.mark.parametrize(
    ("name", "value"), [("i", None), ("s", None), ("p", None), ("p", [None]), ("u", -1), ("u32", 2**32), ("e", "078")]
)
def test_a_row_that_is_no_message_is_corrupt(name: str, value: object) -> None:
    columns = columns_of(PROTO3)
    (row,) = codec.decode(columns, pa.array([b""], pa.binary())).struct.to_pylist()

    with pytest.raises(Corrupt):
        codec.encode(columns, pa.array([row | {name: value}], columns.arrow))


def test_two_fields_of_a_oneof_are_corrupt() -> None:
    columns = columns_of(PROTO2)
    (row,) = codec.decode(columns, pa.array([b""], pa.binary())).struct.to_pylist()

    with pytest.raises(Corrupt):
        codec.encode(columns, pa.array([row | {"x": 1, "y": "a"}], columns.arrow))
