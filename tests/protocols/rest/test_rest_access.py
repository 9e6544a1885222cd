"""Access in every REST route: nothing without a right, and everything with exactly the rights that the table names."""

import json
from typing import Any

import pytest

from bearlake.protocols.rest.rights import NEEDED
from bearlake.streams.access.rights import Right
from bearlake.streams.principal import SERVER, Operation, Principal, Resource
from fixtures.rest_server import Answer, MakeServers, RestNode
from fixtures.rights import EVERY, OnlyRights, all_but
from fixtures.share_groups import begin_share_group

ROUTES = list(NEEDED)
IDS = [f"{method} {path}" for method, path in ROUTES]
PARTITIONS = {"partitions": [{"topic": "t", "partition": 0}]}
VALUE = {"records": [{"value": "dg=="}]}
CONSUMER, STREAM, TOPIC = (
    "/consumers/{group}/instances/{instance}",
    "/v1/stream/{name}",
    "/v3/clusters/{cluster_id}/topics/{topic}",
)
JSON = {"Content-Type": "application/json"}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/topics/{topic}"): VALUE,
    ("POST", "/topics/{topic}/partitions/{partition}"): VALUE,
    ("POST", "/consumers/{group}"): {"name": "other"},
    ("POST", CONSUMER + "/subscription"): {"topics": ["t"]},
    ("POST", CONSUMER + "/assignments"): PARTITIONS,
    ("GET", CONSUMER + "/offsets"): PARTITIONS,
    ("POST", CONSUMER + "/positions"): {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    ("POST", CONSUMER + "/positions/beginning"): PARTITIONS,
    ("POST", CONSUMER + "/positions/end"): PARTITIONS,
    ("PUT", STREAM): b"",
    ("POST", STREAM): b"v",
    ("POST", STREAM + "/{partition}"): b"v",
    ("POST", "/v3/clusters/{cluster_id}/topics"): {"topic_name": "new", "partitions_count": 1},
    ("PATCH", TOPIC): {"partitions_count": 2},
    ("POST", TOPIC + "/configs:alter"): {"data": [{"name": "retention.ms", "value": "77"}]},
    ("PUT", TOPIC + "/configs/{config}"): {"value": "77"},
    ("POST", TOPIC + "/records"): {"value": {"type": "STRING", "data": "v"}},
    ("POST", TOPIC + "/records:read"): {"start": "earliest"},
    ("POST", "/v3/clusters/{cluster_id}/consumer-groups/{group}/offsets:reset"): {"topic_name": "t", "to": "earliest"},
    ("POST", "/v3/clusters/{cluster_id}/share-groups/{group}/offsets:reset"): {"topic_name": "t", "to": "earliest"},
    ("POST", TOPIC + "/subscriptions/{subscription}/offsets:reset"): {"to": "earliest"},
}


@pytest.fixture
async def node(rest: RestNode) -> RestNode:
    """A server with a topic with two records, and an instance that has read and committed the first."""
    await rest.create("t")
    assert (await rest.post("/topics/t", VALUE, kind="binary")).status == 200
    instance = "/consumers/g/instances/i"
    created = await rest.post("/consumers/g", {"name": "i", "auto.offset.reset": "earliest"})
    assert created.status == 200
    assert (await rest.post(f"{instance}/assignments", PARTITIONS)).status == 204
    while not (await rest.get(f"{instance}/records")).body:
        pass
    assert (await rest.post(f"{instance}/offsets")).status == 200
    assert (await rest.post("/topics/t", VALUE, kind="binary")).status == 200
    assert (await rest.post("/consumers/g", {"name": "subscriber"})).status == 200
    await begin_share_group(rest.streams, "s", "t", 0)
    partition = (await rest.streams.catalog.resolve("t")).partition(0)
    count = await rest.streams.metadata.cursors.deletion_count(partition)
    await rest.streams.metadata.cursors.create(partition, "sub", mark_delete=0, properties={}, after=count)
    return rest


async def ask(node: RestNode, route: tuple[str, str], name: str = "") -> Answer:
    """Send a request about the topic `name`; by default about `t`, or `new` if the request creates it."""
    method, pattern = route
    topic = name or "t"
    names = {"topic": topic, "name": topic, "partition": "0", "group": "g", "instance": "i", "config": "retention.ms"}
    names["subscription"] = "sub"
    if pattern == CONSUMER + "/subscription":  # an instance with an assignment cannot subscribe
        names["instance"] = "subscriber"
    if "/share-groups" in pattern:
        names["group"] = "s"
    if method == "PUT" and pattern == STREAM and not name:
        names["name"] = "new"
    path = pattern.format(**names, cluster_id=node.member.cluster_id, broker=node.member.node_id)
    body = BODIES.get(route)
    options: dict[str, Any] = {}
    if pattern.startswith(STREAM):
        options = {"headers": {"Content-Type": "application/octet-stream"}} if body is not None else {}
    elif pattern.startswith("/v3"):
        options = {"headers": JSON} if body is not None else {}
    elif pattern.startswith("/topics") and method == "POST":
        return await node.ask(method, path, body, kind="binary")
    return await node.ask(method, path, body, **options)


