"""The OpenAPI document and its page: every route is in it, and nothing else."""

from bearlake.protocols.rest import operations
from fixtures.rest_server import RestNode


async def test_the_document_has_every_route_and_nothing_else(rest: RestNode) -> None:
    document = (await rest.get("/openapi.json")).body
    described = {(method.upper(), path) for path, some in document["paths"].items() for method in some}

    assert described == set(operations.OPERATIONS)
    assert all(some["summary"] for path in document["paths"].values() for some in path.values())


async def test_operations_have_ids_of_their_own(rest: RestNode) -> None:
    document = (await rest.get("/openapi.json")).body
    ids = [some["operationId"] for path in document["paths"].values() for some in path.values()]

    assert len(set(ids)) == len(ids)


async def test_the_page_shows_every_path(rest: RestNode) -> None:
    answer = await rest.get("/docs")

    assert answer.headers["Content-Type"].startswith("text/html")
    for _, path in operations.OPERATIONS:
        assert path in answer.body.decode()
