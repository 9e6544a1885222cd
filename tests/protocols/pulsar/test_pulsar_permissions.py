"""Permissions of Pulsar's namespaces and topics: the answers of Pulsar's admin API, and the access rules behind them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource, RuleFilter
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.access.control import AccessSettings
from fixtures.logins import Logins
from fixtures.pulsar_http import Call, ask
from fixtures.pulsar_server import Make, PulsarNode

NAMESPACE = "/admin/v2/namespaces/acme/prod/permissions"
TOPIC = "/admin/v2/persistent/acme/prod/orders/permissions"
ANYBODY = AccessSettings(super_users=["User:ANONYMOUS"], allow_if_no_rule=False)


@pytest.fixture
async def node(pulsar_cluster: Make) -> PulsarNode:
    """A server whose callers without login are super users."""
    return (await pulsar_cluster(1, access=ANYBODY))[0]


@pytest.fixture
def call(node: PulsarNode, session: aiohttp.ClientSession) -> Call:
    return lambda method, path, *body, **options: ask(session, node, method, path, *body, **options)


async def rules(node: PulsarNode) -> Sequence[AccessRule]:
    return await node.streams.access.list(RuleFilter())


def allow(name: str, pattern: PatternKind, operation: Operation, principal: str = "User:alice") -> AccessRule:
    return AccessRule(Resource.STREAM, name, pattern, principal, "*", operation, Permission.ALLOW)


async def test_permissions_of_a_namespace_are_rules_for_the_prefix_of_its_streams(node: PulsarNode, call: Call) -> None:
    assert await call("POST", f"{NAMESPACE}/alice", ["produce", "consume"]) == (204, None)

    prefix = "acme..prod..", PatternKind.PREFIXED
    assert await rules(node) == [allow(*prefix, Operation.READ), allow(*prefix, Operation.WRITE)]
    assert await call("GET", NAMESPACE) == (200, {"alice": ["produce", "consume"]})
    assert await call("DELETE", f"{NAMESPACE}/alice") == (204, None)
    assert await rules(node) == []
    assert await call("GET", NAMESPACE) == (200, {})
    assert await call("DELETE", f"{NAMESPACE}/alice") == (204, None)


async def test_permissions_of_a_topic_are_rules_for_its_stream(node: PulsarNode, call: Call) -> None:
    assert await call("POST", f"{TOPIC}/alice", ["consume"]) == (204, None)
    assert await call("POST", "/admin/v2/persistent/public/default/a%20b/permissions/b%2Fob", ["produce"]) == (
        204,
        None,
    )

    literal = PatternKind.LITERAL
    other = allow("public..default..a...20b", literal, Operation.WRITE, "User:b/ob")
    assert await rules(node) == [allow("acme..prod..orders", literal, Operation.READ), other]
    assert await call("DELETE", f"{TOPIC}/alice") == (204, None)
    assert await rules(node) == [other]
    status, body = await call("DELETE", f"{TOPIC}/alice")
    assert (status, body["reason"]) == (412, "Permissions are not set at the topic level")


async def test_a_topic_has_the_permissions_of_its_namespace_too(call: Call) -> None:
    await call("POST", f"{NAMESPACE}/alice", ["consume"])
    await call("POST", f"{NAMESPACE}/bob", ["consume"])
    await call("POST", f"{TOPIC}/alice", ["produce"])

    assert await call("GET", TOPIC) == (200, {"alice": ["produce", "consume"], "bob": ["consume"]})
    assert await call("GET", NAMESPACE) == (200, {"alice": ["consume"], "bob": ["consume"]})
    assert (await call("DELETE", f"{TOPIC}/bob"))[0] == 412


async def test_a_grant_replaces_the_permissions_of_the_role_and_no_other_rule(node: PulsarNode, call: Call) -> None:
    prefix = "acme..prod..", PatternKind.PREFIXED
    alice = allow(*prefix, Operation.READ)
    kept = [
        allow(*prefix, Operation.CREATE),
        allow(*prefix, Operation.ALL),
        allow(*prefix, Operation.READ, "Group:alice"),
        allow(*prefix, Operation.READ, "User:*"),
        alice._replace(permission=Permission.DENY),
        alice._replace(host="10.0.0.1"),
        alice._replace(pattern=PatternKind.LITERAL),
        alice._replace(resource=Resource.GROUP),
    ]
    await node.streams.access.create([*kept, alice])

    assert await call("GET", NAMESPACE) == (200, {"alice": ["consume"]})
    assert await call("POST", f"{NAMESPACE}/alice", ["produce"]) == (204, None)
    assert await call("GET", NAMESPACE) == (200, {"alice": ["produce"]})
    assert set(await rules(node)) == {*kept, allow(*prefix, Operation.WRITE)}
    assert await call("DELETE", f"{NAMESPACE}/alice") == (204, None)
    assert set(await rules(node)) == set(kept)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_public_default_has_no_permissions_of_its_own(node: PulsarNode, call: Call, method: str) -> None:
    """Its streams have no prefix in common with each other: a rule for all of them would cover other namespaces."""
    path = "/admin/v2/namespaces/public/default/permissions"
    status, body = await call(method, f"{path}/alice", *([["produce"]] if method == "POST" else []))

    assert status == 501
    assert "grant permissions on topics" in body["reason"]
    assert await call("GET", path) == (200, {})
    assert await rules(node) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (["functions"], 501),
        (["produce", "packages"], 501),
        (["sources"], 501),
        (["sinks"], 501),
        (["Produce"], 400),
        (["read"], 400),
        ("produce", 400),
        ({"produce": True}, 400),
        ([1], 400),
        (None, 400),
    ],
)
async def test_unknown_actions_are_refused_by_name(node: PulsarNode, call: Call, body: Any, status: int) -> None:
    for path in (NAMESPACE, TOPIC):
        found, answer = await call("POST", f"{path}/alice", body)
        assert found == status
        assert "produce" in answer["reason"]
        if status == 501:
            assert body[-1] in answer["reason"]
    assert await rules(node) == []


@pytest.mark.parametrize("path", [NAMESPACE, TOPIC])
async def test_a_role_cannot_stand_for_everybody(node: PulsarNode, call: Call, path: str) -> None:
    assert (await call("POST", f"{path}/*", ["produce"]))[0] == 412
    assert await rules(node) == []


async def test_a_partition_has_no_permissions(node: PulsarNode, call: Call) -> None:
    path = "/admin/v2/persistent/acme/prod/orders-partition-0/permissions"
    for method, below, *body in (("GET", ""), ("POST", "/alice", ["produce"]), ("DELETE", "/alice")):
        assert (await call(method, path + below, *body))[0] == 405


async def test_permissions_are_for_those_who_may_alter_rules_whatever_is_allowed_by_default(
    pulsar: PulsarNode, session: aiohttp.ClientSession
) -> None:
    for path in (NAMESPACE, TOPIC):
        for method, below, *body in (("GET", ""), ("POST", "/alice", ["produce"]), ("DELETE", "/alice")):
            assert (await ask(session, pulsar, method, path + below, *body))[0] == 403
    assert await rules(pulsar) == []


Produce = Callable[[str, str], Awaitable[int | None]]


@pytest.fixture
async def secured(pulsar_cluster: Make, logins: Logins) -> PulsarNode:
    """A server that allows only what a rule allows; root may do everything."""
    access = AccessSettings(super_users=["User:root"], allow_if_no_rule=False)
    return (await pulsar_cluster(1, authentication=logins.settings(), access=access))[0]


@pytest.fixture
def produce(secured: PulsarNode, logins: Logins) -> Produce:
    """`await produce(user, topic)`: the error of a new producer; None if it is open."""

    async def open_one(user: str, topic: str) -> int | None:
        token = logins.token(sub=user).encode()
        client = await secured.client(auth_method_name="token", auth_data=token)
        answer = await client.produce(topic)
        return None if isinstance(answer, pb.CommandProducerSuccess) else answer.error

    return open_one


async def test_a_permission_lets_in_only_its_role(
    secured: PulsarNode, produce: Produce, session: aiohttp.ClientSession, logins: Logins
) -> None:
    for stream in ("acme..prod..orders", "acme..prod2..orders", "orders"):
        await secured.create(stream)
    topics = ["acme/prod/orders", "acme/prod2/orders", "orders"]
    root = logins.bearer(sub="root")
    assert (await ask(session, secured, "POST", f"{NAMESPACE}/alice", ["produce"], headers=logins.bearer()))[0] == 403
    assert [await produce("alice", topic) for topic in topics] == [pb.AuthorizationError] * 3

    assert await ask(session, secured, "POST", f"{NAMESPACE}/alice", ["produce"], headers=root) == (204, None)
    assert [await produce("alice", topic) for topic in topics] == [None, pb.AuthorizationError, pb.AuthorizationError]
    assert [await produce("bob", topic) for topic in topics] == [pb.AuthorizationError] * 3
    assert await ask(session, secured, "DELETE", f"{NAMESPACE}/alice", headers=root) == (204, None)
    assert await produce("alice", topics[0]) == pb.AuthorizationError
