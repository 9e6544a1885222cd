"""Policies in the admin API: those of topics are stream configs, those of namespaces are defaults, others are refused with a reason."""

import json

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.principal import Authorizer
from fixtures.pulsar_http import Call, filled
from fixtures.pulsar_server import PulsarNode

T = "/admin/v2/persistent/public/default/t"
N = "/admin/v2/namespaces/public/default"
ACME = "/admin/v2/persistent/acme/prod"
ACME_N = "/admin/v2/namespaces/acme/prod"
RETENTION = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 10}


def configs(pulsar: PulsarNode) -> dict[str, str]:
    view = pulsar.streams.catalog.peek("t")
    assert view is not None
    return dict(view.stream.configs)


async def test_the_retention_of_a_topic_is_that_of_its_stream(pulsar: PulsarNode, call: Call) -> None:
    await call("PUT", T)
    assert await call("GET", f"{T}/retention") == (204, None)
    assert await call("GET", f"{T}/retention?applied=true") == (
        200,
        {"retentionTimeInMinutes": 10080, "retentionSizeInMB": -1},
    )

    assert await call("POST", f"{T}/retention", RETENTION) == (204, None)

    assert await call("GET", f"{T}/retention") == (200, RETENTION)
    assert configs(pulsar)["retention.ms"] == "5400000"
    assert configs(pulsar)["retention.bytes"] == "10485760"
    assert await call("DELETE", f"{T}/retention") == (204, None)
    assert await call("GET", f"{T}/retention") == (204, None)


async def test_retention_without_limits(pulsar: PulsarNode, call: Call) -> None:
    await call("PUT", f"{T}/partitions", 2)
    unlimited = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}

    await call("POST", f"{T}/retention", unlimited)

    assert await call("GET", f"{T}/retention") == (200, unlimited)
    assert configs(pulsar)["retention.ms"] == "-1"
    assert (await call("POST", f"{T}-partition-0/retention", unlimited))[0] == 405


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], 400),
        ({}, 400),
        ({"retentionTimeInMinutes": "1", "retentionSizeInMB": 1}, 400),
        ({"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, 400),
        ({"retentionTimeInMinutes": 2**31, "retentionSizeInMB": 1}, 400),
        ({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, 412),
    ],
)
async def test_an_impossible_retention_is_refused(call: Call, body: object, expected: int) -> None:
    await call("PUT", T)

    status, answer = await call("POST", f"{T}/retention", body)

    assert (status, bool(answer["reason"])) == (expected, True)


async def test_a_changed_deduplication_setting_applies_to_new_producers(pulsar: PulsarNode, call: Call) -> None:
    await call("PUT", T)
    assert await call("GET", f"{T}/deduplicationEnabled?applied=true") == (200, True)
    assert await call("POST", f"{T}/deduplicationEnabled", False) == (204, None)
    client = await pulsar.client()
    await client.produce("t", producer_name="p")

    for _ in range(2):
        client.send_message(b"twice", 7)
        await client.receive("send_receipt")

    assert (await call("GET", f"{T}/internalStats"))[1]["numberOfEntries"] == 2
    assert await call("GET", f"{T}/deduplicationEnabled") == (200, False)
    assert (await call("GET", f"{T}/stats"))[1]["deduplicationStatus"] == "Disabled"
    assert await call("DELETE", f"{T}/deduplicationEnabled") == (204, None)
    assert await call("GET", f"{T}/deduplicationEnabled") == (204, None)
    assert (await call("POST", f"{T}/deduplicationEnabled", "yes"))[0] == 400


async def test_the_schema_strategy_is_the_level_of_the_subject(pulsar: PulsarNode, call: Call) -> None:
    await call("PUT", T)
    path = f"{T}/schemaCompatibilityStrategy"
    assert await call("GET", path) == (204, None)
    assert await call("GET", f"{path}?applied=true") == (200, "BACKWARD")

    assert await call("PUT", path, "ALWAYS_COMPATIBLE") == (204, None)

    assert await call("GET", path) == (200, "ALWAYS_COMPATIBLE")
    client = await pulsar.client()
    for number, kind in enumerate(["String", "Int32"]):
        schema = pb.Schema(name="s", type=pb.Schema.Type.Value(kind))
        assert (await client.produce("t", number, schema=schema)).schema_version == number.to_bytes(8, "big")
    assert await call("DELETE", path) == (204, None)
    assert await call("GET", path) == (204, None)
    assert (await call("PUT", path, "ALWAYS_INCOMPATIBLE"))[0] == 501
    assert (await call("PUT", path, "SIDEWAYS"))[0] == 400


async def test_a_namespace_shows_the_defaults(call: Call) -> None:
    status, policies = await call("GET", N)

    assert (status, policies["retention_policies"]["retentionTimeInMinutes"]) == (200, 10080)
    assert await call("GET", f"{N}/retention") == (200, policies["retention_policies"])
    assert await call("GET", f"{N}/deduplication") == (200, True)
    assert await call("GET", f"{N}/schemaCompatibilityStrategy") == (200, "BACKWARD")
    assert await call("GET", f"{N}/autoTopicCreation") == (
        200,
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    )
    assert (await call("GET", f"{N}/somethingElse"))[0] == 501


async def test_topics_follow_their_namespace_but_for_those_that_have_their_own(pulsar: PulsarNode, call: Call) -> None:
    own = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
    for topic in ("follows", "own"):
        await call("PUT", f"{ACME}/{topic}")
    await call("PUT", T)
    await call("POST", f"{ACME}/own/retention", own)

    assert await call("POST", f"{ACME_N}/retention", RETENTION) == (204, None)
    client = await pulsar.client()
    await client.produce("persistent://acme/prod/later")

    assert await call("GET", f"{ACME_N}/retention") == (200, RETENTION)
    assert (await call("GET", ACME_N))[1]["retention_policies"] == RETENTION
    found = {
        namespace: (await call("GET", f"{ACME}/{namespace}/retention"))[1] for namespace in ("follows", "own", "later")
    }
    assert found == {"follows": RETENTION, "own": own, "later": RETENTION}
    assert await call("GET", f"{T}/retention") == (204, None)  # of another namespace
    assert await call("DELETE", f"{ACME}/own/retention") == (204, None)
    assert await call("GET", f"{ACME}/own/retention") == (200, RETENTION)


async def test_policies_of_a_namespace_are_set_and_removed(call: Call) -> None:
    await call("POST", f"{ACME_N}/retention", RETENTION)
    await call("POST", f"{ACME_N}/deduplication", False)
    await call("PUT", f"{ACME}/t")
    more = {**RETENTION, "retentionTimeInMinutes": 120}

    await call("POST", f"{ACME_N}/retention", more)

    assert await call("GET", f"{ACME}/t/retention") == (200, more)
    assert await call("GET", f"{ACME}/t/deduplicationEnabled") == (200, False)
    assert await call("DELETE", f"{ACME_N}/retention") == (204, None)
    assert await call("DELETE", f"{ACME_N}/deduplication") == (204, None)
    assert await call("GET", f"{ACME}/t/retention") == (204, None)
    assert await call("GET", f"{ACME}/t/deduplicationEnabled") == (204, None)
    assert (await call("POST", f"{ACME_N}/retention", {}))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("PUT", f"{N}/schemaCompatibilityStrategy", "topicPolicies"),
        ("POST", f"{N}/messageTTL", "expire-messages"),
        ("POST", f"{N}/backlogQuota", "retention"),
        ("POST", f"{N}/persistence", "object store"),
        ("POST", f"{T}/messageTTL?messageTTL=1", "expire-messages"),
        ("GET", f"{T}/messageTTL", "expire-messages"),
        ("POST", f"{T}/maxMessageSize", "max.message.bytes"),
    ],
)
async def test_the_refusal_of_an_unsupported_policy_says_what_to_do(
    call: Call, method: str, path: str, word: str
) -> None:
    status, answer = await call(method, path)

    assert (status, word in answer["reason"]) == (501, True)


