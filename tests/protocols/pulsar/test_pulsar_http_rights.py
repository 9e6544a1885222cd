"""Rights in every route of Pulsar's HTTP API: nothing without a right, and everything with exactly the rights that the table names."""

from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.metadata.model import stream_number
from bearlake.protocols.pulsar.http.rights import NEEDED
from bearlake.streams.access.rights import on
from bearlake.streams.principal import Operation, Principal, Resource
from fixtures.pulsar_http import ask, filled
from fixtures.pulsar_server import PulsarNode
from fixtures.rights import EVERY, OnlyRights, all_but

Route = tuple[str, str]

NAMESPACE, TOPIC = "/admin/v2/namespaces/{tenant}/{namespace}", "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
SUBSCRIPTION, SCHEMAS = TOPIC + "/subscription/{subscription}", "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
RETENTION = {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
TEXT = {"type": "STRING", "schema": "", "properties": {}}
BODIES: dict[Route, Any] = {
    ("PUT", TOPIC + "/partitions"): 2,
    ("POST", TOPIC + "/partitions"): 3,
    ("PUT", SUBSCRIPTION): "earliest",
    ("POST", SUBSCRIPTION + "/resetcursor"): "earliest",
    ("POST", TOPIC + "/retention"): RETENTION,
    ("POST", TOPIC + "/deduplicationEnabled"): True,
    ("PUT", TOPIC + "/schemaCompatibilityStrategy"): "FULL",
    ("POST", NAMESPACE + "/retention"): RETENTION,
    ("POST", NAMESPACE + "/deduplication"): True,
    ("POST", NAMESPACE + "/permissions/{role}"): ["produce"],
    ("POST", TOPIC + "/permissions/{role}"): ["produce"],
    **{("POST", f"{SCHEMAS}/{what}"): TEXT for what in ("schema", "compatibility", "version")},
}
OF_PARTITIONED = {
    ("POST", TOPIC + "/partitions"),
    ("DELETE", TOPIC + "/partitions"),
    ("POST", TOPIC + "/terminate/partitions"),
    ("GET", TOPIC + "/partitioned-stats"),
    ("GET", TOPIC + "/partitioned-internalStats"),
    ("POST", SCHEMAS + "/schema"),
}
"""Routes that the tests ask about the partitioned topic, which has no schema."""
CREATIONS = {("PUT", TOPIC), ("PUT", TOPIC + "/partitions")}
SECURED = [route for route in NEEDED if NEEDED[route]]
NAMING = [route for route in SECURED if "{topic}" in route[1]]
STREAM = "acme..prod..t"


@pytest.fixture
async def node(pulsar: PulsarNode, session: aiohttp.ClientSession) -> PulsarNode:
    """A server with a namespace `acme/prod`: a topic `t` with messages, a schema, a subscription and a permission, and a partitioned topic
    `p`."""
    await filled(pulsar, "persistent://acme/prod/t", 3)
    base = "/admin/v2/persistent/acme/prod"
    for method, path, *body in (
        ("PUT", f"{base}/p/partitions", 2),
        ("PUT", f"{base}/t/subscription/s", "earliest"),
        ("PUT", f"{base}/t/schemaCompatibilityStrategy", "BACKWARD"),
        ("POST", "/admin/v2/namespaces/acme/prod/retention", RETENTION | {"retentionSizeInMB": 2}),
        ("POST", "/admin/v2/namespaces/acme/prod/deduplication", False),
        ("POST", "/admin/v2/schemas/acme/prod/t/schema", TEXT),
    ):
        status, answer = await ask(session, pulsar, method, path, *body)
        assert status < 300, answer
    literal = PatternKind.LITERAL
    rule = AccessRule(Resource.STREAM, STREAM, literal, "User:role", "*", Operation.READ, Permission.ALLOW)
    await pulsar.streams.access.create([rule])
    return pulsar


async def send(session: aiohttp.ClientSession, node: PulsarNode, route: Route, topic: str = "") -> tuple[int, Any]:
    """Send the request of a route about a topic; by default about the one that suits it."""
    method, pattern = route
    by_default = "new" if route in CREATIONS else "p" if route in OF_PARTITIONED else "t"
    view = await node.streams.catalog.resolve(STREAM)
    path = pattern.format(
        domain="persistent",
        tenant="acme",
        namespace="prod",
        topic=topic or by_default,
        cluster=node.member.cluster_id,
        subscription="new" if route == ("PUT", SUBSCRIPTION) else "s",
        policy="backlogQuotaMap",
        role="role",
        version=0,
        ledger=stream_number(view.partition(0)),
        entry=0,
        **dict.fromkeys(("position", "count", "age_s", "timestamp"), 1),
    )
    query = "?force=true" if method == "DELETE" and route != ("DELETE", SCHEMAS + "/schema") else ""
    body = [BODIES[route]] if route in BODIES else []
    return await ask(session, node, method, path + query, *body)


def is_refused(found: tuple[int, Any]) -> bool:
    """Whether an answer is a refusal for lack of rights, or a list without the topics of the scene."""
    status, body = found
    return status == 403 or (status == 200 and body in ([], ["public"]))


def test_the_table_of_rights_has_every_route(pulsar: PulsarNode) -> None:
    app = web.Application()
    pulsar.http.add_to(app.router)
    routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    assert set(NEEDED) == {route for route in routes if route[0] != "HEAD"}


async def test_every_route_is_refused_without_any_right(node: PulsarNode, session: aiohttp.ClientSession) -> None:
    node.streams.authorizer = OnlyRights([])
    allowed = [route for route in SECURED if not is_refused(await send(session, node, route))]
    assert not allowed


async def test_routes_without_rights_answer_everybody(node: PulsarNode, session: aiohttp.ClientSession) -> None:
    node.streams.authorizer = OnlyRights([])
    for route in set(NEEDED) - set(SECURED):
        status, body = await send(session, node, route)
        assert status in (200, 204, 501), (route, body)


async def test_a_refusal_does_not_reveal_whether_a_topic_exists(
    node: PulsarNode, session: aiohttp.ClientSession
) -> None:
    node.streams.authorizer = OnlyRights([])
    told = []
    for route in NAMING:
        for topic in ("t", "p", "absent", "p-partition-0", "p-partition-7"):
            status, body = await send(session, node, route, topic)
            if status != 403 or ("permissions" not in route[1] and f"/{topic}" not in body["reason"]):
                told.append((route, topic, status, body))
    assert not told


class OnStreams(OnlyRights):
    """Allows some operations on streams, and nothing else."""

    def __init__(self, **operations: Operation) -> None:
        super().__init__([])
        self._allowed = {(f"acme..prod..{name.replace('_', '-')}", operation) for name, operation in operations.items()}

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return kind is Resource.STREAM and (name, operation) in self._allowed


@pytest.mark.parametrize("route", sorted(CREATIONS), ids=" ".join)
async def test_creating_the_name_of_a_partition_does_not_tell_whether_there_is_its_topic(
    node: PulsarNode, session: aiohttp.ClientSession, route: Route
) -> None:
    create, describe = Operation.CREATE, Operation.DESCRIBE
    node.streams.authorizer = OnStreams(p_partition_0=create, q_partition_0=create)
    there, missing = [await send(session, node, route, f"{topic}-partition-0") for topic in "pq"]

    assert there[0] == missing[0] == 403
    assert there[1]["reason"].replace("prod/p", "prod/q") == missing[1]["reason"]
    for of_topic in (create, describe):
        node.streams.authorizer = OnStreams(p_partition_0=create, p=of_topic)
        assert (await send(session, node, route, "p-partition-0"))[0] == 409
    node.streams.authorizer = OnStreams(q_partition_0=create, q=describe)
    assert (await send(session, node, route, "q-partition-0"))[0] == 204


@pytest.mark.parametrize("route", SECURED, ids=" ".join)
async def test_every_route_needs_exactly_the_rights_of_the_table(
    node: PulsarNode, session: aiohttp.ClientSession, route: Route
) -> None:
    for right in NEEDED[route]:
        node.streams.authorizer = all_but(right)
        assert is_refused(await send(session, node, route)), right
    node.streams.authorizer = OnlyRights(NEEDED[route])
    found = await send(session, node, route)

    assert found[0] < 300, found
    assert not is_refused(found), found
    node.streams.authorizer = OnlyRights(EVERY)


async def test_a_namespace_is_changed_as_a_whole_or_not_at_all(
    node: PulsarNode, session: aiohttp.ClientSession
) -> None:
    route = ("POST", NAMESPACE + "/retention")
    await node.create("acme..prod..z-secret")
    alter = on(Resource.NAMESPACE, Operation.ALTER)
    node.streams.authorizer = ButOne("acme..prod..z-secret")
    status, body = await send(session, node, route)

    assert status == 403
    assert "secret" not in body["reason"]
    assert (await node.streams.catalog.resolve(STREAM)).stream.configs["retention.bytes"] == str(2 * 1024 * 1024)
    node.streams.authorizer = OnlyRights([*alter, *on(Resource.STREAM, Operation.ALTER)])
    assert (await send(session, node, route))[0] == 204


class ButOne(OnlyRights):
    """Allows everything but one stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(EVERY)
        self._stream = stream

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return kind is not Resource.STREAM or name != self._stream
