"""Callers without rights: what refusals reveal to them, and what their requests cost the server."""

from dataclasses import replace

import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.users import CredentialChange
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.access.control import AccessSettings
from bearlake.streams.catalog import StreamView
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.kafka_server import batch_of
from fixtures.logins import LOGIN_MS

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rule(operation, resource, name, permission=Permission.ALLOW, principal="User:alice"):
    return AccessRule(resource, name, PatternKind.LITERAL, principal, "*", operation, permission)


@pytest.fixture
async def node(kafka_cluster):
    """A server with the topic `t`, to which only root has rights."""
    access = AccessSettings(super_users=["User:root"], allow_if_no_rule=False)
    cluster = await kafka_cluster(
        1, authentication=AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS), access=access
    )
    made = create_credential("SCRAM-SHA-512", "secret", 4096)
    changes = [CredentialChange(name, made.mechanism, made) for name in ("root", "alice")]
    await cluster.metadata.users.change(changes, revision=0)
    await cluster[0].create("t")
    return cluster[0]


async def login(node, user="alice"):
    client = await node.client()
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(m.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    assert answer.error_code == 0
    return client


async def test_a_refused_fetch_does_not_reveal_whether_the_topic_exists(node):
    alice = await login(node)

    assert [(await alice.fetch(name, 0)).error_code for name in ("t", "absent")] == [DENIED, DENIED]


async def test_a_refused_produce_does_not_reveal_whether_the_topic_exists(node):
    alice = await login(node)

    assert [(await alice.produce(name, batch_of())).error_code for name in ("t", "absent")] == [DENIED, DENIED]


async def test_config_resources_are_those_that_the_caller_may_describe(node):
    await node.create("seen")
    await node.streams.access.create(
        [
            rule(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, "kafka-cluster"),
            rule(Operation.DESCRIBE, Resource.STREAM, "seen"),
        ]
    )
    alice = await login(node)
    answer = await alice.ask(m.ListConfigResourcesRequest(resource_types=[2]), 1)

    assert [resource.resource_name for resource in answer.config_resources] == ["seen"]


async def test_long_names_that_no_topic_has_are_not_kept(node):
    alice = await login(node)
    r = m.ListOffsetsRequest
    names = [f"{at}-" + "x" * 30_000 for at in range(200)]
    topics = [r.Topic(name=name, partitions=[r.Partition(partition_index=0, timestamp=-1)]) for name in names]
    answer = await alice.ask(r(replica_id=-1, topics=topics), 7)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {DENIED}

    [connection] = node.server.connections
    assert sum(map(len, connection.who.grants.masks)) < 100_000


async def test_rights_on_many_topics_do_not_hold_the_loop(node, monkeypatch):
    """A caller with many groups asks for all topics."""
    catalog = node.streams.catalog
    stream = catalog.peek("t").stream
    names = [f"topic-{number}" for number in range(100_000)]
    views = {name: StreamView(replace(stream, name=name)) for name in names}
    await node.streams.access.create([rule(Operation.DESCRIBE, Resource.STREAM, "topic-1", principal="Group:g7")])
    alice = await login(node)
    await alice.ask(m.MetadataRequest(topics=None), 12)
    monkeypatch.setattr(catalog, "names", lambda: names)
    monkeypatch.setattr(catalog, "peek", views.get)
    [connection] = node.server.connections
    connection.who = replace(connection.who, groups=frozenset(f"g{number}" for number in range(200)))

    async with held_at_most(2 * LIMIT_S):
        answer = await alice.ask(m.MetadataRequest(topics=None), 11)

    assert [topic.name for topic in answer.topics] == ["topic-1"]
