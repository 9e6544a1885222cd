"""Records as text: kcat's words, JSON lines and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.cli.record_format import Record, as_json, formatter, from_json
from bearlake.errors import Invalid

RECORD = Record(
    stream="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"\xffraw",
    headers=[("a", b"1"), ("b", None)],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%v\n", b"\xffraw\n"),
        (r"%t %p %o %k %s", b"orders 3 42 k \xffraw"),
        (r"%T %K %V %S %h", b"1700000000000 1 4 4 a=1,b="),
        (r"100%%\t%o\\n", b"100%\t42\\n"),
        (r"\q", b"\\q"),
        ("ü%k", "ük".encode()),
    ],
)
def test_every_word_of_a_format_is_replaced(text: str, expected: bytes) -> None:
    assert formatter(text)(RECORD) == expected


def test_null_key_and_value_are_empty_with_length_minus_one() -> None:
    assert formatter("[%k|%v|%K|%V|%T]")(Record(stream="s")) == b"[||-1|-1|-1]"


@pytest.mark.parametrize("text", ["%x", "%", "a%"])
def test_an_unknown_word_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        formatter(text)


def test_json_has_base64_where_bytes_are_not_text() -> None:
    assert json.loads(formatter("json")(RECORD)) == {
        "stream": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value_base64": "/3Jhdw==",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


BYTES = st.none() | st.binary(max_size=20)


@given(BYTES, BYTES, st.lists(st.tuples(st.text(min_size=1), BYTES), max_size=3))
def test_json_round_trip(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    record = Record(stream="s", partition=1, timestamp_ms=5, key=key, value=value, headers=headers)

    assert from_json(as_json(record), "s") == record


def test_an_object_as_value_is_produced_as_json() -> None:
    assert from_json(b'{"value": {"bears": 3}}', "s").value == b'{"bears": 3}'


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"nonsense", b'{"partition": "x"}', b'{"headers": [{}]}', b'{"value_base64": "%"}']
)
def test_a_wrong_line_is_refused(line: bytes) -> None:
    with pytest.raises(Invalid):
        from_json(line, "s")
