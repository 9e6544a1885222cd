"""Bodies, names and lists that a client of the Iceberg REST catalog may send or cause: an answer, never a stopped server."""

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from bearlake.metadata.model import Stream
from bearlake.protocols.rest.iceberg.planned import PlannedTables
from bearlake.streams.catalog import StreamView
from fixtures.catalog_server import catalog_server
from fixtures.guarded_table import TABLE, Scene, scene
from fixtures.held import held_at_most

__all__ = ["scene"]

DEEP = "[" * 100_000 + "]" * 100_000
VALUES: list[Any] = [5, "x", None, [], [[]], [5], {"x": [5]}, {"": ""}, -1, 1e300, True]
FIELDS = {
    "/v1/namespaces": ("namespace", "properties"),
    "/v1/namespaces/streams/properties": ("removals", "updates"),
    "/v1/namespaces/streams/tables": (
        *("name", "schema", "location", "properties", "partition-spec", "write-order", "stage-create"),
    ),
    "/v1/namespaces/streams/register": ("name", "metadata-location", "overwrite"),
    TABLE: ("updates", "requirements"),
    "/v1/tables/rename": ("source", "destination"),
}
VALID = {
    "name": "t",
    "namespace": ["n"],
    "schema": {"type": "struct", "schema-id": 0, "fields": []},
    "metadata-location": "file:///etc/passwd",
    "source": {"namespace": ["streams"], "name": "orders"},
    "destination": {"namespace": ["streams"], "name": "o2"},
    "updates": [],
    "requirements": [],
    "stage-create": True,
}


async def test_no_body_is_an_internal_error(scene: Scene) -> None:
    """Every field of every route with a value of another type."""
    actions = ["add-snapshot", "add-schema", "set-location", "set-properties", "remove-properties", "set-statistics"]
    statuses = dict[tuple[str, str], int]()
    for path, fields in FIELDS.items():
        bodies: list[Any] = [5, "x", None, [], {}, *({**VALID, name: value} for name in fields for value in VALUES)]
        if path == TABLE:
            bodies += [
                {**VALID, "updates": [{"action": action, **m}]} for action in actions for m in ({}, {"updates": 5})
            ]
        for body in bodies:
            answer = await scene.server.ask("POST", path, body)
            statuses[path, json.dumps(body)[:300]] = answer.status

    assert {key: status for key, status in statuses.items() if status >= 500} == {}
    await scene.compact(3, 10, 12)


async def test_bodies_that_expand_to_many_values_are_refused_before_they_are_parsed(scene: Scene) -> None:
    many = json.dumps({"updates": [[]] * 300_000, "requirements": []}).encode()
    updates = json.dumps({"updates": [{"action": "x"}] * 20_000, "requirements": []}).encode()
    report = b"[" + b"[]," * 200_000 + b"[]]"
    await scene.server.ask("POST", TABLE, {"updates": [], "requirements": []})
    async with held_at_most():
        answers = [
            await scene.server.ask("POST", path, None, data=io.BytesIO(octets))
            for path, octets in ((TABLE, many), (TABLE, updates), (TABLE, DEEP.encode()), (f"{TABLE}/metrics", report))
        ]

    assert [answer.status for answer in answers] == [413, 403, 400, 204]
    assert "catalog.warehouse.update_count_max" in answers[1].body["error"]["message"]


@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "x" * 256, "a%E2%80%AEb", "%1F", "a%1F"])
async def test_names_that_no_sql_catalog_stores_are_refused_as_wrong_and_not_as_an_outage(
    scene: Scene, name: str
) -> None:
    """PostgreSQL refuses NUL and 256 characters; its error looked like an outage, after which clients try again."""
    answers = [
        await scene.server.ask("GET", f"/v1/namespaces/{name}"),
        await scene.server.ask("GET", f"/v1/namespaces/{name}/tables/x"),
        await scene.server.ask("GET", f"/v1/live/namespaces/{name}/tables/x"),
    ]
    if not name.endswith("%1F"):
        answers.append(await scene.server.ask("GET", f"/v1/namespaces/streams/tables/{name}"))

    assert [(answer.status, answer.error) for answer in answers] == [(400, "BadRequestException")] * len(answers)


async def test_names_with_slashes_and_letters_of_all_languages_are_names(tmp_path: Path) -> None:
    async with catalog_server(tmp_path) as server:
        for name in ("a/b", "a b", "böse", "名前", "a%b"):
            await server.client(lambda catalog, name=name: catalog.create_namespace((name,)))  # type: ignore[misc]
            body = {"name": name, "schema": {"type": "struct", "schema-id": 0, "fields": []}}
            path = f"/v1/namespaces/{name.replace('%', '%25').replace('/', '%2F')}/tables"
            made = await server.ask("POST", path, body)
            assert made.status == 200, made
            assert ".." not in made.body["metadata"]["location"]


class ManyStreams:
    """A catalog of streams that changes when a test says so."""

    def __init__(self, count: int) -> None:
        self.version = 1
        self.asked = 0
        self._views = [StreamView(_stream(number)) for number in range(count)]

    def views(self) -> list[StreamView]:
        """All streams."""
        self.asked += 1
        return self._views


def _stream(number: int) -> Stream:
    name = f"s.{number}"
    return Stream(name=name, id=uuid.UUID(int=number), number=number, partition_count=1, configs={}, created_ms=0)


async def test_tables_of_many_streams_are_found_in_turns_and_once(tmp_path: Path) -> None:
    streams: Any = ManyStreams(20_000)
    planned = PlannedTables(streams)

    async with held_at_most():
        first = await planned.find()
        again = await planned.find()
    streams.version += 1
    await planned.find()

    assert first is again
    assert first.by_name["streams", "s_7"].name == "s.7"
    assert streams.asked == 2
