"""Columns of a Stream's table, with a real API server, operator and data layer: what is declared, and what the status says otherwise."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.kubernetes import until
from fixtures.operator_scene import Scene, condition, is_synced, scene, stream
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The surroundings, with an operator that leads."""
    with scene(tmp_path_factory.mktemp("scene")) as made, made.operator() as operator:
        until("the operator leads", operator.is_ready, 2 * WAIT_S)
        yield made
        operator.stop()


def declare(found: Scene, name: str, *columns: tuple[str, str], **table: Any) -> None:
    """Apply a Stream with these columns (name, type)."""
    schema = [{"name": column, "type": type_} for column, type_ in columns]
    found.plane.apply(stream(name, table={"schema": schema, **table}))


def declared(found: Scene, name: str) -> str | None:
    """The columns that the data layer has."""
    known = found.data_layer().get(name)
    return None if known is None else known["configs"].get("table.columns")


def refusal(found: Scene, name: str) -> str:
    """The message of the condition Synced, once the data layer has refused the present spec."""

    def is_refused() -> bool:
        seen = found.streams()[name]
        is_seen = seen.get("status", {}).get("observedGeneration") == seen["metadata"]["generation"]
        return is_seen and condition(seen, "Synced") == ("False", "Refused")

    until(f"{name} is refused", is_refused, WAIT_S)
    conditions = found.streams()[name]["status"]["conditions"]
    message: str = next(shown["message"] for shown in conditions if shown["type"] == "Synced")
    return message


def test_columns_are_declared_added_and_kept_as_the_stream_says(found: Scene) -> None:
    def await_columns(text: str) -> None:
        until(
            f"the columns are {text}",
            lambda: is_synced(found.streams()["rows"]) and declared(found, "rows") == text,
            WAIT_S,
        )

    declare(found, "rows", ("id", "int"), ("two words", "list<decimal(4,1)>"))
    await_columns("`id` int, `two words` list<decimal(4,1)>")

    declare(found, "rows", ("id", "long"), ("two words", "list<decimal(4,1)>"), ("at", "timestamptz"))
    await_columns("`id` long, `two words` list<decimal(4,1)>, `at` timestamptz")

    change = {"name": "rows", "set_configs": {"table.columns": "id long, other string"}}
    found.admin("PATCH", "/v1/streams", {"streams": [change]})
    await_columns("`id` long, `two words` list<decimal(4,1)>, `at` timestamptz")


def test_a_column_that_would_get_another_type_keeps_its_own(found: Scene) -> None:
    declare(found, "typed", ("id", "long"))
    until("it is made", lambda: declared(found, "typed") == "`id` long", WAIT_S)

    declare(found, "typed", ("id", "string"))

    assert "column id cannot become string: declare another column" in refusal(found, "typed")
    assert declared(found, "typed") == "`id` long"


@pytest.mark.parametrize(
    ("columns", "more", "reason"),
    [
        ([("id", "number")], {}, "expected one of the types boolean"),
        ([("at", "time")], {}, "expected one of the types boolean"),
        ([("_offset", "long")], {}, "the name _offset is reserved"),
        ([("id", "long"), ("ID", "long")], {}, "the column ID is there twice"),
        ([("a\tb", "long")], {}, "printable"),
        ([("id", "map<long, string>")], {}, "the keys of a map are strings"),
        ([("id", "list<" * 17 + "int" + ">" * 17)], {}, "nested more than 16 levels"),
        ([("id", "struct<x long"), ("at", "date>")], {}, "the type of column 'id' is not one type"),
        ([("id", "long, more string")], {}, "the type of column 'id' is not one type"),
        ([(f"c{at}" + "x" * 100, "long") for at in range(700)], {}, "expected at most 65536"),
        ([("id", "long")], {"values": {"schemaId": 7}}, "unset table.value.schema_id"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused_with_the_reason(
    found: Scene, request: pytest.FixtureRequest, columns: list[tuple[str, str]], more: dict[str, Any], reason: str
) -> None:
    name = f"refused-{request.node.callspec.indices['reason']}"
    declare(found, name, *columns, **more)

    assert reason in refusal(found, name)
    assert declared(found, name) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "should have at least 1 items"),
        ([{"name": "a.b", "type": "long"}], "should match"),
        ([{"name": "a`b", "type": "long"}], "should match"),
        ([{"name": "", "type": "long"}], "should be at least 1 chars long"),
        ([{"name": "id"}], "type: Required value"),
        ([{"name": f"c{at}", "type": "long"} for at in range(1_001)], "must have at most 1000 items"),
    ],
)
def test_the_api_server_refuses_what_the_resource_cannot_say(
    found: Scene, schema: list[dict[str, str]], reason: str
) -> None:
    given = json.dumps(stream("never", table={"schema": schema}))
    answer = found.plane.kubectl("apply", "--dry-run=server", "-f", "-", given=given, is_checked=False)

    assert reason in answer
