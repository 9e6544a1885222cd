"""The audit log names who did what over which listener, in every protocol; it is written by one place for all of them."""

import json
import logging
from typing import Any

import grpc
import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandUnsubscribe
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.access.control import AccessSettings
from bearlake.telemetry.logs import JsonFormatter
from fixtures.grpc_server import GrpcNode
from fixtures.kafka_server import batch_of
from fixtures.kafka_world import World
from fixtures.logins import LOGIN_MS
from fixtures.pulsar_server import PulsarNode
from fixtures.rest_server import RestNode

SUPER_USER_ACCESS = AccessSettings(super_users=["User:ANONYMOUS"])
JSON = {"Content-Type": "application/json"}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def of(self, outcome: str) -> list[tuple[str, str, str]]:
        found = [line for line in self.lines if line["outcome"] == outcome]
        return [(line["listener"], line["operation"], line["resource"]) for line in found]


@pytest.fixture
def lines() -> Any:
    handler = Lines()
    log = logging.getLogger("bearlake.audit")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


CHANGES = {
    ApiKey.CREATE_TOPICS: ("Create", "Topic"),
    ApiKey.DELETE_TOPICS: ("Delete", "Topic"),
    ApiKey.DELETE_RECORDS: ("Delete", "Topic"),
    ApiKey.CREATE_PARTITIONS: ("Alter", "Topic"),
    ApiKey.ALTER_CONFIGS: ("AlterConfigs", "Topic"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("AlterConfigs", "Topic"),
    ApiKey.DELETE_GROUPS: ("Delete", "Group"),
    ApiKey.OFFSET_DELETE: ("Delete", "Group"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("Alter", "User"),
    ApiKey.CREATE_ACLS: ("Create", "AccessRule"),
    ApiKey.DELETE_ACLS: ("Delete", "AccessRule"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("AlterConfigs", "Quota"),
}
"""Kafka's requests that change something, and what the log says of them."""


@pytest.mark.parametrize("key", CHANGES, ids=lambda key: key.name)
async def test_every_change_of_kafka_is_noted(kafka_cluster: Any, lines: Lines, key: ApiKey) -> None:
    node = (await kafka_cluster(1, access=SUPER_USER_ACCESS))[0]
    world = await World().open(node)
    lines.lines.clear()
    if key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        request: Any = scram()
    else:
        request = world.request(key, apis.BY_KEY[key].version_max)[0]
    await world.client.ask(request, apis.BY_KEY[key].version_max)
    operation, kind = CHANGES[key]
    noted = [line for line in lines.lines if (line["operation"], line["resource"].split(":")[0]) == (operation, kind)]

    assert noted, lines.lines
    assert {(line["who"], line["address"], line["listener"]) for line in noted} == {
        ("User:ANONYMOUS", "127.0.0.1", "kafka")
    }


def scram() -> m.AlterUserScramCredentialsRequest:
    r = m.AlterUserScramCredentialsRequest
    upsertion = r.Upsertion(
        name="alice", mechanism=2, iterations=4096, salt=b"salty-salty-salt", salted_password=b"\x07" * 64
    )
    return r(upsertions=[upsertion])


async def test_credentials_are_not_in_the_log(kafka_cluster: Any, lines: Lines) -> None:
    node = (await kafka_cluster(1, access=SUPER_USER_ACCESS))[0]
    client = await node.client()
    [answer] = (await client.ask(scram(), 0)).results

    assert answer.error_code == 0
    [line] = lines.lines
    assert (line["resource"], line["detail"]) == ("User:alice", "set SCRAM-SHA-512")
    assert "salty" not in json.dumps(lines.lines)


async def test_values_of_configs_are_not_in_the_log(rest: RestNode, lines: Lines) -> None:
    path = f"/v3/clusters/{rest.member.cluster_id}/topics"
    await rest.post(path, {"topic_name": "a", "partitions_count": 1}, headers=JSON)
    await rest.put(f"{path}/a/configs/retention.ms", {"value": "86400017"}, headers=JSON)

    assert lines.of("done") == [("rest", "Create", "Topic:a"), ("rest", "AlterConfigs", "Topic:a")]
    assert "retention.ms" in lines.lines[1]["detail"]
    assert "86400017" not in json.dumps(lines.lines)


async def test_a_denied_request_of_kafka_is_noted_once(kafka: Any, lines: Lines) -> None:
    await kafka.create("t")
    rule = AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:*", "*", Operation.WRITE, Permission.DENY)
    await kafka.streams.access.create([rule])
    client = await kafka.client()
    lines.lines.clear()
    await client.produce("t", batch_of(b"a"))
    await client.ask(m.MetadataRequest(topics=None), 9)

    assert lines.of("denied") == [("kafka", "Write", "Topic:t")]


async def deny(node: Any) -> None:
    """Deny everything, by the rules of the deployment."""
    rules = [
        AccessRule(kind, "*", PatternKind.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY) for kind in Resource
    ]
    await node.streams.access.create(rules)


async def test_rest_notes_denials_and_changes(rest: RestNode, lines: Lines) -> None:
    path = f"/v3/clusters/{rest.member.cluster_id}/topics"
    assert (await rest.post(path, {"topic_name": "a", "partitions_count": 1}, headers=JSON)).status == 201
    await deny(rest)
    assert (await rest.delete(f"{path}/a")).status in (403, 404)
    await rest.get(path)

    assert lines.of("done") == [("rest", "Create", "Topic:a")]
    assert {resource for _, _, resource in lines.of("denied")} == {"Topic:a"}


async def test_grpc_notes_denials_and_changes(grpc_node: GrpcNode, lines: Lines) -> None:
    await grpc_node.call(methods.CREATE_STREAM, pb.CreateStreamRequest(name="a", partition_count=1))
    await deny(grpc_node)
    with pytest.raises(grpc.aio.AioRpcError):
        await grpc_node.call(methods.DELETE_STREAM, pb.DeleteStreamRequest(name="a"))

    assert lines.of("done") == [("grpc", "Create", "Topic:a")]
    assert {resource for _, _, resource in lines.of("denied")} == {"Topic:a"}


async def test_pulsar_notes_denials_and_changes(pulsar: PulsarNode, lines: Lines) -> None:
    client = await pulsar.client()
    await client.produce("a")
    await client.subscribe("a")
    await client.ask("unsubscribe", CommandUnsubscribe(consumer_id=1))
    await deny(pulsar)
    refused = await (await pulsar.client()).produce("a", 2)
    missing = await (await pulsar.client()).produce("missing", 3)

    assert refused.error
    assert missing.error
    assert [resource for _, _, resource in lines.of("denied")] == ["Topic:a", "Topic:missing"]
    assert [(operation, resource.split(":")[0]) for _, operation, resource in lines.of("done")] == [
        ("Create", "Topic"),
        ("Delete", "Subscription"),
    ]
    assert {(listener, operation) for listener, operation, _ in lines.of("denied")} == {("pulsar", "Write")}


async def test_a_refused_login_is_noted_without_the_password(kafka_cluster: Any, lines: Lines) -> None:
    node = (await kafka_cluster(1, authentication=AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS)))[0]
    client = await node.client()
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)

    await client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"), 2)

    [line] = lines.lines
    assert (line["who"], line["operation"], line["resource"]) == ("User:alice", "Login", "PLAIN")
    assert (line["address"], line["listener"], line["outcome"]) == ("127.0.0.1", "kafka", "denied")
    assert "hunter2" not in json.dumps(lines.lines)