async def test_old_messages_are_expired_for_one_subscription_or_all(pulsar: PulsarNode, call: Call) -> None:
    client = await filled(pulsar, "t", 2)  # published in 2023
    now_ms = pulsar.streams.clock.now_ms()
    client.send_message(b"new", 2, publish_time=now_ms)
    await client.receive("send_receipt")
    for name in ("s", "u"):
        await call("PUT", f"{T}/subscription/{name}", "earliest")

    async def backlogs() -> dict[str, int]:
        _, stats = await call("GET", f"{T}/stats")
        return {name: subscription["msgBacklog"] for name, subscription in stats["subscriptions"].items()}

    assert await call("POST", f"{T}/subscription/s/expireMessages/86400") == (204, None)
    assert await backlogs() == {"s": 1, "u": 3}
    assert await call("POST", f"{T}/all_subscription/expireMessages/86400") == (204, None)
    assert await backlogs() == {"s": 1, "u": 1}
    assert (await call("POST", f"{T}/subscription/none/expireMessages/1"))[0] == 404
    assert (await call("POST", f"{T}/subscription/s/expireMessages/x"))[0] == 400


async def test_all_versions_of_a_schema_are_listed(call: Call) -> None:
    await call("PUT", T)
    path = "/admin/v2/schemas/public/default/t"
    assert await call("GET", f"{path}/schemas") == (200, {"getSchemaResponses": []})
    for fields in (["a"], ["a", "b"]):
        described = [{"name": name, "type": "string", "default": ""} for name in fields]
        text = json.dumps({"type": "record", "name": "R", "fields": described})
        assert (await call("POST", f"{path}/schema", {"type": "AVRO", "schema": text, "properties": {}}))[0] == 200

    _, found = await call("GET", f"{path}/schemas")

    assert [response["version"] for response in found["getSchemaResponses"]] == [0, 1]
    status, answer = await call("POST", f"{path}/compatibility", {"type": "STRING", "schema": "", "properties": {}})
    assert (status, answer) == (200, {"compatibility": False, "schemaCompatibilityStrategy": "BACKWARD"})


class DenyAll(Authorizer):
    def allows(self, *_: object) -> bool:
        return False


async def test_a_caller_without_rights_changes_no_namespace_and_finds_no_topic(pulsar: PulsarNode, call: Call) -> None:
    client = await pulsar.client()
    await call("PUT", T)
    pulsar.streams.authorizer = DenyAll()

    assert (await call("POST", f"{ACME_N}/retention", RETENTION))[0] == 403
    assert (await call("GET", "/lookup/v2/topic/persistent/public/default/t"))[0] == 403
    answer = await client.ask("lookup", pb.CommandLookupTopic(topic="t"))
    assert answer.error == pb.ServerError.AuthorizationError
    assert not (await pulsar.streams.metadata.defaults.get("pulsar:acme/prod")).configs
