"""Another implementation of Avro agrees: fastavro reads from exact values what the columns have, and writes the same bytes."""

import io
import json
from random import Random
from typing import Any

import fastavro
import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaType
from fixtures.avro_random import AvroRandom, row_of, without_floats
from fixtures.typed_dictionaries import with_dictionaries

SETTINGS = settings(max_examples=60, deadline=None)


def read_and_written(parsed: Any, value: bytes) -> tuple[Any, bytes]:
    """What fastavro reads, and what it writes again."""
    datum = fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, datum)
    return datum, out.getvalue()


@SETTINGS
@given(random=st.randoms(use_true_random=False), is_spoiled=st.booleans())
def test_fastavro_reads_the_same_rows_and_writes_the_same_bytes(random: Random, is_spoiled: bool) -> None:
    made = AvroRandom(random, has_logical=False)
    schema = made.record()
    values = [made.value(schema) for _ in range(8)]
    values = [made.spoiled(value) for value in values] if is_spoiled else values
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))

    columns = mapping.columns_of(SchemaType.AVRO, json.dumps(schema))
    decoded = codec.decode(columns, pa.array(values, pa.binary()))

    for value, row, status in zip(values, decoded.struct, decoded.statuses.to_pylist(), strict=True):
        found = status & (1 << OUTCOME_BITS) - 1
        if found in (TypedOutcome.EXACT, TypedOutcome.FORM):
            datum, written = read_and_written(parsed, value)
            expected = row_of(schema, datum)
            assert without_floats(row.as_py()) == ({"value": True} if expected is True else expected)
            if "nan" not in repr(expected):  # fastavro makes quiet NaNs of signalling ones
                assert (written == value) == (found == TypedOutcome.EXACT)
                by_index = codec.encode(columns, with_dictionaries(pa.array([row.as_py()], columns.arrow)))
                assert by_index.to_pylist() == [written]


@SETTINGS
@given(random=st.randoms(use_true_random=False))
def test_exact_rows_of_any_schema_give_their_values_back(random: Random) -> None:
    made = AvroRandom(random)
    schema = made.record(4)
    values = [
        made.spoiled(value) if random.random() < 0.2 else value for value in (made.value(schema) for _ in range(20))
    ]
    columns = mapping.columns_of(
        SchemaType.AVRO, json.dumps(schema), levels_max=random.choice((1, 3, 16)), columns_max=random.choice((30, 1000))
    )

    decoded = codec.decode(columns, pa.array(values, pa.binary()))
    verified = codec.decode(columns, pa.array(values, pa.binary()), is_verified=True)

    decoded.struct.validate(full=True)
    assert verified.statuses == decoded.statuses, "the checks while decoding suffice"
    exact = decoded.struct.filter(decoded.is_exact)
    expected = [value for value, is_exact in zip(values, decoded.is_exact.to_pylist(), strict=True) if is_exact]
    assert codec.encode(columns, exact).to_pylist() == expected
    assert codec.encode(columns, with_dictionaries(exact)).to_pylist() == expected
