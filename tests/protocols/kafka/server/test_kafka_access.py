"""Access rules in every Kafka API: nothing without a right, and everything with exactly the rights that the table of rights names."""

import asyncio

import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.users import CredentialChange
from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.rights import NEEDED
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.access.control import AccessSettings
from fixtures.kafka_server import batch_of, fetch_request
from fixtures.kafka_world import World, find_codes
from fixtures.logins import LOGIN_MS
from fixtures.waiting import until

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
CASES = [(api.key, api.version_max) for api in apis.APIS]
IDS = [api.key.name.lower() for api in apis.APIS]
CLOSED = AccessSettings(super_users=["User:root"], allow_if_no_rule=False)


class LoggedIn:
    """A server as one user sees it."""

    def __init__(self, node, user):
        self.node, self.user = node, user
        self.create = node.create

    async def client(self, *arguments, **options):
        client = await self.node.client(*arguments, **options)
        await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await client.ask(m.SaslAuthenticateRequest(auth_bytes=f"\0{self.user}\0secret".encode()), 2)
        assert answer.error_code == 0
        return client

    def __getattr__(self, name):
        return getattr(self.node, name)


async def closed_cluster(kafka_cluster, count=1, access=CLOSED, **options):
    cluster = await kafka_cluster(
        count, authentication=AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS), access=access, **options
    )
    credential = create_credential("SCRAM-SHA-512", "secret", 4096)
    changes = [CredentialChange(name, credential.mechanism, credential) for name in ("root", "alice", "admin")]
    await cluster.metadata.users.change(changes, revision=0)
    return cluster


@pytest.fixture
async def node(kafka_cluster):
    """A server where only root may do anything."""
    return (await closed_cluster(kafka_cluster))[0]


NAMES = {
    Resource.STREAM: "*",
    Resource.GROUP: "*",
    Resource.TRANSACTIONAL_ID: "*",
    Resource.CLUSTER: "kafka-cluster",
}


def allow(operation, resource=Resource.STREAM, name=None, **fields):
    return AccessRule(
        resource,
        name or NAMES[resource],
        fields.get("pattern", PatternKind.LITERAL),
        fields.get("principal", "User:alice"),
        fields.get("host", "*"),
        operation,
        fields.get("permission", Permission.ALLOW),
    )


async def world_of(node):
    """The world that root made, with alice as its client."""
    world = await World().open(LoggedIn(node, "root"))
    world.client = await LoggedIn(node, "alice").client()
    return world


def is_refused(key, answer):
    if key is ApiKey.LIST_GROUPS:
        return not answer.groups
    if key is ApiKey.LIST_TRANSACTIONS:
        return not answer.transaction_states
    if key is ApiKey.STREAMS_GROUP_HEARTBEAT and any(
        "nauthorized" in status.status_detail for status in answer.status or ()
    ):
        return True
    return bool(REFUSALS & set(find_codes(answer)))


MADE_BY_CLUSTER = {ApiKey.CREATE_TOPICS, ApiKey.INIT_PRODUCER_ID, ApiKey.STREAMS_GROUP_HEARTBEAT}
"""What these need for a name, the same right on the cluster gives, too."""


def test_the_table_of_rights_has_every_api():
    assert set(NEEDED) == {api.key for api in apis.APIS}


@pytest.mark.parametrize(("key", "version"), CASES, ids=IDS)
async def test_every_api_is_refused_without_any_right(node, key, version):
    world = await world_of(node)
    answer = await world.client.ask(world.request(key, version)[0], version)

    assert is_refused(key, answer) is bool(NEEDED[key]), answer


@pytest.mark.parametrize(("key", "version"), [case for case in CASES if NEEDED[case[0]]], ids=str)
async def test_every_api_needs_exactly_the_rights_of_the_table(node, key, version):
    world = await world_of(node)
    rules = [allow(*right) for right in NEEDED[key]]
    all_rules = [allow(operation, kind) for kind in NAMES for operation in Operation if operation is not Operation.ALL]
    for right in NEEDED[key]:
        implying = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE}
        same = implying if right.operation is Operation.DESCRIBE else {right.operation}
        if right.operation is Operation.DESCRIBE_CONFIGS:
            same = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
        cluster = Operation.IDEMPOTENT_WRITE if key is ApiKey.INIT_PRODUCER_ID else right.operation
        others = [
            rule
            for rule in all_rules
            if not (rule.resource is right.resource and rule.operation in same)
            and not (key in MADE_BY_CLUSTER and rule.operation is cluster)
            and not (key is ApiKey.LIST_GROUPS and rule.resource is Resource.CLUSTER)
        ]
        await replace(node, others)
        await world.prepare(key)
        assert is_refused(key, await world.client.ask(world.request(key, version)[0], version)), right
    await replace(node, rules)
    await world.prepare(key)
    request, codes = world.request(key, version)
    answer = await world.client.ask(request, version)

    assert not is_refused(key, answer), answer
    assert set(find_codes(answer)) <= {0, ErrorCode.RESOURCE_NOT_FOUND, *(int(code) for code in codes)}


