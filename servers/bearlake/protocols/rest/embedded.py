"""Keys and values with schemas, for both APIs: what becomes of a request's JSON, in the codes of the REST Proxy.

    42203   a value is none of its schema's
    42205   the schema is none, or of another type
    40801   the registry refuses it, or does not have it

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
"""How messages call the formats."""


class Embedded:
    """Writes and reads for the handlers of one server."""

    def __init__(self, schemas: Schemas) -> None:
        self._payloads = Payloads(schemas)

    async def writer(self, who: Principal, choice: Choice, topic: str, part: str) -> Writer:
        """What writes keys or values (`part`) of a topic's records with the chosen schema. Raises `Problem`, `Denied`, `Unavailable`."""
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
        """The bytes of JSON values, or what is wrong with them; `places` is how messages call each, `size_bytes` about their size."""
        written = await self._payloads.write_all(writer, values, size_bytes)
        return [
            _misfit(writer, place, one) if isinstance(one, Unfit) else one
            for one, place in zip(written, places, strict=True)
        ]

    async def read(self, who: Principal, octets: bytes, type_: SchemaType) -> Any:
        """The JSON of what a serializer wrote (Any: whatever JSON can say). Raises `Unfit`, `Denied`, `Unavailable`."""
        return await self._payloads.read(who, octets, type_)


def _misfit(writer: Writer, place: str, error: Unfit) -> Problem:
    name = NAMES[writer.schema.type]
    return Problem(422, 42203, f"Conversion of JSON to {name} failed: {place}: {error}")
