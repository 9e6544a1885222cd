"""The OpenAPI document and its page: the document is valid, and has exactly the routes and bodies that the server accepts."""

from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from bearlake.protocols.rest import operations
from fixtures.rest_server import RestNode


async def test_the_document_has_every_route_and_nothing_else(rest: RestNode) -> None:
    document = (await rest.get("/openapi.json")).body
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

    assert described == set(operations.OPERATIONS)
    assert all(operation["summary"] for path in document["paths"].values() for operation in path.values())


async def test_operations_have_unique_ids(rest: RestNode) -> None:
    document = (await rest.get("/openapi.json")).body
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]

    assert len(set(ids)) == len(ids)


async def test_the_page_shows_every_path(rest: RestNode) -> None:
    answer = await rest.get("/docs")

    assert answer.headers["Content-Type"].startswith("text/html")
    for _, path in operations.OPERATIONS:
        assert path in answer.body.decode()


async def test_the_document_is_valid(rest: RestNode) -> None:
    document = (await rest.get("/openapi.json")).body

    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/topics/{topic}", "application/vnd.kafka.binary.v2+json", {"records": [{"value": "YQ==", "partition": 0}]}),
        ("/topics/{topic}", "application/vnd.kafka.binary.v2+json", {"records": [{"value": 7}]}),
        ("/topics/{topic}", "application/vnd.kafka.binary.v2+json", {"records": []}),
        ("/topics/{topic}", "application/vnd.kafka.json.v2+json", {"records": [{"value": None, "partition": 2**31}]}),
        ("/topics/{topic}", "application/vnd.kafka.json.v2+json", {"records": [{"valeu": 1}]}),
        ("/topics/{topic}/partitions/{partition}", "application/vnd.kafka.json.v2+json", {"records": [{"value": 1}]}),
        (
            "/topics/{topic}/partitions/{partition}",
            "application/vnd.kafka.json.v2+json",
            {"records": [{"value": 1, "partition": 0}]},
        ),
        ("/v3/clusters/{cluster_id}/topics", "application/json", {"topic_name": "new", "partitions_count": 0}),
        ("/v3/clusters/{cluster_id}/topics", "application/json", {"topic_name": "new", "configs": [{"name": 1}]}),
        ("/v3/clusters/{cluster_id}/topics", "application/json", {"topic_name": "new", "partitions_count": 17}),
        ("/consumers/{group}", "application/vnd.kafka.v2+json", {"auto.commit.enable": "true", "format": "json"}),
        ("/consumers/{group}", "application/vnd.kafka.v2+json", {"fetch.min.bytes": "many"}),
        ("/consumers/{group}", "application/vnd.kafka.v2+json", {"name": "a/b"}),
    ],
)
async def test_the_server_accepts_a_body_if_and_only_if_the_document_allows_it(
    rest: RestNode, path: str, kind: str, body: Any
) -> None:
    await rest.create("t")
    document = (await rest.get("/openapi.json")).body
    schema = document["paths"][path]["post"]["requestBody"]["content"][kind]["schema"]
    places = {"topic": "t", "partition": 0, "cluster_id": rest.member.cluster_id, "group": "g"}
    answer = await rest.ask("POST", path.format(**places), body, headers={"Content-Type": kind})

    validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
    assert (answer.status < 300) is validator.is_valid(body), answer.body


async def test_the_page_loads_nothing_and_cannot_be_framed(rest: RestNode) -> None:
    headers = (await rest.get("/docs")).headers

    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