async def replace(node, rules):
    access = node.streams.metadata.access
    present = await access.read()
    await access.change(created=rules, deleted=present.rules, revision=present.revision)
    await node.streams.access.refresh()


async def test_a_rule_made_on_one_server_holds_on_the_other(kafka_cluster):
    cluster = await closed_cluster(kafka_cluster, 2)
    await cluster[0].create("t")
    alice = await LoggedIn(cluster[1], "alice").client()
    assert (await alice.produce("t", batch_of(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    await cluster[0].streams.access.create([allow(Operation.WRITE, name="t")])
    await until(lambda: cluster[1].streams.access.revision == 1)
    assert (await alice.produce("t", batch_of(b"a"))).error_code == 0

    await cluster[0].streams.access.create([allow(Operation.WRITE, name="t", permission=Permission.DENY)])
    await until(lambda: cluster[1].streams.access.revision == 2)
    assert (await alice.produce("t", batch_of(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_fetch_that_waits_returns_nothing_once_its_right_is_gone(node, monkeypatch):
    await node.create("t")
    await node.streams.access.create([allow(Operation.READ, name="t")])
    alice = await LoggedIn(node, "alice").client()
    root = await LoggedIn(node, "root").client()
    fetch, waits = node.streams.fetch, asyncio.Event()

    def begun(*arguments, **options):
        waits.set()
        return fetch(*arguments, **options)

    monkeypatch.setattr(node.streams, "fetch", begun)
    alice.send(fetch_request([("t", 0, 0)], wait_ms=60_000, bytes_min=1), 12)
    await waits.wait()
    await replace(node, [])
    await root.produce("t", batch_of(b"secret"))
    partition = (await alice.receive()).responses[0].partitions[0]

    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not partition.records


async def test_a_user_named_admin_has_no_more_rights_than_others(node):
    await node.create("t")
    admin = await LoggedIn(node, "admin").client()

    assert (await admin.produce("t", batch_of(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_without_rules_and_settings_everybody_may_do_everything_but_change_rules(kafka):
    client = await kafka.client()
    await kafka.create("t")
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0

    [answer] = (await client.ask(m.CreateAclsRequest(creations=[creation()]), 3)).results
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    described = await client.ask(any_filter(m.DescribeAclsRequest), 3)
    assert described.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "`bearlake access`" in described.error_message
    assert (await kafka.streams.metadata.access.read()).revision == 0


async def test_a_rule_for_a_host_holds_for_clients_at_that_address_only(kafka_cluster):
    cluster = await kafka_cluster(1)
    await cluster[0].create("t")
    client = await cluster[0].client()
    deny = {"principal": "User:*", "permission": Permission.DENY}
    await cluster[0].streams.access.create(
        [allow(Operation.WRITE, principal="User:*"), allow(Operation.WRITE, host="10.0.0.1", **deny)]
    )
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0

    await cluster[0].streams.access.create([allow(Operation.WRITE, host="127.0.0.1", **deny)])
    assert (await client.produce("t", batch_of(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_authorized_operations_are_those_of_the_caller(node):
    await node.create("t")
    await node.streams.access.create([allow(Operation.READ, name="t"), allow(Operation.DESCRIBE, Resource.CLUSTER)])
    alice = await LoggedIn(node, "alice").client()
    request = m.MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    answer = await alice.ask(request, 10)

    assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    assert answer.cluster_authorized_operations == 1 << 8
    await replace(node, [])
    assert (await alice.ask(request, 10)).topics == []


# -- the APIs of rules -------------------------------------------------------------------------------------------------


def creation(name="t", kind=2, pattern=3, principal="User:alice", host="*", operation=3, permission=3):
    return m.CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def any_filter(made, kind=1, name=None, pattern=1, principal=None, host=None, operation=1, permission=1):
    return made(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )


@pytest.fixture
async def root(node):
    return await LoggedIn(node, "root").client()


async def create(client, *creations):
    answer = await client.ask(m.CreateAclsRequest(creations=list(creations)), 3)
    return [result.error_code for result in answer.results]


async def names(client, **fields):
    answer = await client.ask(any_filter(m.DescribeAclsRequest, **fields), 3)
    assert answer.error_code == 0
    return sorted(
        (resource.resource_type, resource.resource_name, resource.pattern_type, len(resource.acls))
        for resource in answer.resources
    )


async def test_rules_are_listed_as_they_were_created(root):
    assert (
        await create(root, creation(), creation(operation=4, host="10.0.0.1"), creation("g", 3), creation()) == [0] * 4
    )

    answer = await root.ask(any_filter(m.DescribeAclsRequest), 3)
    found = [
        (resource.resource_type, resource.resource_name, resource.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type)
        for resource in answer.resources
        for acl in resource.acls
    ]  # fmt: skip
    assert sorted(found) == [
        (2, "t", 3, "User:alice", "*", 3, 3),
        (2, "t", 3, "User:alice", "10.0.0.1", 4, 3),
        (3, "g", 3, "User:alice", "*", 3, 3),
    ]


async def test_filters_select_as_in_kafka(root):
    await create(
        root, creation("orders"), creation("*"), creation("ord", pattern=4), creation("orders", pattern=4),
        creation("orders", 3), creation("other", principal="User:*"),
    )  # fmt: skip

    assert await names(root, kind=2, name="orders", pattern=3) == [(2, "orders", 3, 1)]
    assert await names(root, kind=2, name="orders", pattern=1) == [(2, "orders", 3, 1), (2, "orders", 4, 1)]
    assert await names(root, kind=2, name="orders", pattern=2) == [
        (2, "*", 3, 1),
        (2, "ord", 4, 1),
        (2, "orders", 3, 1),
        (2, "orders", 4, 1),
    ]
    assert await names(root, kind=2, name="orders", pattern=4) == [(2, "orders", 4, 1)]
    assert await names(root, principal="User:*") == [(2, "other", 3, 1)]
    assert await names(root, operation=4) == []
    assert len(await names(root)) == 6


async def test_deleted_rules_are_returned_for_each_filter(root):
    await create(root, creation("a"), creation("b"), creation("c"))
    filters = [any_filter(m.DeleteAclsRequest.Filter, name=name) for name in ("a", "absent")]
    answer = await root.ask(m.DeleteAclsRequest(filters=[*filters, filters[0]]), 3)

    assert [[rule.resource_name for rule in result.matching_acls] for result in answer.filter_results] == [
        ["a"],
        [],
        ["a"],
    ]
    assert [name for _, name, *_ in await names(root)] == ["b", "c"]


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": 0}, {"kind": 1}, {"kind": 6}, {"kind": 99}, {"pattern": 0}, {"pattern": 1}, {"pattern": 2},
        {"operation": 0}, {"operation": 1}, {"operation": 99}, {"permission": 0}, {"permission": 1}, {"principal": "alice"},
        {"principal": "Server:bearlake"}, {"principal": "User:"}, {"name": ""}, {"kind": 4, "name": "t"}, {"host": ""},
    ],
    ids=str,
)  # fmt: skip
async def test_an_invalid_rule_does_not_affect_others(root, bad):
    assert await create(root, creation(**bad), creation("good")) == [ErrorCode.INVALID_REQUEST, 0]
    assert await names(root) == [(2, "good", 3, 1)]


@pytest.mark.parametrize("bad", [{"kind": 0}, {"pattern": 0}, {"operation": 0}, {"permission": 0}], ids=str)
async def test_an_invalid_filter_is_refused(root, bad):
    await create(root, creation())
    described = await root.ask(any_filter(m.DescribeAclsRequest, **bad), 3)
    assert described.error_code == ErrorCode.INVALID_REQUEST
    [deleted] = (
        await root.ask(m.DeleteAclsRequest(filters=[any_filter(m.DeleteAclsRequest.Filter, **bad)]), 3)
    ).filter_results
    assert deleted.error_code == ErrorCode.INVALID_REQUEST
    assert len(await names(root)) == 1


async def test_rules_for_subjects_are_neither_listed_nor_deleted(node, root):
    kept = allow(Operation.READ, Resource.SUBJECT, "s")
    await node.streams.access.create([kept, allow(Operation.READ)])

    assert await names(root) == [(2, "*", 3, 1)]
    await root.ask(m.DeleteAclsRequest(filters=[any_filter(m.DeleteAclsRequest.Filter)]), 3)
    assert (await node.streams.metadata.access.read()).rules == [kept]
