"""DescribeClientQuotas and AlterClientQuotas: codes, messages and filters as in Apache Kafka (KIP-546)."""

import math

import pytest

from bearlake.metadata.quotas import DEFAULT, Entity, Quota, QuotaKey
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.access.control import AccessSettings

pytestmark = pytest.mark.filterwarnings("error")
A = m.AlterClientQuotasRequest
D = m.DescribeClientQuotasRequest


@pytest.fixture
async def node(kafka_cluster):
    """A server whose clients, without a login, are super users."""
    return (await kafka_cluster(1, access=AccessSettings(super_users=["User:ANONYMOUS"])))[0]


@pytest.fixture
async def client(node):
    return await node.client()


def entry(*parts, **ops):
    """`parts`: pairs of type and name. `ops`: values by key; None removes."""
    return A.Entry(
        entity=[A.Entity(entity_type=type_, entity_name=name) for type_, name in parts],
        ops=[A.Op(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


async def alter(client, *entries, validate_only=False, version=1):
    answer = await client.ask(A(entries=list(entries), validate_only=validate_only), version)
    return [(entry.error_code, entry.error_message) for entry in answer.entries]


async def describe(client, *components, strict=False):
    """Values by entity."""
    found = [D.Component(entity_type=type_, match_type=kind, match=match) for type_, kind, match in components]
    answer = await client.ask(D(components=found, strict=strict), 1)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code, answer.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in described.entity): {
            value.key: value.value for value in described.values
        }
        for described in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(node, client, version):
    change = entry(("user", "alice"), producer_byte_rate=1000.0, request_percentage=12.5)
    assert await alter(client, change, version=version) == [(0, None)]
    assert await describe(client) == {(("user", "alice"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    assert node.streams.quotas.usage is not None

    assert await alter(client, entry(("user", "alice"), producer_byte_rate=None, consumer_byte_rate=None)) == [
        (0, None)
    ]
    assert await describe(client) == {(("user", "alice"),): {"request_percentage": 12.5}}


async def test_nothing_is_changed_if_only_validated(node, client):
    good = entry(("ip", None), connection_creation_rate=1.0)
    bad = entry(("user", "a"), bytes=1.0)
    answers = await alter(client, good, bad, validate_only=True)

    assert answers == [(0, None), (ErrorCode.INVALID_REQUEST, "Invalid configuration key bytes")]
    assert (await node.streams.metadata.quotas.read()).quotas == []


async def test_default_and_combined_entities_are_kept_apart(node, client):
    await alter(
        client,
        entry(("user", None), ("client-id", "x"), producer_byte_rate=1.0),
        entry(("client-id", None), producer_byte_rate=2.0),
    )

    assert set((await node.streams.metadata.quotas.read()).quotas) == {
        Quota(Entity(user=DEFAULT, client_id="x"), QuotaKey.PRODUCER_BYTE_RATE, 1.0),
        Quota(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE, 2.0),
    }


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry(producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (entry(("user", "a"), ("ip", "10.0.0.1"), producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (
            entry(("user", "a"), ("user", "b"), producer_byte_rate=1.0),
            "Invalid empty client quota entity, duplicate entity entry user",
        ),
        (entry(("group", "a"), producer_byte_rate=1.0), "Unhandled client quota entity type: group"),
        (entry(("user", ""), producer_byte_rate=1.0), "Empty user not supported"),
        (entry(("user", "a"), connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (entry(("ip", "10.0.0.1"), producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (entry(("user", "a"), producer_byte_rate=1.5), "Configuration producer_byte_rate must be a Long value"),
        (
            entry(("ip", "no.such.host."), connection_creation_rate=1.0),
            "no.such.host. is not a valid IP or resolvable host.",
        ),
        (entry(("user", "a"), producer_byte_rate=-1.0), None),
        (entry(("user", "a"), request_percentage=math.nan), None),
        (entry(("user", "a"), request_percentage=math.inf), None),
    ],
    ids=str,
)
async def test_an_invalid_entity_does_not_affect_others(node, client, bad, message):
    good = entry(("user", "good"), producer_byte_rate=1.0)
    refused, accepted = await alter(client, bad, good)

    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert message in (None, refused[1])
    assert accepted == (0, None)
    assert [quota.entity.user for quota in (await node.streams.metadata.quotas.read()).quotas] == ["good"]


async def test_the_changes_of_one_entity_are_made_all_or_none(node, client):
    await alter(client, entry(("user", "a"), producer_byte_rate=1.0, bytes=1.0))

    assert (await node.streams.metadata.quotas.read()).quotas == []


async def test_an_entity_is_changed_once_in_a_request(node, client):
    first, second = await alter(
        client, entry(("user", "a"), producer_byte_rate=1.0), entry(("user", "a"), producer_byte_rate=2.0)
    )

    assert first == (0, None)
    assert second == (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity user=a")
    [quota] = (await node.streams.metadata.quotas.read()).quotas
    assert quota.value == 1.0


async def test_filters_select_as_in_kafka(client):
    alice, both, user_default, x, address = (
        (("user", "alice"),), (("user", "alice"), ("client-id", "x")), (("user", None),), (("client-id", "x"),),
        (("ip", "10.0.0.1"),),
    )  # fmt: skip
    for parts in (alice, both, user_default, x):
        await alter(client, entry(*parts, producer_byte_rate=1.0))
    await alter(client, entry(*address, connection_creation_rate=1.0))

    assert set(await describe(client)) == {alice, both, user_default, x, address}
    assert set(await describe(client, strict=True)) == set()
    assert set(await describe(client, ("user", 0, "alice"))) == {alice, both}
    assert set(await describe(client, ("user", 0, "alice"), strict=True)) == {alice}
    assert set(await describe(client, ("user", 1, None))) == {user_default}
    assert set(await describe(client, ("user", 2, None))) == {alice, both, user_default}
    assert set(await describe(client, ("user", 2, None), ("client-id", 0, "x"))) == {both}
    assert set(await describe(client, ("ip", 2, None))) == {address}
    assert set(await describe(client, ("user", 0, "absent"))) == set()


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "a")], 42, "Invalid empty entity type."),
        ([("user", 0, "a"), ("user", 2, None)], 42, "Entity type user cannot appear more than once in the filter."),
        ([("group", 0, "a")], 35, "Unsupported entity type group"),
        ([("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        (
            [("user", 0, "a"), ("ip", 0, "10.0.0.1")],
            42,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.",
        ),
    ],
)
async def test_an_invalid_filter_is_refused(client, components, code, message):
    assert await describe(client, *components) == (code, message)


async def test_a_client_without_a_right_of_its_own_can_neither_see_nor_lift_its_quota(kafka):
    """Everything is allowed here because no rule says anything; that does not count for quotas."""
    client = await kafka.client()
    [answer] = await alter(client, entry(("user", "ANONYMOUS"), producer_byte_rate=1e9))

    assert answer[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    code, message = await describe(client)
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "`bearlake quota`" in message
