"""A request that a store did not answer: reads may be repeated (503), the outcome of changes is unknown (504)."""

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bearlake.errors import Unavailable
from bearlake.protocols.rest.iceberg.guard import CatalogGuard
from bearlake.protocols.rest.iceberg.rights import NEEDED, PLAN, SQL, TABLE, TABLES, TASKS, live, planned
from bearlake.protocols.rest.iceberg.settings import CatalogSettings

CHANGES = {route for route in NEEDED if route[0] not in ("GET", "HEAD")} - {
    ("POST", live(TABLE)),
    ("POST", live(TABLE) + "/metrics"),
    ("POST", planned(TABLE)),
    ("POST", planned(TABLE) + "/metrics"),
    ("POST", planned(PLAN)),
    ("DELETE", planned(PLAN) + "/{plan}"),
    ("POST", planned(TASKS)),
    ("POST", SQL),
}


async def fail(_: web.Request) -> web.Response:
    raise Unavailable("no answer")


async def answers() -> dict[tuple[str, str], tuple[int, str]]:
    """What each route answers if a store does not answer."""
    app = CatalogGuard(CatalogSettings()).application()
    for method, path in NEEDED:
        app.router.add_route(method, path, fail)
    found = {}
    async with TestClient(TestServer(app)) as client:
        for method, path in NEEDED:
            words = {"namespace": "live", "table": "v1", "plan": "sql"}
            async with client.request(method, path.format(**words)) as response:
                kind = "" if method == "HEAD" else (await response.json())["error"]["type"]
                found[method, path] = response.status, kind
    return found


async def test_only_changes_have_an_unknown_outcome() -> None:
    found = await answers()

    assert ("POST", TABLES) in CHANGES
    assert {route for route, answer in found.items() if answer[0] == 504} == CHANGES
    assert {kind for _, kind in found.values()} == {"", "CommitStateUnknownException", "ServiceUnavailableException"}
    assert found["POST", SQL] == (503, "ServiceUnavailableException")
