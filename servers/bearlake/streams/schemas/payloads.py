"""Converts record keys and values between JSON and serialized bytes, with schemas of the registry.

    writer      finds or registers the schema
    write_all   writes values, each after the schema's id
    read_all    reads serialized bytes as JSON, with the schemas whose ids the bytes carry

Child processes evaluate schemas and values (`confined/`); values pass through this process as bytes. A request makes one call of a
child for all values of one schema.

Null is written as an absent value, whatever the schema, as Confluent's serializers do. In a key-compacted stream it deletes the key.

Source: Confluent, "Formats, Serializers, and Deserializers" (wire format, subject name strategies).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from bearlake.errors import Denied, Invalid, Overloaded, Unavailable
from bearlake.streams.principal import Principal
from bearlake.streams.schemas import names
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.model import Draft, Schema, SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaNotFound, SchemaTooLarge
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit

_HEAD_BYTES = 5
"""Magic byte and schema id."""


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
    """A schema to write values with."""

    schema: Schema
    subject: str
    version: int | None
    """The version number of the schema under the subject; None if it is not registered there."""


class Read(NamedTuple):
    """The first of some values, as JSON texts (None: no value), and why the next value cannot be read.

    Without an error, the values that are missing exceed what one answer may hold, and can be read next.
    """

    texts: Sequence[bytes | None]
    error: Unfit | Denied | None


class Opened(NamedTuple):
    """A value that names a schema: its JSON text, or (`text` None) why it cannot be shown by that schema."""

    schema_id: int
    type: SchemaType | None = None
    text: bytes | None = None
    problem: str = ""


class Payloads:
    """Reads and writes values with the schemas of a registry. Calls raise `Unavailable` if the registry does not answer."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def budget(self) -> Budget:
        """Return the budget of one client request."""
        return Budget(self._schemas.settings)

    async def writer(self, who: Principal, choice: Choice, topic: str, part: str, budget: Budget) -> Writer:
        """Return a writer of values for the chosen schema; topic and `part` (`key` or `value`) determine the subject.

        Raises:
            Invalid: the choice contradicts itself, or names no schema.
            Refusal: an error of the registry, such as `InvalidSchema`, `Incompatible`, `SchemaNotFound`.
            Denied: the caller lacks permission.
        """
        if sum(field is not None for field in (choice.text, choice.id, choice.version)) > 1:
            raise Invalid("only one of schema, schema_id and schema_version may be given")
        if choice.text is not None:
            return await self._by_text(who, choice, choice.text, topic, part, budget)
        if choice.id is not None:
            return await self._by_id(who, choice, choice.id, topic, part, budget)
        return await self._by_version(who, choice, topic, part)

    async def write_all(
        self, writer: Writer, texts: Sequence[bytes | None], budget: Budget
    ) -> list[bytes | Unfit | None]:
        """Serialize values, given as JSON texts; None and `null` give None. An `Unfit` stands for a value that does not fit.

        Raises `InvalidSchema`, `SchemaTooLarge` if the schema or the values need more work than the limits allow; `Overloaded`.
        """
        present = [text for text in texts if text is not None and text != b"null"]
        written = iter(await self._schemas.written(writer.schema, present, budget) if present else ())
        return [None if text is None or text == b"null" else next(written) for text in texts]

    async def read_all(self, who: Principal, values: Sequence[bytes | None], type_: SchemaType, budget: Budget) -> Read:
        """Read as JSON the values that serializers wrote with schemas of type `type_`, up to the first that cannot be read."""
        found: dict[int, bytes] = {}
        count = len(values)
        error: Unfit | Denied | None = None
        places: dict[int, list[int]] = {}
        for at, octets in enumerate(values):
            if octets is None:
                continue
            try:
                schema_id, _ = wire.split(octets)
            except Unfit as unfit:
                count, error = at, unfit
                break
            places.setdefault(schema_id, []).append(at)
        for schema_id, all_indexes in places.items():
            indexes = [at for at in all_indexes if at < count]
            if not indexes:
                continue
            if found and budget.is_full:
                count, error = indexes[0], None  # later schemas begin later
                break
            for at, result in zip(
                indexes, await self._read(who, schema_id, [values[at] for at in indexes], type_, budget), strict=False
            ):
                if isinstance(result, bytes):
                    found[at] = result
                else:
                    count, error = at, result
            missing = next((at for at in indexes if at < count and at not in found), None)
            if missing is not None:
                count, error = missing, None
        return Read([found.get(at) for at in range(count)], error)

    async def open_all(self, who: Principal, values: Sequence[bytes | None], budget: Budget) -> Sequence[Opened | None]:
        """Read as JSON each value that begins with the id of a schema; None: the value does not, or it is absent.

        A value that cannot be read does not affect the others: its `problem` says why.
        """
        found: list[Opened | None] = [None] * len(values)
        places: dict[int, list[int]] = {}
        for at, octets in enumerate(values):
            if octets is not None and len(octets) >= _HEAD_BYTES and octets[0] == 0:
                places.setdefault(wire.split(octets)[0], []).append(at)
        for schema_id, indexes in places.items():
            opened = await self._open(who, schema_id, [values[at] or b"" for at in indexes], budget)
            for at, item in zip(indexes, opened, strict=True):
                found[at] = item
        return found

    async def _open(self, who: Principal, schema_id: int, values: Sequence[bytes], budget: Budget) -> Sequence[Opened]:
        """Return one item per value of one schema."""
        try:
            schema = await self._schemas.schema(who, schema_id)
            texts = list(await self._schemas.read(schema, [wire.split(value)[1] for value in values], budget))
        except SchemaNotFound:
            return [Opened(schema_id, problem=f"its schema, {schema_id}, is not in the registry")] * len(values)
        except (Denied, InvalidSchema, SchemaTooLarge, Overloaded, Unavailable) as error:
            return [Opened(schema_id, problem=f"its schema, {schema_id}, cannot be used: {error}")] * len(values)
        opened = [
            Opened(schema_id, schema.type, text)
            if isinstance(text, bytes)
            else Opened(schema_id, schema.type, problem=str(text))
            for text in texts
        ]
        rest = Opened(schema_id, schema.type, problem="the values of this answer are too large to show all of them")
        return [*opened, *[rest] * (len(values) - len(opened))]

    async def _read(
        self, who: Principal, schema_id: int, values: Sequence[bytes | None], type_: SchemaType, budget: Budget
    ) -> Sequence[bytes | Unfit | Denied]:
        """Return the JSON texts of values with one schema, up to the first error."""
        try:
            schema = await self._schemas.schema(who, schema_id)
            if schema.type is not type_:
                return [Unfit(f"it was written with a schema of type {schema.type.value}, not {type_.value}")]
            octets = [wire.split(value)[1] for value in values if value is not None]
            found = await self._schemas.read(schema, octets, budget)
        except SchemaNotFound:
            return [Unfit(f"its schema, {schema_id}, is not in the registry")]
        except (InvalidSchema, SchemaTooLarge) as error:
            return [Unfit(f"its schema, {schema_id}, cannot be evaluated: {error}")]
        except Denied as denied:
            return [denied]
        first = next((at for at, result in enumerate(found) if isinstance(result, Unfit)), len(found))
        return found[: first + 1]

    # -- the chosen schema ---------------------------------------------------------------------------------------

    async def _by_text(
        self, who: Principal, choice: Choice, text: str, topic: str, part: str, budget: Budget
    ) -> Writer:
        if choice.type is None:
            raise Invalid("a schema needs its type")
        compiled = await self._schemas.compiled_text(choice.type, text, budget)
        subject = _subject(choice, topic, part, compiled)
        found = await self._schemas.register(who, subject, Draft(type=choice.type, text=text), budget=budget)
        return Writer(schema=found.schema, subject=subject, version=found.number)

    async def _by_id(
        self, who: Principal, choice: Choice, schema_id: int, topic: str, part: str, budget: Budget
    ) -> Writer:
        schema = await self._schemas.schema(who, schema_id, choice.subject)
        _check_type(choice, schema)
        subject = _subject(choice, topic, part, await self._schemas.compiled(schema, budget))
        key = names.parse(subject)
        usages = await self._schemas.usages(who, schema_id, subject)
        numbers = [usage.number for usage in usages if usage.subject == key]
        return Writer(schema=schema, subject=subject, version=max(numbers, default=None))

    async def _by_version(self, who: Principal, choice: Choice, topic: str, part: str) -> Writer:
        subject = _subject(choice, topic, part, None)
        version = names.LATEST if choice.version is None else choice.version
        found = await self._schemas.version(who, subject, version)
        _check_type(choice, found.schema)
        return Writer(schema=found.schema, subject=subject, version=found.number)


def _check_type(choice: Choice, schema: Schema) -> None:
    if choice.type is not None and schema.type is not choice.type:
        raise InvalidSchema(
            f"Invalid schema: schema {schema.id} is of type {schema.type.value}, not {choice.type.value}"
        )


def _subject(choice: Choice, topic: str, part: str, schema: Compiled | None) -> str:
    if choice.subject is not None:
        return choice.subject
    if choice.naming is Naming.TOPIC_NAME:
        return f"{topic}-{part}"
    name = schema.record_name if schema is not None else None
    if schema is None:
        raise Invalid(f"{choice.naming.value} needs a schema or a schema's id, which has the record's name")
    if name is None:
        raise InvalidSchema(
            f"Invalid schema: {choice.naming.value} needs a schema with a record's name (JSON: a title)"
        )
    return name if choice.naming is Naming.RECORD_NAME else f"{topic}-{name}"
