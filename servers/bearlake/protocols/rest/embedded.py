"""Converts keys and values with schemas between JSON and bytes, for both APIs, with the REST Proxy's error codes.

    42203   a value does not match its schema
    42205   the schema is invalid, or of another type
    40801   the registry refuses the schema or does not have it
Source: Confluent, "REST Proxy API Reference", errors of POST /topics/(topic).
"""

from collections.abc import Sequence
from typing import Any

from bearlake.errors import Denied
from bearlake.protocols.rest.problems import Problem
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice, Payloads, Writer
from bearlake.streams.schemas.problems import InvalidSchema, Refusal, SchemaTooLarge
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.values.model import Unfit

NAMES = {SchemaType.AVRO: "Avro", SchemaType.JSON: "JSON Schema", SchemaType.PROTOBUF: "Protobuf"}
"""Names of the formats in messages."""


class Embedded:
    """Writes and reads keys and values for the handlers of one server."""

    def __init__(self, schemas: Schemas) -> None:
        self._payloads = Payloads(schemas)

    async def writer(self, who: Principal, choice: Choice, topic: str, part: str) -> Writer:
        """Return a writer of keys or values (`part`) of a topic with the chosen schema. Raises `Problem`, `Denied`, `Unavailable`."""
        try:
            return await self._payloads.writer(who, choice, topic, part)
        except (InvalidSchema, SchemaTooLarge) as error:
            raise Problem(422, 42205, str(error)) from error
        except Denied:
            raise
        except Refusal as error:
            raise Problem(408, 40801, f"Schema registration or lookup failed: {error}") from error

    async def write(
        self, writer: Writer, values: Sequence[Any], places: Sequence[str], size_bytes: int
    ) -> list[bytes | Problem | None]:
        """Return each JSON value's bytes, or its error. Messages name values by `places`; `size_bytes` is their approximate size."""
        written = await self._payloads.write_all(writer, values, size_bytes)
        return [
            _misfit(writer, place, one) if isinstance(one, Unfit) else one
            for one, place in zip(written, places, strict=True)
        ]

    async def read(self, who: Principal, octets: bytes, type_: SchemaType) -> Any:
        """Return the JSON of serialized bytes (Any: JSON). Raises `Unfit`, `Denied`, `Unavailable`."""
        return await self._payloads.read(who, octets, type_)


def _misfit(writer: Writer, place: str, error: Unfit) -> Problem:
    name = NAMES[writer.schema.type]
    return Problem(422, 42203, f"Conversion of JSON to {name} failed: {place}: {error}")
