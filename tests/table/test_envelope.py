"""Events of Debezium as the rows that they describe: texts of JSON, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.table.envelope import NoEvent, row_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("event", "row"),
    [
        (b'{"op":"c","before":null,"after":{"id":1}}', b'{"id":1}'),
        (b'{"op":"u","before":{"id":1},"after":{"id":1,"n":12345678901234567890.123456789}}', None),
        (b'{"op":"r","after": {"id" : 1}  ,"ts_ms":1}', b'{"id" : 1}'),
        (b'{"schema":{"op":1},"payload":{"op":"c","after":{"a":"}"}}}', b'{"a":"}"}'),
        (b'{"op":"d","before":{"id":1},"after":null}', b""),
        (b'{"op":"d","after":{"id":1}}', b""),
        (b'{"op":"t"}', b""),
        (b'{"op":"m","message":{}}', b""),
        (b'{"op":"u","after":null}', b""),
        (b'{"op":"u"}', b""),
        (b'{"after":{"x":1},"op":"c","op":"d"}', b""),
    ],
)
def test_an_event_is_the_text_of_its_row_or_deletes_its_key(event: bytes, row: bytes | None) -> None:
    expected = b'{"id":1,"n":12345678901234567890.123456789}' if row is None else row or None

    assert row_of(event) == expected


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"{", b"{}", b"[]", b'{"op":1}', b'{"op":null}', b'{"op":"c"', b'{"op" "c"}', b'{op:"c"}', b"\xff",
     b'{"payload":{}}', b'{"payload":[]}', b'{"a":1}', b"[" * 100_000, b'{"a":' * 50_000, b'{"op":"c"} x'[:0] + b'"op"'],
)  # fmt: skip
def test_other_values_are_no_events(value: bytes) -> None:
    with pytest.raises(NoEvent):
        row_of(value)


@given(
    row=st.dictionaries(st.text(), JSON),
    others=st.dictionaries(st.text(), JSON),
    indent=st.sampled_from([None, 1, "\t"]),
)
def test_any_row_comes_out_as_it_went_in(
    row: dict[str, object], others: dict[str, object], indent: int | str | None
) -> None:
    members = {**others, "op": "u", "after": row}
    text = json.dumps(members, indent=indent)

    found = row_of(text.encode())

    assert found is not None
    assert found.decode() in text
    assert json.loads(found) == row


@pytest.mark.parametrize("number", ["9" * 5_000, "1e400", "-0"])
def test_numbers_of_any_size_stay_as_they_were_written(number: str) -> None:
    event = f'{{"ts_ms": {number}, "op": "u", "after": {{"balance": {number}}}}}'

    assert row_of(event.encode()) == f'{{"balance": {number}}}'.encode()
