"""The keys, or the values, of a v2 produce request whose format has schemas.

    {"key_schema": "…" | "key_schema_id": 1, "value_schema": "…" | "value_schema_id": 2, "records": […]}

The id counts where both are given. A schema is registered for the subject `{topic}-key` or `{topic}-value`, unless it is there already.

Source: Confluent, "REST Proxy API Reference v2", POST /topics/(topic).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bearlake.protocols.rest.embedded import NAMES, Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice

_MISSING_CODES = {"key": 42201, "value": 42202}
_ID_MAX = 2**31 - 1


class Column(NamedTuple):
    """Keys or values, one for each record, and the id of their schema."""

    values: Sequence[bytes | None]
    schema_id: int | None


async def column(
    embedded: Embedded,
    who: Principal,
    topic: str,
    part: str,
    type_: SchemaType,
    body: Mapping[str, Any],
    values: Sequence[Any],
    size_bytes: int,
) -> Column:
    """The bytes of a request's keys or values (`part`). Without schema there may be none.

    Raises:
        Problem: 42201 or 42202 when the schema is missing, and what `Embedded` has to say.
    """
    choice = _choice(part, type_, body)
    if choice is None:
        if any(value is not None for value in values):
            message = f"Request includes {part}s but does not include {part} schema"
            raise Problem(422, _MISSING_CODES[part], f"{message}: expected {part}_schema or {part}_schema_id")
        return Column(values, None)
    writer = await embedded.writer(who, choice, topic, part)
    places = [f"records[{at}].{part}" for at in range(len(values))]
    written: list[bytes | None] = []
    for one in await embedded.write(writer, values, places, size_bytes):
        if isinstance(one, Problem):
            raise one
        written.append(one)
    return Column(written, writer.schema.id)


def _choice(part: str, type_: SchemaType, body: Mapping[str, Any]) -> Choice | None:
    schema_id, text = body.get(f"{part}_schema_id"), body.get(f"{part}_schema")
    if schema_id is not None:
        if not isinstance(schema_id, int) or isinstance(schema_id, bool) or not 0 < schema_id <= _ID_MAX:
            raise Problem(422, 422, f"{part}_schema_id: expected a number from 1")
        return Choice(type=type_, id=schema_id)
    if text is None:
        return None
    if not isinstance(text, str):
        raise Problem(422, 422, f"{part}_schema: expected the schema of type {NAMES[type_]} as text")
    return Choice(type=type_, text=text)
