"""Schemas and JSON bodies of Pulsar clients with very many values do not hold the event loop.

The bounds are several times the watchdog's because a test's client and server share the loop.
"""

import io
import json
import struct

import aiohttp
import pytest

from bearlake.protocols.pulsar.http.paths import VALUE_COUNT_MAX as BODY_COUNT_MAX
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.protocols.pulsar.schema_types import VALUE_COUNT_MAX
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.pulsar_server import PulsarNode

BOUND_S = 2 * LIMIT_S
TYPES = [KeyValue(key="key.schema.type", value="JSON"), KeyValue(key="value.schema.type", value="JSON")]
LISTS = b"[" + b"[]," * 1_500_000 + b"[]]"
T = "/admin/v2/persistent/public/default/t"


def key_value(key: bytes, value: bytes) -> pb.Schema:
    """A KEY_VALUE schema of two JSON texts."""
    content = b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
    return pb.Schema(name="s", type=pb.Schema.KeyValue, schema_data=content, properties=TYPES)


def avro(field_count: int) -> bytes:
    """The text of an Avro record of optional fields, each with eight values."""
    fields = [{"name": f"f{at}", "type": ["null", "string"], "default": None} for at in range(field_count)]
    return json.dumps({"type": "record", "name": "R", "fields": fields}).encode()


def wide(text: str) -> bytes:
    """An object with this list, in UTF-16, where a character seems to begin a text for those who read UTF-8."""
    return '{"rootMessageTypeName":"\u2261","x":'.encode("utf-16-le") + (text + "}").encode("utf-16-le")


HOSTILE = {
    "key": key_value(LISTS, b'"int"'),
    "value": key_value(b'"int"', b'{"type":"record","name":"R","fields":' + LISTS + b"}"),
    "native": pb.Schema(
        name="s", type=pb.Schema.ProtobufNative, schema_data=b'{"rootMessageTypeName":"M","x":' + LISTS + b"}"
    ),
    "size that equals a quote": key_value(b'"int"'.ljust(ord('"')), LISTS),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_schema_of_a_million_values_is_refused_before_it_is_parsed(pulsar: PulsarNode, what: str) -> None:
    client = await pulsar.client()
    await client.produce("warm")
    schema = HOSTILE[what]

    async with held_at_most(BOUND_S):
        producer = await client.ask("producer", pb.CommandProducer(topic="t", producer_id=2, schema=schema))
        asked = await client.ask("get_or_create_schema", pb.CommandGetOrCreateSchema(topic="t", schema=schema))

    assert (producer.error, producer.message) == (
        pb.IncompatibleSchema,
        f"the schema has more than {VALUE_COUNT_MAX} JSON values",
    )
    assert asked.error_code == pb.IncompatibleSchema


WIDE_LISTS = "[" + "[]," * 600_000 + "[]]"
WIDE = {
    "value": key_value(b'"int"', wide(WIDE_LISTS)),
    "native": pb.Schema(name="s", type=pb.Schema.ProtobufNative, schema_data=wide(WIDE_LISTS)),
}


@pytest.mark.parametrize("what", WIDE)
async def test_a_schema_in_another_encoding_than_the_count_reads_is_refused(pulsar: PulsarNode, what: str) -> None:
    client = await pulsar.client()
    await client.produce("warm")

    async with held_at_most(BOUND_S):
        producer = await client.ask("producer", pb.CommandProducer(topic="t", producer_id=2, schema=WIDE[what]))

    assert producer.error == pb.IncompatibleSchema


async def test_a_schema_of_as_many_values_as_allowed_does_not_hold_the_loop(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("warm")
    schema = key_value(avro(1_000), avro(1_000))
    await client.ask("producer", pb.CommandProducer(topic="t", producer_id=2, schema=schema))

    async with held_at_most(BOUND_S):
        answer = await client.ask("producer", pb.CommandProducer(topic="t", producer_id=3, schema=schema))

    assert answer.schema_version == bytes(8)


BODIES = {
    "a schema": ("POST", "/admin/v2/schemas/public/default/t/schema", b'{"type":"AVRO","schema":"","properties":%b}'),
    "a schema of key and value": (
        "POST",
        "/admin/v2/schemas/public/default/t/schema",
        b'{"type":"KEY_VALUE","schema":"{\\"key\\":%b}"}',
    ),
    "a subscription": ("PUT", f"{T}/subscription/s", b'{"properties":%b}'),
    "a retention": ("POST", f"{T}/retention", b'{"retentionSizeInMB":%b}'),
    "a number of partitions": ("PUT", f"{T}/partitions", b"%b"),
    "a tenant": ("PUT", "/admin/v2/tenants/x", b'{"allowedClusters":%b}'),
}


@pytest.mark.parametrize("what", BODIES)
async def test_a_body_of_many_values_is_refused_before_it_is_parsed(
    pulsar: PulsarNode, session: aiohttp.ClientSession, what: str
) -> None:
    await pulsar.create("t")
    method, path, form = BODIES[what]
    body = form % (b"[" + b"[]," * (600_000) + b"[]]")

    async def status(content: bytes) -> int:
        headers = {"Content-Type": "application/json"}
        async with session.request(method, pulsar.http_url + path, data=io.BytesIO(content), headers=headers) as answer:
            await answer.read()
            return answer.status

    assert await status(form % (b"[" + b"1," * (BODY_COUNT_MAX // 2) + b"1]")) != 413
    async with held_at_most(BOUND_S):
        assert await status(body) == 413


async def test_a_body_in_another_encoding_than_the_count_reads_is_refused(
    pulsar: PulsarNode, session: aiohttp.ClientSession
) -> None:
    body = wide("[" + "[]," * 150_000 + "[]]")
    assert len(body) > 900_000

    async def status(content: bytes) -> int:
        url = pulsar.http_url + "/admin/v2/tenants/x"
        async with session.put(url, data=io.BytesIO(content), headers={"Content-Type": "application/json"}) as answer:
            await answer.read()
            return answer.status

    assert await status(b"\xef\xbb\xbf" + b'{"allowedClusters":[]}') not in (400, 413)  # a mark of UTF-8 is no harm
    async with held_at_most():
        assert await status(body) == 400