def is_refused(answer: Answer) -> bool:
    """Whether the answer is an error for lack of rights, or an empty list."""
    found = answer.body
    if isinstance(found, bytes) and b'"error_code"' in found:  # a report of the v3 API
        found = json.loads(found)
    if answer.status == 200 and isinstance(found, dict) and "error_code" in found:
        return found["error_code"] in (403, 404, 40301, 40403)
    is_empty = answer.status == 200 and (found == [] or (isinstance(found, dict) and found.get("data") == []))
    return answer.status in (403, 404) or is_empty


class Client(OnlyRights):
    """Allows clients these rights, and the server everything."""

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return who.kind == SERVER or super().allows(who, operation, kind, name)


NO_LIST_HERE = {
    ("GET", f"/v3/clusters/{{cluster_id}}/{kind}-groups/{{group}}/consumers") for kind in ("consumer", "share")
}
"""The groups of the scene have no members: their lists are empty for everybody."""


async def test_the_table_of_rights_has_every_route(rest: RestNode) -> None:
    paths = (await rest.get("/openapi.json")).body["paths"]
    methods = {"get", "put", "post", "delete", "head", "patch"}
    assert set(NEEDED) == {(name.upper(), path) for path, item in paths.items() for name in item if name in methods}


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
async def test_every_route_is_refused_without_any_right(node: RestNode, route: tuple[str, str]) -> None:
    node.streams.authorizer = OnlyRights([])
    assert is_refused(await ask(node, route)) is bool(NEEDED[route])


@pytest.mark.parametrize("route", [route for route in ROUTES if NEEDED[route]], ids=str)
async def test_a_refusal_does_not_reveal_whether_a_topic_exists(node: RestNode, route: tuple[str, str]) -> None:
    node.streams.authorizer = OnlyRights([])
    present, absent = await ask(node, route, "t"), await ask(node, route, "absent")
    assert present.status == absent.status


@pytest.mark.parametrize("route", [route for route in ROUTES if NEEDED[route]], ids=str)
async def test_every_route_needs_exactly_the_rights_of_the_table(node: RestNode, route: tuple[str, str]) -> None:
    for right in NEEDED[route]:
        node.streams.authorizer = all_but(right)
        assert is_refused(await ask(node, route)), right
    node.streams.authorizer = OnlyRights([*NEEDED[route]])
    answer = await ask(node, route)

    assert answer.status < 400, answer
    assert route in NO_LIST_HERE or not is_refused(answer), answer
    node.streams.authorizer = OnlyRights(EVERY)


@pytest.mark.parametrize("creates", [True, False])
async def test_a_refused_write_does_not_reveal_whether_a_partition_exists(
    rest_servers: MakeServers, creates: bool
) -> None:
    [node] = await rest_servers(1, auto_create_streams=creates)
    await node.create("t")
    node.streams.authorizer = OnlyRights([])
    asked = ["/topics/t/partitions/0", "/topics/t/partitions/7", "/topics/absent/partitions/7", "/topics/absent"]
    assert {(await node.post(path, VALUE, kind="binary")).status for path in asked} == {403}


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("http.expires.at", "2001-01-01T00:00:00Z"),
        ("http.ttl.seconds", "1"),
        ("http.deleted", "true"),
        ("http.incomplete", "true"),
        ("http.used.at", "1"),
    ],
)
async def test_to_make_a_stream_expire_needs_the_right_to_delete_it(rest: RestNode, config: str, value: str) -> None:
    await rest.create("t")
    path = f"/v3/clusters/{rest.member.cluster_id}/topics/t/configs"
    alters = [Right(operation, Resource.STREAM) for operation in (Operation.DESCRIBE, Operation.ALTER_CONFIGS)]
    rest.streams.authorizer = Client(alters)
    assert (await rest.ask("PUT", f"{path}/{config}", {"value": value}, headers=JSON)).status == 403
    assert (await rest.ask("PUT", f"{path}/retention.ms", {"value": "77"}, headers=JSON)).status == 204

    rest.streams.authorizer = Client([*alters, Right(Operation.DELETE, Resource.STREAM)])
    assert (await rest.ask("PUT", f"{path}/{config}", {"value": value}, headers=JSON)).status == 204


async def test_the_right_to_delete_is_enough_for_a_stream_with_forks(rest: RestNode) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    assert (await rest.ask("PUT", "/v1/stream/source", b"v", headers=kind)).status == 201
    fork = {**kind, "Stream-Forked-From": "/v1/stream/source"}
    assert (await rest.ask("PUT", "/v1/stream/fork", b"", headers=fork)).status == 201
    rest.streams.authorizer = Client([Right(Operation.DELETE, Resource.STREAM)])

    assert (await rest.ask("DELETE", "/v1/stream/source")).status == 204
