"""Rights in every route of the Iceberg REST catalog: nothing without a right, and everything with exactly the rights that the table names.

A refusal does not tell whether a table exists.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.protocols.rest.iceberg.rights import (
    CREDENTIALS,
    NAMESPACE,
    NAMESPACES,
    NEEDED,
    PLAN,
    PLAN_RESULT,
    SQL,
    TABLE,
    TABLES,
    TASKS,
    live,
    planned,
)
from bearlake.streams.access.rights import DESCRIBE_STREAM, Right
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from bearlake.table.warehouse.scans import Scan
from fixtures.catalog_server import Answer, CatalogNode, catalog_server
from fixtures.rights import EVERY, OnlyRights, all_but
from fixtures.tables import commit_of

Route = tuple[str, str]

ROUTES = list(NEEDED)
IDS = [f"{method} {path}" for method, path in ROUTES]
READ_ONLY = {("POST", live(TABLE)), ("POST", planned(TABLE))}
"""Nobody may commit to a live view: `test_iceberg_live.py`."""
OF_HELD_PLANS = {(method, planned(PLAN_RESULT)) for method in ("GET", "DELETE")}
"""No server holds this scene's plans, because they are short: `test_iceberg_planned.py`."""
OF_KEYS = {("GET", path) for path in (CREDENTIALS, live(CREDENTIALS), planned(CREDENTIALS))}
"""This server gives no keys: `test_iceberg_vending.py`."""
SECURED = [route for route in ROUTES if NEEDED[route] and route not in READ_ONLY | OF_HELD_PLANS | OF_KEYS]
OF_TABLES = [route for route in SECURED if route[1] == TABLE or route[1].endswith("/rename")]
EMPTY = {"type": "struct", "schema-id": 0, "fields": []}
NEW = {"name": "new", "schema": EMPTY}


class Switch(Authorizer):
    """Asks another authorizer, which tests set."""

    def __init__(self) -> None:
        self.now: Authorizer = OnlyRights(EVERY)

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return self.now.allows(who, operation, kind, name)


