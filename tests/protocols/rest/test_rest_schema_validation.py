"""Validation by schemas for REST: an error for each bad record, and none for the others."""

import base64
import json

import pytest

from fixtures.avro_cases import number, record, text
from fixtures.registered import register
from fixtures.rest_server import RestNode


@pytest.fixture(params=["memory", "postgresql"])
def rest_metadata_url(request: pytest.FixtureRequest) -> str:
    """The metadata store of the servers."""
    return "memory:///" if request.param == "memory" else str(request.getfixturevalue("postgresql_url"))


JSON = {"Content-Type": "application/json"}


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def order(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text("x") + number(7)


async def orders(node: RestNode, **configs: str) -> int:
    await node.create("orders", **(configs or {"schema_validation": "value"}))
    return await register(node.streams.metadata, record("string", "long"))


async def end(node: RestNode) -> int:
    view = await node.streams.catalog.find("orders")
    return (await node.streams.bounds(view.partitions()))[view.partition(0)].end


async def test_v2_has_an_error_for_each_bad_record_and_stores_the_others(rest: RestNode) -> None:
    schema_id = await orders(rest)
    values = [order(schema_id), b"none", order(schema_id)[:-1], None, order(schema_id)]
    records = [{"value": None if value is None else b64(value)} for value in values]

    answer = await rest.post("/topics/orders", {"records": records}, kind="binary")

    found = answer.body["offsets"]
    assert answer.status == 200
    assert [item["error_code"] for item in found] == [None, 1, 1, None, None]
    assert "expected a schema id" in found[1]["error"]
    assert "TRUNCATED at f1" in found[2]["error"]
    assert await end(rest) == 3


async def test_values_that_the_server_serializes_are_good(rest: RestNode) -> None:
    await orders(rest)
    schema = json.dumps(record("string", "long"))

    body = {"value_schema": schema, "records": [{"value": {"f0": "x", "f1": 7}}]}
    answer = await rest.post("/topics/orders", body, kind="avro")

    assert (answer.status, answer.body["offsets"][0]["error_code"]) == (200, None)


async def test_v3_answers_each_record(rest: RestNode) -> None:
    schema_id = await orders(rest)
    (cluster,) = (await rest.get("/v3/clusters")).body["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/orders/records"

    def item(value: bytes) -> dict[str, object]:
        return {"value": {"type": "BINARY", "data": b64(value)}}

    good = await rest.post(path, item(order(schema_id)), headers=JSON)
    bad = await rest.post(path, item(b"none"), headers=JSON)

    assert good.body["error_code"] == 200
    assert bad.body["error_code"] == 422
    assert "expected a schema id" in bad.body["message"]
    assert await end(rest) == 1


async def test_an_append_of_http_is_whole_or_nothing(rest: RestNode) -> None:
    schema_id = await orders(rest, schema_validation="id")

    bad = await rest.ask("POST", "/v1/stream/orders", b"none", headers={"Content-Type": "application/octet-stream"})
    good = await rest.ask(
        "POST", "/v1/stream/orders", order(schema_id), headers={"Content-Type": "application/octet-stream"}
    )

    assert bad.status == 422
    assert good.status in (200, 204)
    assert await end(rest) == 1


async def test_a_stream_gets_the_setting_through_rest(rest: RestNode) -> None:
    (cluster,) = (await rest.get("/v3/clusters")).body["data"]
    configs = [{"name": "schema.validation", "value": "id"}, {"name": "schema.key.validation", "value": "value"}]
    body = {"topic_name": "orders", "partitions_count": 1, "configs": configs}

    answer = await rest.post(f"/v3/clusters/{cluster['cluster_id']}/topics", body)
    view = await rest.streams.catalog.find("orders")

    assert answer.status == 201
    assert view.rules.schemas is not None
    assert view.rules.schemas.key is not None
