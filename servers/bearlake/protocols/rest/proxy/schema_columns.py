"""Keys or values of a v2 produce request whose format has schemas.

    {"key_schema": "…" | "key_schema_id": 1, "value_schema": "…" | "value_schema_id": 2, "records": […]}

If both are given, the id is used. A new schema is registered for the subject `{topic}-key` or `{topic}-value`.

Source: Confluent, "REST Proxy API Reference v2", POST /topics/(topic).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy.models import Produce
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice

_MISSING_CODES = {"key": 42201, "value": 42202}


class Column(NamedTuple):
    """Keys or values, one per record, and their schema id."""

    values: Sequence[bytes | None]
    schema_id: int | None


async def column(
    embedded: Embedded,
    who: Principal,
    topic: str,
    part: str,
    type_: SchemaType,
    body: Produce[Any],
    texts: Sequence[bytes | None],
    budget: Budget,
) -> Column:
    """Encode a request's keys or values (`part`), given as JSON texts. Without a schema, all of them must be null.

    Raises:
        Problem: 42201 or 42202 if the schema is missing, and the errors of `Embedded`.
    """
    schema_id, text = (
        (body.key_schema_id, body.key_schema) if part == "key" else (body.value_schema_id, body.value_schema)
    )
    choice = None
    if schema_id is not None:
        choice = Choice(type=type_, id=schema_id)
    elif text is not None:
        choice = Choice(type=type_, text=text)
    if choice is None:
        if any(text not in (None, b"null") for text in texts):
            message = f"Request includes {part}s but does not include {part} schema"
            raise Problem(422, _MISSING_CODES[part], f"{message}: expected {part}_schema or {part}_schema_id")
        return Column([None] * len(texts), None)
    writer = await embedded.writer(who, choice, topic, part, budget)
    places = [f"records[{at}].{part}" for at in range(len(texts))]
    written: list[bytes | None] = []
    for value in await embedded.write(writer, texts, places, budget):
        if isinstance(value, Problem):
            raise value
        written.append(value)
    return Column(written, writer.schema.id)
