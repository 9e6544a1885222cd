"""Converts record keys and values between JSON and serialized bytes, with schemas of the registry.

    writer   finds or registers the schema; writes values, each after the schema's id
    read     reads serialized bytes as JSON, with the schema whose id the bytes carry

Null is written as an absent value, whatever the schema, as Confluent's serializers do. In a key-compacted stream it deletes the key.

Source: Confluent, "Formats, Serializers, and Deserializers" (wire format, subject name strategies).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bearlake.errors import Invalid
from bearlake.streams.principal import Principal
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Schema, SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaNotFound
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit, Values

INLINE_BYTES_MAX = 32 * 1024
"""Values up to this size (bytes) are read and written on the event loop, in about a millisecond; larger values on a thread."""


class Naming(Enum):
    """Subject name strategies, for requests that do not name the subject."""

    TOPIC_NAME = "TOPIC_NAME"
    RECORD_NAME = "RECORD_NAME"
    TOPIC_RECORD_NAME = "TOPIC_RECORD_NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The schema that a caller chooses: by text and type, by id, or by subject and version (default: the latest)."""

    type: SchemaType | None = None
    text: str | None = None
    id: int | None = None
    version: int | None = None
    subject: str | None = None
    naming: Naming = Naming.TOPIC_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes values of one schema."""

    schema: Schema
    subject: str
    version: int | None
    """The version number of the schema under the subject; None if it is not registered there."""
    values: Values

    def write(self, value: Any) -> bytes | None:
        """Serialize a JSON value (Any: any JSON value). Raises `Unfit`."""
        return None if value is None else wire.head(self.schema.id) + self.values.write(value)


class Payloads:
    """Reads and writes values with the schemas of a registry. Calls raise `Unavailable` if the registry does not answer."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def writer(self, who: Principal, choice: Choice, topic: str, part: str) -> Writer:
        """Return a writer of values for the chosen schema; topic and `part` (`key` or `value`) determine the subject.

        Raises:
            Invalid: the choice contradicts itself, or names no schema.
            Refusal: an error of the registry, such as `InvalidSchema`, `Incompatible`, `SchemaNotFound`.
            Denied: the caller lacks permission.
        """
        if sum(one is not None for one in (choice.text, choice.id, choice.version)) > 1:
            raise Invalid("only one of schema, schema_id and schema_version may be given")
        if choice.text is not None:
            return await self._by_text(who, choice, choice.text, topic, part)
        if choice.id is not None:
            return await self._by_id(who, choice, choice.id, topic, part)
        return await self._by_version(who, choice, topic, part)

    async def read(self, who: Principal, octets: bytes, wanted: SchemaType) -> Any:
        """Read as JSON the bytes that a serializer wrote with a schema of type `wanted`. Raises `Unfit`, `Denied`."""
        schema_id, rest = wire.split(octets)
        try:
            schema = await self._schemas.schema(who, schema_id)
        except SchemaNotFound as error:
            raise Unfit(f"its schema {schema_id} is not in the registry") from error
        if schema.type is not wanted:
            raise Unfit(f"it was written with a schema of type {schema.type.value}, not {wanted.value}")
        values = await self._schemas.values(schema.type, schema.text, schema.references)
        if len(rest) <= INLINE_BYTES_MAX:
            return values.read(rest)
        return await self._schemas.run(values.read, rest)

    async def write_all(self, writer: Writer, values: Sequence[Any], size_bytes: int) -> list[bytes | Unfit | None]:
        """Serialize values; `Unfit` stands for a value that does not fit. `size_bytes` is their approximate total size.

        Raises `Invalid` if the schema needs more work than the limits allow; `Overloaded`.
        """
        if not writer.values.is_quick(size_bytes):
            return await self._schemas.written(writer.schema, values)
        if size_bytes <= INLINE_BYTES_MAX:
            return _written(writer, values)
        return await self._schemas.run(_written, writer, values)

    # -- the chosen schema ---------------------------------------------------------------------------------------

    async def _by_text(self, who: Principal, choice: Choice, text: str, topic: str, part: str) -> Writer:
        if choice.type is None:
            raise Invalid("a schema requires its type")
        draft = Draft(type=choice.type, text=text)
        values = await self._schemas.values(choice.type, text, ())
        subject = _subject(choice, topic, part, values)
        found = await self._schemas.register(who, subject, draft)
        return await self._writer(found.schema, subject, found.number)

    async def _by_id(self, who: Principal, choice: Choice, schema_id: int, topic: str, part: str) -> Writer:
        schema = await self._schemas.schema(who, schema_id, choice.subject)
        _check_type(choice, schema)
        values = await self._schemas.values(schema.type, schema.text, schema.references)
        subject = _subject(choice, topic, part, values)
        key = names.parse(subject)
        usages = await self._schemas.usages(who, schema_id, subject)
        numbers = [one.number for one in usages if one.subject == key]
        return await self._writer(schema, subject, max(numbers, default=None))

    async def _by_version(self, who: Principal, choice: Choice, topic: str, part: str) -> Writer:
        subject = _subject(choice, topic, part, None)
        version = names.LATEST if choice.version is None else choice.version
        found = await self._schemas.version(who, subject, version)
        _check_type(choice, found.schema)
        return await self._writer(found.schema, subject, found.number)

    async def _writer(self, schema: Schema, subject: str, number: int | None) -> Writer:
        values = await self._schemas.values(schema.type, schema.text, schema.references)
        return Writer(schema=schema, subject=subject, version=number, values=values)


def _written(writer: Writer, values: Sequence[Any]) -> list[bytes | Unfit | None]:
    found: list[bytes | Unfit | None] = []
    for value in values:
        try:
            found.append(writer.write(value))
        except Unfit as error:
            found.append(error)
    return found


def _check_type(choice: Choice, schema: Schema) -> None:
    if choice.type is not None and schema.type is not choice.type:
        raise InvalidSchema(
            f"Invalid schema: schema {schema.id} is of type {schema.type.value}, not {choice.type.value}"
        )


def _subject(choice: Choice, topic: str, part: str, values: Values | None) -> str:
    if choice.subject is not None:
        return choice.subject
    if choice.naming is Naming.TOPIC_NAME:
        return f"{topic}-{part}"
    name = values.record_name if values is not None else None
    if values is None:
        raise Invalid(f"{choice.naming.value} requires a schema or a schema id, for the name of the record")
    if name is None:
        raise InvalidSchema(
            f"Invalid schema: {choice.naming.value} requires a schema with a record name (JSON: a title)"
        )
    return name if choice.naming is Naming.RECORD_NAME else f"{topic}-{name}"
