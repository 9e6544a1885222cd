"""JSON bodies of any size and number of values do not hold the event loop, on every route that reads one.

The bounds are several times the watchdog's because a test's client and server share the loop.
"""

import json
from collections.abc import AsyncIterator

import pytest

from bearlake.protocols.rest.proxy.formats import Format, encode
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.schemas.values.model import Unfit
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most, longest_hold_s
from fixtures.rest_consumer import Client
from fixtures.rest_server import RestNode
from fixtures.schema_registry import RegistryNode

BOUND_S = 3 * LIMIT_S
JSON = {"Content-Type": "application/json"}
MANY = 2_000_000
ONES = b"[" + b"1," * MANY + b"1]"
LISTS = b"[" + b"[]," * MANY + b"[]]"


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


async def status_of(rest: RestNode, method: str, path: str, body: bytes, kind: str = "application/json") -> int:
    """The status of a request whose body is sent in pieces."""
    headers = {"Content-Type": kind}
    async with rest.session.request(method, rest.url + path, data=pieces(body), headers=headers) as answer:
        await answer.read()
        return answer.status


V3 = {
    "create": ("POST", "/topics", b'{"topic_name":"new","configs":%b}'),
    "grow": ("PATCH", "/topics/t", b'{"partitions_count":2,"x":%b}'),
    "config": ("PUT", "/topics/t/configs/retention.ms", b'{"value":1,"x":%b}'),
    "configs": ("POST", "/topics/t/configs:alter", b'{"data":%b}'),
    "read": ("POST", "/topics/t/records:read", b'{"partition_ids":%b}'),
    "reset": ("POST", "/consumer-groups/g/offsets:reset", b'{"topic_name":"t","to":"latest","partition_ids":%b}'),
    "share reset": ("POST", "/share-groups/g/offsets:reset", b'{"topic_name":"t","to":"latest","partition_ids":%b}'),
}


@pytest.mark.parametrize("what", V3)
async def test_a_v3_body_of_millions_of_values_is_refused_before_it_is_parsed(rest: RestNode, what: str) -> None:
    await rest.create("t")
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    method, path, form = V3[what]
    path = f"/v3/clusters/{cluster}{path}"
    assert await status_of(rest, method, path, form % b"[1]") != 413

    async with held_at_most(BOUND_S):
        statuses = [await status_of(rest, method, path, form % values) for values in (ONES, LISTS)]

    assert statuses == [413, 413]


CONSUMERS = {
    "subscription": b'{"topics":%b}',
    "assignments": b'{"partitions":%b}',
    "offsets": b'{"offsets":%b}',
    "positions": b'{"offsets":%b}',
    "positions/end": b'{"partitions":%b}',
}


@pytest.mark.parametrize("what", CONSUMERS)
async def test_a_consumers_body_of_millions_of_values_is_refused_before_it_is_parsed(rest: RestNode, what: str) -> None:
    client = await Client.create(rest)
    kind = "application/vnd.kafka.v2+json"
    path = client.base.removeprefix(rest.url)
    new = b'{"name":"x","format":%b}'

    async with held_at_most(BOUND_S):
        statuses = [
            await status_of(rest, "POST", f"{path}/{what}", CONSUMERS[what] % LISTS, kind),
            await status_of(rest, "POST", "/consumers/g", new % LISTS, kind),
        ]

    assert statuses == [413, 413]


async def test_a_list_of_a_request_has_at_most_ten_thousand_items(rest: RestNode) -> None:
    await rest.create("t")
    client = await Client.create(rest)
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    reset = {"topic_name": "t", "to": "latest", "partition_ids": [0] * 10_001}

    topics = await rest.post(f"{client.base}/subscription", {"topics": ["t"] * 10_001})
    partitions = await rest.post(f"/v3/clusters/{cluster}/consumer-groups/g/offsets:reset", reset, headers=JSON)

    assert (topics.status, partitions.status) == (422, 400)
    assert "10000" in str(partitions.body)


async def test_a_body_of_blank_space_is_read_without_holding_the_loop(rest: RestNode) -> None:
    client = await Client.create(rest)
    blank = b" " * (RestSettings().request_bytes_max - 2)
    kind, path = "application/vnd.kafka.v2+json", client.base.removeprefix(rest.url)

    async with held_at_most(BOUND_S):
        statuses = [
            await status_of(rest, "POST", f"{path}/offsets", body, kind) for body in (blank, b"{" + blank + b"}")
        ]

    assert statuses == [200, 200]


REGISTRY = {
    "register": ("POST", "/subjects/s/versions", b'{"schema":"\\"int\\"","metadata":{"properties":%b}}'),
    "look up": ("POST", "/subjects/s", b'{"schema":"\\"int\\"","ruleSet":{"domainRules":%b}}'),
    "references": ("POST", "/compatibility/subjects/s/versions/latest", b'{"schema":"\\"int\\"","references":%b}'),
    "config": ("PUT", "/config/s", b'{"compatibility":"NONE","defaultRuleSet":{"x":%b}}'),
    "mode": ("PUT", "/mode", b'{"mode":"READWRITE","x":%b}'),
}


@pytest.mark.parametrize("what", REGISTRY)
async def test_a_registry_body_of_a_million_values_is_refused_before_it_is_parsed(
    registry: RegistryNode, what: str
) -> None:
    method, path, form = REGISTRY[what]
    values = b"[" + b"[]," * 1_300_000 + b"[]]"

    async with held_at_most(BOUND_S):
        answer = await registry.ask(method, path, form % values)

    assert answer.status == 413
    assert "JSON values" in answer.body["message"]


async def test_a_registry_takes_as_many_values_as_its_setting_says(registry: RegistryNode) -> None:
    count_max = RegistrySettings().request_value_count_max
    few, many = ({f"p{at}": "xxxx" for at in range(count)} for count in (count_max - 10, count_max + 10))

    answers = [
        await registry.put("/config/s", {"compatibility": "NONE", "defaultMetadata": {"properties": found}})
        for found in (few, many)
    ]

    assert [answer.status for answer in answers] == [422, 413]  # the first one is larger than a config may be


@pytest.mark.parametrize(
    "octets", [LISTS, ONES, b' {"a":"\xc3\xa9","b":[null,1.5e3]}\n' + b" " * 100_000], ids=["lists", "ones", "one"]
)
def test_a_record_of_any_number_of_values_is_shown_as_json_without_holding_other_threads(octets: bytes) -> None:
    shown = encode(Format.JSON, octets)

    assert shown is not None
    assert json.loads(shown) == json.loads(octets)
    assert min(longest_hold_s(lambda: encode(Format.JSON, octets)) for _ in range(3)) < LIMIT_S


@pytest.mark.parametrize("wrong", [b"]", b",", b"NaN", b"\xff", b'"'])
def test_a_large_record_that_is_no_json_is_said_to_be_none(wrong: bytes) -> None:
    with pytest.raises(Unfit, match="not valid JSON"):
        encode(Format.JSON, b"[" + b"1," * 100_000 + b"1" + wrong + b"]")
