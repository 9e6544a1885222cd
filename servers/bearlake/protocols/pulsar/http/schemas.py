"""Schemas of topics: the same versions as in the protocol's commands (`protocols.pulsar.schemas`).

The `timestamp` in responses is 0: the registry does not store when a version was created. Source: Pulsar, "Admin REST API", schemas.
"""

import json
from typing import Any

from aiohttp import web

from bearlake.protocols.pulsar import key_values, schema_types
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.policies import strategy_of
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.proto.commands_pb2 import Schema
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.protocols.pulsar.schemas import schema_name
from bearlake.protocols.pulsar.topics import Topic
from bearlake.serving.http.login import principal_of
from bearlake.streams.principal import Operation
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import SchemaVersion


class SchemaRoutes:
    """Routes of schemas."""

    def __init__(self, context: PulsarContext) -> None:
        self._context = context
        self._schemas = context.schemas

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        topic = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
        router.add_get(f"{topic}/schemas", self._get_all)
        router.add_get(f"{topic}/schema", self._get)
        router.add_get(f"{topic}/schema/{{version}}", self._get)
        router.add_post(f"{topic}/schema", self._register)
        router.add_delete(f"{topic}/schema", self._delete)
        router.add_post(f"{topic}/compatibility", self._check)
        router.add_post(f"{topic}/version", self._version_of)

    async def _get(self, request: web.Request) -> web.Response:
        topic = await self._topic(request)
        number = names.LATEST
        if "version" in request.match_info:
            number = paths.number_in(request, "version", names.VERSION_MAX - 1) + 1
        found = await self._schemas.version(principal_of(request), topic, number)
        shown = None if found is None else _shown(topic, found)
        if shown is None:
            raise Problem(404, "Schema not found")
        return web.json_response(shown)

    async def _get_all(self, request: web.Request) -> web.Response:
        """Return all versions, oldest first."""
        topic = await self._topic(request)
        found = [_shown(topic, version) for version in await self._schemas.versions(principal_of(request), topic)]
        return web.json_response({"getSchemaResponses": [schema for schema in found if schema is not None]})

    async def _register(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.WRITE)
        made = await self._schemas.register(principal_of(request), topic, await _schema_in(request))
        return web.json_response({"version": made.number - 1})

    async def _delete(self, request: web.Request) -> web.Response:
        """Delete all versions; unless forced, the registry's own clients can still get a version by its number."""
        topic = await self._topic(request)
        last = await self._schemas.delete(principal_of(request), topic, is_permanent=paths.flag(request, "force"))
        return web.json_response({"version": last - 1})

    async def _check(self, request: web.Request) -> web.Response:
        topic, schema = await self._topic(request), await _schema_in(request)
        messages = await self._schemas.incompatibilities(principal_of(request), topic, schema)
        level = await self._schemas.level(principal_of(request), topic)
        return web.json_response({"compatibility": not messages, "schemaCompatibilityStrategy": strategy_of(level)})

    async def _version_of(self, request: web.Request) -> web.Response:
        found = await self._schemas.known(principal_of(request), await self._topic(request), await _schema_in(request))
        return web.json_response({"version": -1 if found is None else found.number - 1})

    async def _topic(self, request: web.Request) -> Topic:
        return await paths.topic_of(self._context, request, Operation.DESCRIBE)


def _shown(topic: Topic, version: SchemaVersion) -> dict[str, Any] | None:
    schema = schema_types.schema_of(version.schema, schema_name(topic))
    if schema is None:
        return None
    return {
        "version": version.number - 1,
        "type": schema_types.NAMES[schema.type],
        "timestamp": 0,
        "data": _text_of(schema),
        "properties": {pair.key: pair.value for pair in schema.properties},
    }


async def _schema_in(request: web.Request) -> Schema:
    """The schema in a body: type, schema (`data` in `pulsar-admin` before 2.11), properties. Raises `Problem` (400, 422)."""
    body = await paths.body_of(request)
    if not isinstance(body, dict):
        raise Problem(400, "expected an object: type, schema, properties")
    number = schema_types.NUMBERS.get(str(body.get("type")))
    if number is None:
        raise Problem(
            422,
            f"schema type {str(body.get('type'))[:40]!r}: expected one of {', '.join(sorted(schema_types.NUMBERS))}",
        )
    text, properties = body.get("schema", body.get("data")) or "", body.get("properties") or {}
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise Problem(422, "expected a schema of type string, and properties of type object")
    return Schema(
        type=number,  # type: ignore[arg-type]  # its number
        schema_data=_content_of(number, text),
        properties=[KeyValue(key=str(key), value=str(value)) for key, value in properties.items()],
    )


def _content_of(number: int, text: str) -> bytes:
    """The text of a schema in the protocol's form; the text of KEY_VALUE is a JSON object of both schemas."""
    if number != Schema.KeyValue:
        return text.encode(errors="surrogatepass")
    paths.check_count(text.encode(errors="surrogatepass"))
    try:
        pair = json.loads(text)
        key, value = (part if isinstance(part, str) else json.dumps(part) for part in (pair["key"], pair["value"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Problem(422, "a KEY_VALUE schema: expected a JSON object with key and value") from error
    return key_values.joined(key.encode(), value.encode())


def _text_of(schema: Schema) -> str:
    """The reverse of `_content_of`."""
    if schema.type != Schema.KeyValue:
        return schema.schema_data.decode(errors="replace")
    key, value = key_values.split(schema.schema_data)
    return json.dumps({"key": _value(key.decode(errors="replace")), "value": _value(value.decode(errors="replace"))})


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