class Scene:
    """A catalog with the table of the stream `orders`, another table `mine`, a dropped one whose metadata may be registered, and the empty
    namespace `lab`."""

    def __init__(self, server: CatalogNode, rights: Switch, snapshot_id: int, metadata: str) -> None:
        self.server = server
        self.rights = rights
        self._snapshot_id = snapshot_id
        self._metadata = metadata

    async def ask(self, route: Route, *, is_absent: bool = False) -> Answer:
        """Send the request of a route, about what exists or about what does not."""
        method, pattern = route
        table = "mine" if method == "DELETE" else "orders"
        names = {"namespace": "lab" if pattern.startswith(NAMESPACE) and TABLES not in pattern else "streams"}
        if pattern.endswith("/register"):
            names = {"namespace": "streams"}
        path = pattern.format(**names, table="absent" if is_absent else table, plan="plan")
        return await self.server.ask(method, path, self._body(route, "absent" if is_absent else "mine"))

    def _body(self, route: Route, table: str) -> Any:
        branch = {"ref-name": "b", "type": "branch", "snapshot-id": self._snapshot_id}
        updates = [
            {"action": "set-snapshot-ref", **branch},
            {"action": "set-properties", "updates": {"comment": "x"}},
        ]
        bodies: dict[Route, Any] = {
            ("POST", NAMESPACES): {"namespace": ["new"]},
            ("POST", NAMESPACE + "/properties"): {"removals": [], "updates": {"comment": "x"}},
            ("POST", TABLES): NEW,
            ("POST", NAMESPACE + "/register"): {"name": "again", "metadata-location": self._metadata},
            ("POST", TABLE): {"requirements": [], "updates": updates},
            ("POST", TABLE + "/metrics"): {},
            ("POST", planned(PLAN)): {},
            ("POST", planned(TASKS)): {"plan-task": Scan(snapshot_id=self._snapshot_id).plan_task(0)},
            ("POST", SQL): {"statement": "select * from orders"},
            ("POST", "/v1/tables/rename"): {
                "source": {"namespace": ["streams"], "name": table},
                "destination": {"namespace": ["streams"], "name": "moved"},
            },
        }
        return bodies.get(route)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    rights = Switch()
    async with catalog_server(tmp_path, rights) as server:
        stream, work = await server.stream("orders")
        await server.tables.commit(stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
        await server.ask("POST", "/v1/namespaces/streams/tables", {"name": "mine", "schema": EMPTY})
        made = await server.ask("POST", "/v1/namespaces/streams/tables", {"name": "gone", "schema": EMPTY})
        await server.ask("DELETE", "/v1/namespaces/streams/tables/gone")
        assert (await server.ask("POST", "/v1/namespaces", {"namespace": ["lab"]})).status == 200
        state = await server.tables.state(stream)
        assert state is not None
        assert state.snapshot_id is not None
        yield Scene(server, rights, state.snapshot_id, made.body["metadata-location"])


def is_refused(answer: Answer, route: Route) -> bool:
    """Whether the answer is an error for lack of rights, or an empty list."""
    is_list = isinstance(answer.body, dict) and answer.body.get("identifiers") == []
    is_statement = route == ("POST", SQL)  # its tables do not exist for a caller without rights
    is_unknown = is_statement and answer.status == 400 and "does not exist" in answer.body["error"]["message"]
    return answer.status in (403, 404) or is_unknown or (answer.status == 200 and is_list)


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
async def test_every_route_is_refused_without_any_right(scene: Scene, route: Route) -> None:
    scene.rights.now = OnlyRights([])

    assert is_refused(await scene.ask(route), route) is bool(NEEDED[route])


@pytest.mark.parametrize("route", SECURED, ids=str)
async def test_every_route_needs_exactly_the_rights_of_the_table(scene: Scene, route: Route) -> None:
    for right in NEEDED[route]:
        scene.rights.now = all_but(right)
        assert is_refused(await scene.ask(route), route) or right in DESCRIBE_STREAM, right
    scene.rights.now = OnlyRights([*NEEDED[route]])
    answer = await scene.ask(route)

    assert answer.status < 300, answer
    assert not is_refused(answer, route), answer


@pytest.mark.parametrize("route", OF_TABLES, ids=str)
async def test_a_refusal_does_not_reveal_whether_a_table_exists(scene: Scene, route: Route) -> None:
    scene.rights.now = OnlyRights([])

    present, absent = await scene.ask(route), await scene.ask(route, is_absent=True)

    assert present.status == absent.status == 404
    if route[0] != "HEAD":
        assert present.error == absent.error == "NoSuchTableException"


async def test_a_commit_that_would_create_a_table_does_not_reveal_whether_it_exists(scene: Scene) -> None:
    scene.rights.now = OnlyRights([])
    body = {"requirements": [{"type": "assert-create"}], "updates": []}

    answers = [
        await scene.server.ask("POST", f"/v1/namespaces/streams/tables/{name}", body) for name in ("orders", "absent")
    ]

    assert [(answer.status, answer.error) for answer in answers] == [(404, "NoSuchTableException")] * 2


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.ALTER])
async def test_a_commit_of_snapshots_needs_write_and_one_of_properties_alter(
    scene: Scene, operation: Operation
) -> None:
    scene.rights.now = OnlyRights([*DESCRIBE_STREAM, Right(operation, Resource.STREAM)])
    path = "/v1/namespaces/streams/tables/orders"
    rows = {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": "none"}]}
    rest = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"comment": "x"}}]}

    statuses = [(await scene.server.ask("POST", path, body)).status for body in (rows, rest)]

    allowed = [operation is Operation.WRITE, operation is Operation.ALTER]
    assert [status != 403 for status in statuses] == allowed
