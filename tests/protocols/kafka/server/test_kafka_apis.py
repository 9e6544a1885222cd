"""Every advertised API answers in every advertised version, with its codec's layout and plausible codes."""

import struct

import pytest

from bearlake.protocols.kafka import apis, codec, messages
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.kafka_server import key_of
from fixtures.kafka_world import World, find_codes

m = messages


ALL = [(api.key, version) for api in apis.APIS for version in range(api.version_min, api.version_max + 1)]


@pytest.mark.parametrize(("key", "version"), ALL, ids=[f"{key.name.lower()}-{version}" for key, version in ALL])
async def test_a_realistic_request_is_answered(kafka, key, version):
    world = await World().open(kafka)
    request, codes = world.request(key, version)
    assert key_of(request) is key

    answer = await world.client.ask(request, version)

    found = find_codes(answer)
    assert set(found) <= {int(code) for code in codes}, answer
    assert found or key in (ApiKey.PRODUCE, ApiKey.LIST_CONFIG_RESOURCES)


@pytest.mark.parametrize(("key", "version"), ALL, ids=[f"{key.name.lower()}-{version}" for key, version in ALL])
async def test_a_request_of_defaults_is_answered(kafka, key, version):
    client = await kafka.client(client_id=None)

    answer = await client.ask(_empty(key), version)

    assert ErrorCode.UNKNOWN_SERVER_ERROR not in find_codes(answer)


def _empty(key):
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request = getattr(m, f"{name}Request")()
    if key is ApiKey.PRODUCE:
        request.acks = 1
    return request


async def test_every_advertised_version_has_a_schema():
    for api in apis.APIS:
        schema = codec.versions(api.key)
        assert schema[0] <= api.version_min <= api.version_max <= schema[-1]


async def test_api_versions_lists_the_served_apis_and_their_features(kafka):
    client = await kafka.client()

    answer = await client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)

    listed = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
    assert listed == {int(api.key): (api.version_min, api.version_max) for api in apis.APIS}
    assert listed[ApiKey.PRODUCE][0] == 0  # KAFKA-18659
    assert {76, 77, 78, 79, 90, 91, 92} <= set(listed)  # share groups
    assert {item.name: item.max_version_level for item in answer.finalized_features} == {
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert {item.name: item.min_version for item in answer.supported_features} == {
        "group.version": 0,
        "share.version": 0,
        "streams.version": 0,
        "transaction.version": 0,
    }


async def test_a_client_that_refuses_features_from_version_0_on_gets_none_of_them_kafka_17011(kafka):
    client = await kafka.client()

    answer = await client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)

    assert answer.supported_features == []


@pytest.mark.parametrize("version", [5, 99, 32767])
async def test_a_newer_api_versions_gets_version_0_and_error_35_kip_511(kafka, version):
    client = await kafka.client()
    client.send_bytes(struct.pack(">ihhih", 14, 18, version, 7, -1) + bytes([0, 0, 0, 0]))

    frame = await client.receive_frame()
    (correlation_id,) = struct.unpack_from(">i", frame)
    answer = codec.response(ApiKey.API_VERSIONS, 0).decode(frame, 4)

    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(item.api_key, item.min_version, item.max_version) for item in answer.api_keys] == [(18, 0, 4)]
    assert (await client.ask(m.ApiVersionsRequest(), 0)).error_code == 0  # and the connection stays open
