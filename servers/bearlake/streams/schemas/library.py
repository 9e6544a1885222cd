"""Schemas by id, and compiled schemas by text and references: a bounded cache over the metadata store.

A schema never changes, so cached schemas are never stale. The cache does not store failures: neither missing schemas nor compile errors.
Child processes (`confined/`) compile and compare schemas, and read and write values; this process never does.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from bearlake.metadata.schemas import SchemaRow, SchemaStore, SubjectKey, VersionKey
from bearlake.streams.schemas import names
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import Document, Reference, Schema, SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaNotFound, SchemaTooLarge
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit
from bearlake.telemetry import metrics

V = TypeVar("V")

ENTRY_BYTES = 512
"""Memory (bytes) of an entry besides its text."""


class Library:
    """The schemas that one server knows. Use it from the event loop's thread only."""

    def __init__(self, store: SchemaStore, settings: SchemasSettings) -> None:
        self._store = store
        self._settings = settings
        self._schemas: _Recent[Schema] = _Recent(settings.cache_bytes_max // 2)
        self._compiled: _Recent[Compiled] = _Recent(settings.cache_bytes_max // 2)
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._pool = Pool(settings)
        metrics.REGISTRY_CACHE_BYTES.set_function(lambda: self._schemas.size_bytes + self._compiled.size_bytes)
        metrics.REGISTRY_CACHE_BYTES_MAX.set(settings.cache_bytes_max)

    def close(self) -> None:
        """Stop the processes at once; their current work fails."""
        self._pool.close()

    def forget(self, context: str, ids: Collection[int]) -> None:
        """Drop these schemas from the cache: their last versions may be deleted, so the next call asks the store."""
        for schema_id in ids:
            self._schemas.forget((context, schema_id))

    async def schema(self, context: str, schema_id: int) -> Schema:
        """Return the schema with this id. Raises `SchemaNotFound`, `Unavailable`."""
        found = await self.find(context, schema_id)
        if found is None:
            raise SchemaNotFound(f"Schema {schema_id} not found")
        return found

    async def find(self, context: str, schema_id: int) -> Schema | None:
        """Return the schema with this id; None if there is none. Raises `Unavailable`."""
        return (await self.schemas(context, [schema_id])).get(schema_id)

    async def schemas(self, context: str, ids: Collection[int]) -> dict[int, Schema]:
        """Return the schemas that exist, by id."""
        now = self._now()
        found = {schema_id: self._schemas.get((context, schema_id), now) for schema_id in ids}
        missing = [schema_id for schema_id, schema in found.items() if schema is None]
        metrics.REGISTRY_CACHE_HITS.inc(len(found) - len(missing))
        metrics.REGISTRY_CACHE_MISSES.inc(len(missing))
        for row in await self._store.schemas(context, missing) if missing else ():
            found[row.id] = self.keep(row)
        return {schema_id: schema for schema_id, schema in found.items() if schema is not None}

    def keep(self, row: SchemaRow) -> Schema:
        """Return the schema of a row that a version uses, and cache it."""
        schema = schema_of(row)
        expires = self._now() + self._settings.cached_ms / 1000
        self._schemas.put((row.context, row.id), schema, len(row.content), expires)
        return schema

    async def compiled(
        self, type_: SchemaType, text: str, references: Sequence[Reference], budget: Budget | None = None
    ) -> Compiled:
        """Compile a text. Raises `InvalidSchema`, `SchemaTooLarge`, `Overloaded`, `Unavailable`."""
        budget = budget or Budget(self._settings)
        texts: dict[str, str] = {}
        size = await self._resolve(references, texts, set(), self._checked_size(0, text))
        key = (type_, text, *texts.items())
        found = self._compiled.get(key, 0)
        if found is not None:
            return found
        async with self._locks.setdefault(key, asyncio.Lock()):  # concurrent callers share one compilation
            found = self._compiled.get(key, 0)
            if found is None:
                found = await self._pool.compiled(type_.value, text, texts, budget)
                self._compiled.put(key, found, size + found.size_bytes, 1)
            return found

    async def compiled_schema(self, schema: Schema, budget: Budget | None = None) -> Compiled:
        """Compile a stored schema. Raises as `compiled`."""
        return await self.compiled(schema.type, schema.text, schema.references, budget)

    async def referenced(self, schema: Schema) -> Collection[SubjectKey]:
        """Return the subjects that a schema references, itself or through others. Raises as `compiled`."""
        found: set[VersionKey] = set()
        waiting = [*schema.references]
        while waiting:
            reference = waiting.pop()
            if reference.version not in found:
                self._check_count(len(found))
                found.add(reference.version)
                waiting += (await self._referenced(reference)).references
        return {version.subject for version in found}

    async def incompatibilities(self, reader: Compiled, writer: Compiled, budget: Budget) -> list[str]:
        """Return why `reader` cannot read `writer`'s data; a child process compares the schemas. Raises as `compiled`."""
        return await self._pool.incompatibilities(reader, writer, budget)

    async def written(self, schema: Schema, texts: Sequence[bytes], budget: Budget) -> list[bytes | Unfit]:
        """Serialize values, given as JSON texts, in Confluent's wire format (schema id first).

        An `Unfit` stands for a value that does not fit the schema. Raises as `compiled`.
        """
        found = await self._pool.written(await self.compiled_schema(schema, budget), texts, budget)
        head = wire.head(schema.id)
        return [value if isinstance(value, Unfit) else head + value for value in found]

    async def read(self, schema: Schema, values: Sequence[bytes], budget: Budget) -> list[bytes | Unfit]:
        """Return the JSON texts of serialized values, given without the schema's id, as `Pool.read`. Raises as `compiled`."""
        return await self._pool.read(await self.compiled_schema(schema, budget), values, budget)

    async def _resolve(self, references: Sequence[Reference], texts: dict[str, str], seen: set[str], size: int) -> int:
        """Add the texts of the references, each after its own references and each name once; return the size of all texts.

        Raises `SchemaTooLarge` at the first text beyond a limit, before it loads another.
        """
        for reference in references:
            if reference.name in seen:
                continue
            self._check_count(len(seen))
            seen.add(reference.name)
            schema = await self._referenced(reference)
            size = self._checked_size(size, schema.text)
            size = await self._resolve(schema.references, texts, seen, size)
            texts[reference.name] = schema.text
        return size

    def _check_count(self, count: int) -> None:
        """Raise `SchemaTooLarge` if a schema that references `count` others may not reference one more."""
        if count >= self._settings.reference_count_max:
            raise SchemaTooLarge(f"The schema references more than {self._settings.reference_count_max} others")

    def _checked_size(self, size: int, text: str) -> int:
        try:
            size += len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidSchema("Invalid schema: the text has half of a character (a lone surrogate)") from error
        if size > (limit := self._settings.schema_bytes_max):
            raise SchemaTooLarge(f"The schema has {size} bytes or more with what it references, the limit is {limit}")
        return size

    async def _referenced(self, reference: Reference) -> Schema:
        subject, number = reference.version
        state = await self._store.subject(subject)
        for row in state.versions:
            if row.number == number:
                return await self.schema(subject.context, row.schema_id)
        raise InvalidSchema(
            f"Invalid schema: the reference {reference.name!r} is not there:"
            f" subject {names.shown(subject)!r} has no version {number}"
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _Recent(Generic[V]):
    """A size-bounded LRU cache."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self._values: OrderedDict[object, tuple[V, int, float]] = OrderedDict()

    def get(self, key: object, now: float) -> V | None:
        entry = self._values.get(key)
        if entry is None or entry[2] <= now:
            return None
        self._values.move_to_end(key)
        return entry[0]

    def put(self, key: object, value: V, size_bytes: int, expires: float) -> None:
        self.forget(key)
        self._values[key] = (value, size_bytes + ENTRY_BYTES, expires)
        self.size_bytes += size_bytes + ENTRY_BYTES
        while self.size_bytes > self._bytes_max:
            self.forget(next(iter(self._values)))

    def forget(self, key: object) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry[1]


def body_of(type_: SchemaType, canonical: str, references: Sequence[Reference]) -> bytes:
    """Return the fingerprint of a schema without its metadata and rules."""
    named = sorted([reference.name, *reference.version.subject, reference.version.number] for reference in references)
    return _digest([type_.value, canonical, named])


def fingerprint_of(body: bytes, metadata: Document | None, rule_set: Document | None) -> bytes:
    """Return the fingerprint of a schema with its metadata and rules; as a UUID, the schema's guid."""
    return _digest([body.hex(), metadata, rule_set])


def content_of(
    type_: SchemaType, text: str, references: Sequence[Reference], metadata: Document | None, rule_set: Document | None
) -> str:
    """Encode a schema for the store."""
    named = [[reference.name, *reference.version.subject, reference.version.number] for reference in references]
    content = {"type": type_.value, "text": text, "references": named, "metadata": metadata, "ruleSet": rule_set}
    return json.dumps(content)


def schema_of(row: SchemaRow) -> Schema:
    """Decode a stored row."""
    content: Mapping[str, Any] = json.loads(row.content)
    return Schema(
        context=row.context,
        id=row.id,
        guid=UUID(bytes=row.fingerprint),
        type=SchemaType(content["type"]),
        text=content["text"],
        references=tuple(
            Reference(name=name, version=VersionKey(SubjectKey(context, subject), number))
            for name, context, subject, number in content["references"]
        ),
        metadata=content["metadata"],
        rule_set=content["ruleSet"],
        body=row.body,
        size_bytes=len(row.content),
    )


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:16]
