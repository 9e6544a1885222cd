"""Another implementation of Protobuf agrees: Google's reads the same from exact values, and what it writes is exact."""

from random import Random

import hypothesis.strategies as st
import pyarrow as pa
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings

from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.streams.schemas.formats import protobuf as compiler
from bearlake.table.typed import codec, protobuf
from fixtures.protobuf_cases import google_class
from fixtures.protobuf_random import ProtobufRandom

SETTINGS = settings(max_examples=100, deadline=None)


def compiled(schema: str) -> tuple[list[bytes], type[Message]]:
    """The descriptors of a schema, and Google's class for its first message."""
    files = [file.SerializeToString() for file in compiler.parsed(schema, {}).files]
    return files, google_class(files)


@SETTINGS
@given(random=st.randoms(use_true_random=False))
def test_what_googles_encoder_writes_is_exact_where_it_fits(random: Random) -> None:
    made = ProtobufRandom(random)
    files, theirs = compiled(made.schema())
    values = []
    for _ in range(8):
        message = theirs()
        made.fill(message)
        values.append(message.SerializeToString())
    columns = protobuf.columns_of(files)

    decoded = codec.decode(columns, pa.array(values, pa.binary()), is_verified=True)

    decoded.struct.validate(full=True)
    unverified = codec.decode(columns, pa.array(values, pa.binary()))
    assert unverified.statuses.equals(decoded.statuses)  # the decoder's marks alone say the same
    for value, status in zip(values, decoded.statuses.to_pylist(), strict=True):
        outcome, path = status & (1 << OUTCOME_BITS) - 1, columns.paths[status >> OUTCOME_BITS]
        assert outcome in (TypedOutcome.EXACT, TypedOutcome.FORM, TypedOutcome.DOMAIN), (outcome, path)
        if outcome != TypedOutcome.EXACT:  # times outside of the column, and nothing else
            assert columns.nodes[status >> OUTCOME_BITS].kind == 4, (value, path)
    exact = [value for value, is_exact in zip(values, decoded.is_exact.to_pylist(), strict=True) if is_exact]
    assert codec.encode(columns, decoded.struct.filter(decoded.is_exact)).to_pylist() == exact


@SETTINGS
@given(random=st.randoms(use_true_random=False))
def test_damaged_messages_never_count_as_exact_unless_they_come_back(random: Random) -> None:
    made = ProtobufRandom(random)
    files, theirs = compiled(made.schema())
    values = []
    for _ in range(8):
        message = theirs()
        made.fill(message)
        values.append(made.spoiled(message.SerializeToString()))
    columns = protobuf.columns_of(files, levels_max=random.choice((1, 2, 16)))

    decoded = codec.decode(columns, pa.array(values, pa.binary()))

    decoded.struct.validate(full=True)
    verified = codec.decode(columns, pa.array(values, pa.binary()), is_verified=True)
    assert verified.statuses.equals(decoded.statuses)
    exact = [value for value, is_exact in zip(values, decoded.is_exact.to_pylist(), strict=True) if is_exact]
    assert codec.encode(columns, decoded.struct.filter(decoded.is_exact)).to_pylist() == exact
    for value, status in zip(values, decoded.statuses.to_pylist(), strict=True):
        outcome = status & (1 << OUTCOME_BITS) - 1
        if outcome >= TypedOutcome.TRUNCATED and outcome != TypedOutcome.TAG:  # upb ends at a tag of 0, Java refuses it
            try:
                theirs.FromString(value)
            except DecodeError:
                continue
            raise AssertionError(f"Google's parser takes {value.hex()}")
