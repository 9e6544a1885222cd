"""Registries that are hostile, broken or slow: what `consume --schemas` and `produce --value-schema` make of their answers."""

import json
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from bearlake.app import schema_values
from bearlake.app.schema_values import SchemaValues
from bearlake.errors import Denied, Invalid, NotFound, Overloaded, Unavailable
from bearlake.streams.schemas.confined.pool import Pool

HEAD = b"\0\0\0\0\1"
TEXT = HEAD + b"\2x"
"""The text `x`, if schema 1 is Avro's `string`."""
STRING = {"schema": '"string"'}


class Registry:
    """Answers by path; other paths are not found."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, path: str) -> Any:
        self.asked.append(path)
        found = self.answers.get(path, NotFound(path))
        if isinstance(found, Exception):
            raise found
        return json.loads(json.dumps(found))


@contextmanager
def values_of(ask: Any, told: list[str] | None = None) -> Iterator[SchemaValues]:
    values = SchemaValues(ask, ([] if told is None else told).append)
    try:
        yield values
    finally:
        values.close()


def schema(number: int, **answer: Any) -> Registry:
    return Registry({f"/schemas/ids/{number}": answer})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "{"}, "Invalid schema"),
        ({"schema": '{"type": "enum"}'}, "Invalid schema"),
        ({"schema": "[" * 100_000}, "maximum recursion depth"),
        ({"schema": "<x/>", "schemaType": "XML"}, "schemas of type 'XML' are unknown here"),
        ({"schema": '"string"', "schemaType": ["AVRO"]}, "are unknown here"),
        ({"schema": " " * 1024 * 1024 + '"string"'}, "a schema of more than 1048576 bytes"),
        (
            {"schema": '"a"', "references": [{"name": "a", "subject": "gone", "version": 1}]},
            "lacks a schema that it references",
        ),
    ],
)
def test_values_of_a_schema_that_cannot_be_used_are_left_as_they_are(answer: Mapping[str, Any], reason: str) -> None:
    told: list[str] = []
    registry = Registry({"/schemas/ids/1": answer, "/schemas/ids/2": STRING})
    with values_of(registry, told) as values:
        for _ in range(2):
            assert values.read([TEXT, b"\0\0\0\0\2\2y", TEXT]) == [TEXT, b'"y"', TEXT]
        asked = len(registry.asked)
        with pytest.raises(Invalid):
            values.chosen("1", "orders-value")

        assert len(registry.asked) == asked, "it is asked for once"
    (line,) = told
    assert line.startswith("values of schema 1 are left as they are: ")
    assert reason in line


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        7,
        {"schema": None},
        {"schema": 7},
        {"schema": {"type": "string"}},
        {"schema": "\ud800"},
        {"schema": "x", "references": [{}]},
        {"schema": "x", "references": 7},
        {"schema": "x", "references": [{"name": "n", "subject": "\ud800", "version": 1}]},
        {"schema": "x", "references": [{"name": "n", "subject": "s", "version": float("inf")}]},
        {"schema": "x", "references": [{"name": "n", "subject": "s", "version": "latest"}]},
        {"schema": "x", "references": [{"name": "n", "subject": "s", "version": -1}]},
        {"schema": "x", "references": [{"name": ["n"], "subject": "t", "version": 1}]},
        {"schema": "x", "references": [{"name": "n", "subject": "u", "version": 1}]},
        {"schema": "x", "references": [{"name": "n", "subject": "v", "version": 1}]},
    ],
)
def test_what_is_no_registry_ends_the_command(answer: Any) -> None:
    registry = Registry(
        {
            "/schemas/ids/1": answer,
            "/subjects/t/versions/1": STRING,
            "/subjects/u/versions/1": {"schema": 7},
            "/subjects/v/versions/1": [],
        }
    )
    with values_of(registry) as values:
        for use in (lambda: values.read([TEXT]), lambda: values.chosen("1", "orders-value")):
            with pytest.raises(Unavailable, match="sends no schema") as refused:
                use()
            assert len(str(refused.value)) < 400


@pytest.mark.parametrize("answer", [None, [], {}, {"id": None}, {"id": "1"}, {"id": -1}, {"id": 2**32}, {"id": 1e999}])
def test_what_has_no_newest_schema_is_no_registry(answer: Any) -> None:
    registry = Registry({"/subjects/orders-value/versions/latest": answer})
    with values_of(registry) as values, pytest.raises(Unavailable, match="sends no schema"):
        values.chosen("latest", "orders-value")


@pytest.mark.parametrize("what", ["-1", "4294967296", "9" * 5_000, "", "1.0", "newest"])
def test_what_names_no_schema_is_refused(what: str) -> None:
    registry = Registry({})
    with values_of(registry) as values, pytest.raises(Invalid, match="expected the id of a schema, or latest"):
        values.chosen(what, "orders-value")

    assert registry.asked == []


def test_a_reference_of_nothing_is_none() -> None:
    with values_of(schema(1, schemaType=None, references=None, **STRING)) as values:
        assert values.read([TEXT]) == [b'"x"']


def test_references_that_do_not_end_are_a_reason() -> None:
    def ask(path: str) -> Any:
        number = int(path.rpartition("/")[2])
        return {"schema": '"string"', "references": [{"name": f"r{number}", "subject": "s", "version": number + 1}]}

    told: list[str] = []
    with values_of(ask, told) as values:
        assert values.read([TEXT]) == [TEXT]

    assert told == ["values of schema 1 are left as they are: a schema with more than 256 references"]


def test_references_are_as_large_as_a_schema_in_all() -> None:
    def ask(path: str) -> Any:
        number = int(path.rpartition("/")[2])
        reference = {"name": f"r{number}", "subject": "s", "version": number + 1}
        return {"schema": '"string"' + " " * 300_000, "references": [reference]}

    told: list[str] = []
    with values_of(ask, told) as values:
        assert values.read([TEXT]) == [TEXT]

    (line,) = told
    assert "more than 1048576 bytes, with its references" in line


def test_references_in_a_circle_are_read_once() -> None:
    reference = {"name": "r", "subject": "s", "version": 1}
    registry = Registry({"/schemas/ids/1": {**STRING, "references": [reference]}})
    registry.answers = {**registry.answers, "/subjects/s/versions/1": {**STRING, "references": [reference]}}
    with values_of(registry) as values:
        values.read([TEXT])

    assert registry.asked == ["/schemas/ids/1", "/subjects/s/versions/1"]


def test_a_schema_that_the_registry_does_not_have_is_asked_for_once() -> None:
    registry = Registry({})
    told: list[str] = []
    with values_of(registry, told) as values:
        assert values.read([TEXT, None, b"", TEXT]) == [TEXT, None, b"", TEXT]
        assert values.read([TEXT]) == [TEXT]

    assert registry.asked == ["/schemas/ids/1"]
    assert told == []


@pytest.mark.parametrize("error", [Denied("no"), Unavailable("no answer")])
def test_a_registry_that_refuses_ends_the_command_and_is_asked_again(error: Exception) -> None:
    registry = Registry({"/schemas/ids/1": error})
    with values_of(registry) as values:
        for _ in range(2):
            with pytest.raises(type(error)):
                values.read([TEXT])

    assert len(registry.asked) == 2


def test_a_bounded_number_of_schemas_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_values, "KNOWN_COUNT_MAX", 2)
    registry = Registry({f"/schemas/ids/{number}": STRING for number in (1, 2)})
    with values_of(registry) as values:
        for number in (1, 2, 3, 1):
            values.read([b"\0\0\0\0" + bytes([number]) + b"\2x"])
        assert len(values._known) == 2  # noqa: SLF001 - what is kept

    assert [path.rpartition("/")[2] for path in registry.asked] == ["1", "2", "3", "1"]


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
def test_a_line_about_a_schema_does_not_repeat_all_of_it(kind: str) -> None:
    told: list[str] = []
    answer = {"schema": json.dumps({"type": "x" * 900_000}), "schemaType": kind}
    with values_of(schema(1, **answer), told) as values:
        assert values.read([TEXT]) == [TEXT]
        with pytest.raises(Invalid) as refused:
            values.chosen("1", "orders-value")

    (line,) = told
    assert len(line) < 400
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("work", ["compiled", "read"])
def test_a_machine_that_is_too_busy_is_asked_once_more(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    serve, failures = getattr(Pool, work), [Overloaded("come back later")]

    async def serve_later(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return await serve(*given)

    monkeypatch.setattr(Pool, work, serve_later)
    with values_of(Registry({f"/schemas/ids/{number}": STRING for number in (1, 2)})) as values:
        assert values.read([TEXT]) == [b'"x"']
        failures += [Overloaded("come back later")] * 2
        with pytest.raises(Overloaded):
            values.read([b"\0\0\0\0\1\2y"] if work == "read" else [b"\0\0\0\0\2\2y"])


@pytest.mark.parametrize("answers", [{}, {"/schemas/ids/1": {"schema": "{"}}], ids=["missing", "invalid"])
def test_values_of_a_schema_that_cannot_be_used_are_not_kept(answers: Mapping[str, Any]) -> None:
    value = HEAD + bytes(1_000_000)
    with values_of(Registry(answers)) as values:
        values.read([value])
        tracemalloc.start()
        try:
            for _ in range(20):
                assert values.read([value]) == [value]
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert kept_bytes < 5_000_000
