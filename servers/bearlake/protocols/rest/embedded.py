"""Converts keys and values with schemas between JSON and bytes, for both APIs, with the REST Proxy's error codes.

    42203   a value does not match its schema
    42205   the schema is invalid, or of another type
    40801   the registry refuses the schema or does not have it
Source: Confluent, "REST Proxy API Reference", errors of POST /topics/(topic).
"""

from collections.abc import Sequence

from bearlake.errors import Denied
from bearlake.protocols.rest.problems import Problem
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.payloads import Choice, Opened, Payloads, Read, Writer
from bearlake.streams.schemas.problems import InvalidSchema, Refusal, SchemaTooLarge
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.values.model import Unfit

NAMES = {SchemaType.AVRO: "Avro", SchemaType.JSON: "JSON Schema", SchemaType.PROTOBUF: "Protobuf"}
"""Names of the formats in messages."""


class Embedded:
    """Writes and reads keys and values for the handlers of one server."""

    def __init__(self, schemas: Schemas) -> None:
        self._payloads = Payloads(schemas)

    def budget(self) -> Budget:
        """Return the budget of one client request."""
        return self._payloads.budget()

    async def writer(self, who: Principal, choice: Choice, topic: str, part: str, budget: Budget) -> Writer:
        """Return a writer of keys or values (`part`) of a topic with the chosen schema. Raises `Problem`, `Denied`, `Unavailable`."""
        try:
            return await self._payloads.writer(who, choice, topic, part, budget)
        except (InvalidSchema, SchemaTooLarge) as error:
            raise Problem(422, 42205, str(error)) from error
        except Denied:
            raise
        except Refusal as error:
            raise Problem(408, 40801, f"Schema registration or lookup failed: {error}") from error

    async def write(
        self, writer: Writer, texts: Sequence[bytes | None], places: Sequence[str], budget: Budget
    ) -> list[bytes | Problem | None]:
        """Return the bytes of each value, given as JSON text, or its error. Messages name values by `places`.

        Raises `Problem` (42205): the schema or the values exceed a limit; `Overloaded`, `Unavailable`.
        """
        try:
            written = await self._payloads.write_all(writer, texts, budget)
        except (InvalidSchema, SchemaTooLarge) as error:
            raise Problem(422, 42205, str(error)) from error
        return [
            _conversion_problem(writer, place, result) if isinstance(result, Unfit) else result
            for result, place in zip(written, places, strict=True)
        ]

    async def read(self, who: Principal, values: Sequence[bytes | None], type_: SchemaType) -> Read:
        """Return the JSON texts of serialized values, up to the first that cannot be read. Raises `Overloaded`, `Unavailable`."""
        return await self._payloads.read_all(who, values, type_, self.budget())

    async def opened(self, who: Principal, values: Sequence[bytes | None]) -> Sequence[Opened | None]:
        """Return the JSON text of each value that names a schema, whatever its type; None for all others. Raises nothing of its own."""
        return await self._payloads.open_all(who, values, self.budget())


def _conversion_problem(writer: Writer, place: str, error: Unfit) -> Problem:
    name = NAMES[writer.schema.type]
    return Problem(422, 42203, f"Conversion of JSON to {name} failed: {place}: {error}")
