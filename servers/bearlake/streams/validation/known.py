"""What one server knows of the registry, to validate records.

A server keeps the ids of the subjects' live versions, and a validator per schema. It accepts an id that it knows for `cached_ms`, and never
remembers that an id is unknown: a record with such an id waits for a look-up that began after the record arrived. So a schema that was
registered anywhere before its first record was sent is always found. The registry is in the metadata store, without which no record is
stored anyway.

Look-ups of the same subjects come one after another, with a pause, whatever clients send. One look-up answers all who waited for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

from bearlake.errors import Invalid, Unavailable
from bearlake.metadata.schemas import SchemaStore
from bearlake.streams.schema_rules import PartRules, Validation
from bearlake.streams.schemas import names
from bearlake.streams.schemas.compiled import Compiled, SchemaCompiler
from bearlake.streams.schemas.library import schema_of
from bearlake.streams.schemas.model import Schema, SchemaType
from bearlake.streams.schemas.references import named_texts, referenced_texts
from bearlake.streams.validation.settings import ValidationSettings
from bearlake.table.declared import DECLARED_ID
from bearlake.telemetry import metrics


class Validator(Protocol):
    """Checks values of one schema, in any thread."""

    @property
    def is_light(self) -> bool:
        """Whether 256 KiB of values, however small each is, take few milliseconds: so little that the event loop may check them."""

    def failures(self, values: Sequence[bytes], skip: int) -> list[int]:
        """Return the places of the values that cannot be decoded, ascending; without the first `skip` bytes of each."""

    def reason(self, value: bytes, skip: int) -> str:
        """Return why a value cannot be decoded."""


REASON_LENGTH_MAX = 256
"""Characters of a reason why values of a schema cannot be checked."""


@dataclass(frozen=True, slots=True)
class OutsideSchema:
    """A schema whose values are checked outside of this process: their check may take any time."""

    compiled: Compiled
    is_light: ClassVar[bool] = False


Found: TypeAlias = Validator | OutsideSchema | str
"""How values of a schema are checked; a text says why they cannot be."""

OffLoop: TypeAlias = Callable[[Callable[[], Found]], Awaitable[Found]]
"""Runs work in a thread."""


RequestedIds: TypeAlias = tuple[PartRules, Collection[int]]
"""The ids that the keys, or the values, of a batch name."""


_Key: TypeAlias = tuple[str, int, bytes]
"""A schema: context, id, and what tells it from another one that had the id before."""


class SchemaView(NamedTuple):
    """The schemas that keys, or values, may name; for one batch, in any thread."""

    ids: Collection[int]
    found: Callable[[int], Found | None]
    """Returns how values of a schema are checked; None: the schema must be looked up. Only for `Validation.VALUE`."""


class _Ids(NamedTuple):
    """The ids of the live versions of subjects. `began` is the time of the event loop when they were asked for."""

    ids: frozenset[int]
    began: float


class _Kept(NamedTuple):
    """A validator that is kept until `expires`, a time of the event loop; `size_bytes` of its texts."""

    found: Found
    size_bytes: int
    expires: float


class KnownSchemas:
    """The schemas that one server knows. Use it from the event loop's thread only."""

    def __init__(
        self,
        store: SchemaStore,
        settings: ValidationSettings,
        off_loop: OffLoop,
        compiler: SchemaCompiler | None,
        *,
        has_outside: bool = False,
    ) -> None:
        """`compiler`: for Protobuf; None: values of Protobuf schemas cannot be checked. `has_outside`: values of JSON Schema can."""
        self._has_outside = has_outside
        self._store = store
        self._compiler = compiler
        self._making: dict[_Key, asyncio.Task[Found]] = {}
        self._settings = settings
        self._off_loop = off_loop
        self._ids: dict[PartRules, _Ids] = {}
        self._id_count = 0
        self._kept: dict[tuple[str, int], _Kept] = {}
        """By context and id, in the order in which they expire."""
        self._kept_bytes = 0
        self._locks: WeakValueDictionary[PartRules, asyncio.Lock] = WeakValueDictionary()
        metrics.APPEND_SCHEMAS.labels("ids").set_function(lambda: self._id_count)
        metrics.APPEND_SCHEMAS.labels("bytes").set_function(lambda: self._kept_bytes)
        metrics.APPEND_SCHEMAS_MAX.labels("ids").set(settings.id_count_max)
        metrics.APPEND_SCHEMAS_MAX.labels("bytes").set(settings.cache_bytes_max)

    def close(self) -> None:
        """Give up validators that are being made."""
        for task in self._making.values():
            task.cancel()

    def view(self, part: PartRules) -> SchemaView:
        """Return what is known now; never waits. Ids that it lacks may exist."""
        now = self._now()
        self._forget_expired(now)
        known = self._ids.get(part)
        is_current = known is not None and now < known.began + self._settings.cached_ms / 1000
        return self._view(part, known.ids if known is not None and is_current else frozenset(), {})

    async def find(self, parts: Sequence[RequestedIds], since: float) -> list[SchemaView]:
        """Return a view for each part that is complete for its ids: what it lacks was not registered at `since`, a time of the event loop.

        Raises:
            Unavailable, Overloaded: the registry did not answer in time. Nothing is wrong with the records.
        """
        wait_s = self._settings.wait_ms_max / 1000
        try:
            async with asyncio.timeout(wait_s):
                return [await self._find(part, ids, since) for part, ids in parts]
        except TimeoutError as error:
            raise Unavailable(f"the schema registry did not answer within {wait_s:g} s; nothing was stored") from error

    async def _find(self, part: PartRules, ids: Collection[int], since: float) -> SchemaView:
        if not ids:
            return self._view(part, frozenset(), {})
        async with self._locks.setdefault(part, asyncio.Lock()):
            known = await self._known(part, ids, since)
        wanted = known.ids.intersection(ids) if part.validation is Validation.VALUE else ()
        if part.columns:
            return self._view(part, known.ids, {DECLARED_ID: await self._declared(part.columns)})
        return self._view(part, known.ids, await self._validators(_context(part), wanted))

    async def _declared(self, columns: str) -> Found:
        """Return how values with declared columns are checked."""
        if (kept := self._kept.get((columns, DECLARED_ID))) is not None:
            return kept.found
        found = await self._off_loop(partial(_made_of_columns, columns))
        expires = self._now() + self._settings.cached_ms / 1000
        self._keep((columns, DECLARED_ID), _Kept(found, len(columns), expires))
        return found

    def _view(self, part: PartRules, ids: frozenset[int], found: Mapping[int, Found]) -> SchemaView:
        context, kept = _context(part), self._kept

        def validator(schema_id: int) -> Found | None:
            if (own := found.get(schema_id)) is not None:
                return own
            other = kept.get((context, schema_id))
            return None if other is None else other.found

        return SchemaView(ids, validator)

    async def _known(self, part: PartRules, ids: Collection[int], since: float) -> _Ids:
        """Return the ids of the subjects, from a look-up after `since` unless all of `ids` are known."""
        known = self._ids.get(part)
        if known is not None:
            now = self._now()
            is_current = now < known.began + self._settings.cached_ms / 1000
            if known.began > since or (is_current and known.ids.issuperset(ids)):
                return known
            if (pause_s := known.began + self._settings.pause_ms / 1000 - now) > 0:
                await asyncio.sleep(pause_s)
        metrics.APPEND_SCHEMA_LOOKUPS.inc()
        began = self._now()
        known = _Ids(await self._live_ids(part), began)
        self._keep_ids(part, known)
        return known

    async def _live_ids(self, part: PartRules) -> frozenset[int]:
        if part.schema_id is not None:
            return frozenset([part.schema_id])
        states = [await self._store.subject(names.parse(subject)) for subject in part.subjects]
        return frozenset(row.schema_id for state in states for row in state.versions if not row.is_deleted)

    def _keep_ids(self, part: PartRules, known: _Ids) -> None:
        self._forget_ids(part)
        self._ids[part] = known
        self._id_count += len(known.ids) + 1
        while self._id_count > self._settings.id_count_max and len(self._ids) > 1:
            self._forget_ids(next(iter(self._ids)))

    def _forget_ids(self, part: PartRules) -> None:
        if (before := self._ids.pop(part, None)) is not None:
            self._id_count -= len(before.ids) + 1

    async def _validators(self, context: str, ids: Collection[int]) -> dict[int, Found]:
        """Return how values of these schemas are checked; makes what is not kept."""
        self._forget_expired(self._now())
        found = {schema_id: kept.found for schema_id in ids if (kept := self._kept.get((context, schema_id)))}
        missing = [schema_id for schema_id in ids if schema_id not in found]
        for row in await self._store.schemas(context, missing) if missing else ():
            found[row.id] = await self._validator(schema_of(row))
        return found | {schema_id: "the registry has no such schema" for schema_id in missing if schema_id not in found}

    async def _validator(self, schema: Schema) -> Found:
        """Make a validator once for all who wait. It is made to the end, and kept, even if they give up: a retry finds it."""
        key = (schema.context, schema.id, schema.guid.bytes)
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(schema))
            task.add_done_callback(partial(self._end, key))
        return await asyncio.shield(task)

    def _end(self, key: _Key, task: asyncio.Task[Found]) -> None:
        del self._making[key]
        if not task.cancelled():
            task.exception()  # those who wait get it; there may be none

    async def _make(self, schema: Schema) -> Found:
        """Make a validator, and keep it. Raises `Unavailable`, `Overloaded`."""
        compiler = self._compiler if schema.type is SchemaType.PROTOBUF else None
        size_bytes = len(schema.text)
        made: Found
        try:
            if schema.type is SchemaType.JSON and self._has_outside:
                texts = await named_texts(self._store, schema)
                size_bytes += sum(map(len, texts.values()))
                made = OutsideSchema(
                    Compiled(type=schema.type.value, text=schema.text, canonical="", normalized="", references=texts)
                )
            elif compiler is not None:
                texts = await named_texts(self._store, schema)
                files = (await compiler.compiled(schema.type.value, schema.text, texts)).files
                size_bytes += sum(map(len, files))
                made = await self._off_loop(partial(_protobuf, files))
            else:
                references = await referenced_texts(self._store, schema)
                size_bytes += sum(map(len, references))
                made = await self._off_loop(partial(_made, schema, references))
        except Invalid as error:
            made = str(error)[:REASON_LENGTH_MAX]
        expires = self._now() + self._settings.cached_ms / 1000
        self._keep((schema.context, schema.id), _Kept(made, size_bytes, expires))
        return made

    def _keep(self, key: tuple[str, int], kept: _Kept) -> None:
        self._forget(key)
        self._kept[key] = kept
        self._kept_bytes += kept.size_bytes
        while self._kept_bytes > self._settings.cache_bytes_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[str, int]) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            self._kept_bytes -= before.size_bytes

    def _forget_expired(self, now: float) -> None:
        while self._kept and self._kept[first := next(iter(self._kept))].expires <= now:
            self._forget(first)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _context(part: PartRules) -> str:
    """Return the context that the ids of the subjects belong to; all subjects have the same (`check_subjects`).

    Of declared columns: their text.
    """
    if part.columns:
        return part.columns
    return names.parse(part.subjects[0]).context


def _made(schema: Schema, references: Sequence[str]) -> Found:
    """Make the validator of a schema; in a thread: Arrow's library may have to be loaded first. Raises `Unsupported`."""
    if schema.type is not SchemaType.AVRO:
        return f"it is of type {schema.type.value}, whose values cannot be decoded here: use id instead of value"
    from bearlake.table.typed.validity import AvroValidity

    return AvroValidity(schema.text, references)


def _made_of_columns(columns: str) -> Found:
    """Make the validator of declared columns; in a thread."""
    from bearlake.table.typed.validity import ColumnsValidity

    return ColumnsValidity(columns)


def _protobuf(files: Sequence[bytes]) -> Found:
    """Make the validator of a compiled Protobuf schema; in a thread. Raises `Unsupported`."""
    from bearlake.table.typed.protobuf_validity import ProtobufValidity

    return ProtobufValidity(files)
