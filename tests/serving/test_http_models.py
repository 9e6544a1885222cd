"""Models of bodies: a body that does not fit is refused with the field, the expected value, and the value found."""

import json
import tracemalloc
from enum import Enum
from typing import Annotated, Any, Literal

import pytest

from bearlake.serving.http import models
from bearlake.serving.http.models import EXPLAINED_BYTES_MAX, UNSET, Malformed, Meta, Mismatch, Reader, UnsetType, field


class Item(models.Model):
    key: Any = None
    octets: bytes | None = None
    partition: Annotated[int, Meta(ge=0, le=9)] | None = None


class Level(Enum):
    HIGH = "high"
    LOW = "low"


class Body(models.Model):
    items: Annotated[list[Item], Meta(min_length=1)]
    kind: Literal["a", "b"] = "a"
    name: Annotated[str, Meta(pattern="^[a-z]+$", description="letters from a to z")] | None = None
    configs: dict[str, str] | None = None
    version: int | Literal["latest"] | None = None
    level: Level | None = None
    alias: str | UnsetType | None = UNSET
    reset: str | None = field(name="auto.offset.reset", default=None)


class Lenient(models.OpenModel):
    flag: bool = False


class Large(models.OpenModel):
    count: Annotated[int, Meta(ge=0)] = 0


READER = Reader[Body](Body)
LARGE = Reader[Large](Large)


def test_a_valid_body_becomes_its_model() -> None:
    body = READER.read(b'{"items": [{"key": {"a": [1]}, "octets": "AAE=", "partition": 3}], "auto.offset.reset": "x"}')

    assert (body.items[0].key, body.items[0].octets, body.items[0].partition) == ({"a": [1]}, b"\0\1", 3)
    assert (body.reset, body.alias) == ("x", UNSET)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", ["items, kind, name, configs, version, level, alias and "]),
        (b"{}", ["items"]),
        (b'{"items": []}', ["items"]),
        (b'{"items": null}', ["items", "null"]),
        (b'{"items": [7]}', ["items[0]", "key, octets and partition", "7"]),
        (b'{"items": [{}, {"partition": -1}]}', ["items[1].partition", "0 to 9", "-1"]),
        (b'{"items": [{"partition": true}]}', ["items[0].partition", "0 to 9", "true"]),
        (b'{"items": [{"partition": 1.5}]}', ["items[0].partition", "0 to 9", "1.5"]),
        (b'{"items": [{"octets": "A!"}]}', ["items[0].octets", "base64", '"A!"']),
        (b'{"items": [{"nmae": 1}]}', ["items[0].nmae", "key, octets and partition"]),
        (b'{"items": [{}], "kind": "c"}', ["kind", "a, b", '"c"']),
        (b'{"items": [{}], "name": "A1"}', ["name", "letters from a to z", '"A1"']),
        (b'{"items": [{}], "name": ["a"]}', ["name", "letters from a to z"]),
        (b'{"items": [{}], "configs": {"a": "1", "b.c": 2}}', ["configs.b.c", "2"]),
        (b'{"items": [{}], "version": {}}', ["version", "latest"]),
        (b'{"items": [{}], "alias": 1}', ["alias", "1"]),
        (b'{"items": [{}], "auto.offset.reset": 1}', ["auto.offset.reset", "1"]),
        (b'{"items": [{"key": 1e999}]}', ["items[0].key"]),
        (b'{"items": [{"key": "\\ud800"}]}', ["UTF-8"]),
        (b'{"items": [{"key": "\\ud800 and more text"}]}', ["UTF-8"]),
    ],
)
def test_a_mismatch_names_the_field_the_expected_value_and_the_value_found(body: bytes, words: list[str]) -> None:
    with pytest.raises(Mismatch) as refused:
        READER.read(body)

    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{} x", b'{"items": NaN}', b"\xff", b'{"items": "\xff"}', b"[" * 100_000, b"\xef\xbb\xbf{}"]
)
def test_bytes_that_are_not_json_are_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match="JSON"):
        READER.read(body)


def test_the_value_found_is_shortened() -> None:
    with pytest.raises(Mismatch) as refused:
        READER.read(b'{"items": [{"partition": "' + b"x" * 10_000 + b'"}]}')

    assert len(str(refused.value)) < 200


def test_an_open_model_ignores_fields_that_it_does_not_have() -> None:
    assert Reader[Lenient](Lenient).read(b'{"flag": true, "more": 1}').flag


def test_a_parsed_value_is_checked_as_its_text_is() -> None:
    with pytest.raises(Mismatch, match=r"items\[0\]\.partition\b.* 0 to 9.* 10"):
        READER.convert({"items": [{"partition": 10}]})


def test_schemas_describe_the_checks() -> None:
    (reference,), named = models.components([Body])

    assert reference == {"$ref": "#/components/schemas/Body"}
    assert named["Body"]["required"] == ["items"]
    assert named["Body"]["additionalProperties"] is False
    assert named["Item"]["properties"]["partition"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 9}
    assert named["Body"]["properties"]["auto.offset.reset"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


@pytest.mark.parametrize(
    "name",
    [
        "a` - at `$.items[" + "9" * 5_000 + "]",
        "a` - at `$" + "[...]" * 100_000,
        "a` - at `$." + "x" * 100_000,
        "a` - at `$.items[0].partition",
        "out of range" + "x" * 100_000,
        " - at `$" * 10_000,
    ],
)
def test_a_name_or_value_that_looks_like_a_place_is_refused_in_a_short_message(name: str) -> None:
    for body in ({name: 1}, {"items": [{name: 1}]}, {"items": [{}], "level": name}):
        with pytest.raises(Mismatch) as refused:
            READER.read(json.dumps(body).encode())

        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "value",
    [{"\ud800": 1}, {"items": [{"octets": "\ud800"}]}, {"items": [{}], "kind": "\ud800"}, {"items": [{"\ud800": 1}]}],
)
def test_a_parsed_value_with_half_a_surrogate_pair_is_a_misfit(value: object) -> None:
    with pytest.raises(Mismatch, match="UTF-8"):
        READER.convert(value)


def test_a_large_body_that_does_not_fit_is_not_parsed_to_explain_why() -> None:
    body = b'{"count": -1, "rest": [%b]}' % b", ".join([b"[]"] * EXPLAINED_BYTES_MAX)
    tracemalloc.start()
    try:
        with pytest.raises(Mismatch) as refused:
            LARGE.read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    with pytest.raises(Malformed):
        LARGE.read(body[:-2])

    assert str(refused.value) == "count: expected a whole number from 0"
    assert peak < 3 * len(body)
