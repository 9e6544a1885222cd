"""Which schemas the values and keys of a stream have, and which columns these schemas have in its table.

The worker plans a task's values after it has read the task's slices: a record names a schema that was registered before it, so the plan
knows every schema that the records may name. The plan has the texts of the schemas whose fields have columns already. An item that meets
another known schema ends and asks for it (`MissingSchemas`); then the worker adds the schema to the column book, and runs the item again.
So a schema that no record uses adds no columns. A value of a Protobuf schema names one of its messages after the id; items ask for messages
in the same way. All this holds for keys, too.

Values are left out only if all live processes read such files (`metadata/formats.py`); else they are kept beside their columns. Keys get
their first columns only if all live processes read such files.

Everything is read from the metadata store, which is also this deployment's registry. If it does not answer, the task waits and no attempt
is counted. A setting that names no usable schema fails the task, whose error says why, and no other stream's.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.writer_schemas import FoundSchemas, WriterSchemas, declared_schema, refusal
from bearlake.errors import Conflict, Invalid, Unsupported
from bearlake.metadata import Metadata
from bearlake.metadata.formats import ELIDED_MESSAGES, ELIDED_VALUES, TYPED_KEYS, too_old
from bearlake.metadata.model import Server, Stream
from bearlake.streams.schemas import names
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.streams.value_rules import ValueMode, ValueRules, key_rules, value_rules
from bearlake.table import Tables
from bearlake.table.column_book import ColumnBook, KeyBook, MessageKey, decode_book, new_book, with_keys, with_schema
from bearlake.table.declared import DECLARED_ID
from bearlake.table.schema import FIELD_IDS
from bearlake.table.value_codecs import SchemaUnusable, ValueCodec, codec_of, key_fields, message_of
from bearlake.table.value_plan import LACKS_GUIDS, FileColumns, PartPlan, ValuePlan, WriterSchema
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_ATTEMPT_COUNT_MAX = 20
"""Attempts to change a column book that other workers change, too."""
_TOO_MANY = "UNSUPPORTED_SCHEMA: records that were compacted together name more schemas than"
_STREAM_COUNT_MAX = 1_000
"""Streams whose refused schemas are remembered."""


class Typed(Protocol):
    """A task or other work on one stream's records. `columns` are the typed columns of its files; None: they have none."""

    stream: Stream
    columns: ColumnBook | None


class Requested(NamedTuple):
    """Schemas, and messages of Protobuf schemas, that a plan must have; the first ones count most. `LACKS_GUIDS`: and their GUIDs."""

    ids: tuple[int, ...] = ()
    messages: tuple[MessageKey, ...] = ()

    @property
    def schema_ids(self) -> tuple[int, ...]:
        """The ids of all of them."""
        return tuple(dict.fromkeys([*self.ids, *(message.schema_id for message in self.messages)]))

    def without_guids(self) -> "Requested":
        """Return these without `LACKS_GUIDS`."""
        return self._replace(ids=tuple(id_ for id_ in self.ids if id_ != LACKS_GUIDS))

    def and_then(self, other: "Requested") -> "Requested":
        """Return these, then the others."""
        return Requested(
            tuple(dict.fromkeys((*self.ids, *other.ids))), tuple(dict.fromkeys((*self.messages, *other.messages)))
        )


class RequestedParts(NamedTuple):
    """What a plan must have for values and for keys."""

    value: Requested = Requested()
    key: Requested = Requested()

    def and_missing(self, result: ItemResult) -> "RequestedParts":
        """Return this, then what an item asks for."""
        value = Requested(tuple(sorted(result.missing_schema_ids)), tuple(sorted(result.missing_messages)))
        key = Requested(tuple(sorted(result.missing_key_schema_ids)), tuple(sorted(result.missing_key_messages)))
        return RequestedParts(self.value.and_then(value), self.key.and_then(key))


NOTHING: Final = Requested()
NO_PARTS: Final = RequestedParts()


@dataclass(slots=True, kw_only=True)
class _PartWork:
    """What is found out about the values, or the keys, of a stream while a plan is made."""

    is_key: bool
    rules: ValueRules
    known: list[int]
    requested: Requested
    wanted: Requested
    ids: list[int] = field(default_factory=list)
    found: FoundSchemas = field(default_factory=FoundSchemas)
    refused: dict[int, str] = field(default_factory=dict)
    refused_messages: dict[MessageKey, str] = field(default_factory=dict)
    guids: dict[str, int] | None = None

    def in_book(self, book: ColumnBook | None) -> ColumnBook | KeyBook | None:
        """Return the book's part."""
        return book.key if self.is_key and book is not None else book

    def plan(self, schema_count_max: int, *, elides: bool) -> dict[str, Any]:
        """Return the fields of `PartPlan`."""
        beyond = set(self.requested.schema_ids).difference(self.ids)
        return {
            "elides": elides,
            "known": self.known,
            "refused": self.found.refused | self.refused | dict.fromkeys(beyond, f"{_TOO_MANY} {schema_count_max}"),
            "schema_id": self.rules.schema_id,
            "protobuf": self.found.protobuf,
            "refused_messages": self.refused_messages,
            "guids": self.guids,
        }


class ValueSchemas:
    """Plans the values of tasks, for one worker."""

    def __init__(
        self, metadata: Metadata, tables: Tables, settings: ColumnSettings, compiler: SchemaCompiler | None = None
    ) -> None:
        """Without a `compiler`, values of Protobuf schemas cannot become columns."""
        self._metadata = metadata
        self._tables = tables
        self._settings = settings
        self._writers = WriterSchemas(metadata, compiler)
        self._refused: OrderedDict[tuple[int, bool], Requested] = OrderedDict()
        self._keeps_for: list[str] = []
        """Names of live processes for which values are kept."""

    async def plan(self, stream: Stream, requested: RequestedParts = NO_PARTS) -> ValuePlan | None:
        """Return how values and keys become columns; None: they do not. The columns of what is `requested` are stored when this returns.

        A plan has at most `schema_count_max` schemas of values, and as many of keys, the first requested ones before all others. It refuses
        the other requested ones.

        Raises:
            Invalid: the settings name no schema, or there is no compiler for a schema's format.
            Conflict: other workers change the columns all the time.
            Unavailable: a store or the compiler of schemas did not answer.
        """
        rules, of_keys = value_rules(stream.name, stream.configs), key_rules(stream.name, stream.configs)
        if rules.mode is ValueMode.RAW and of_keys.mode is ValueMode.RAW:
            return None
        is_keyed = of_keys.mode is not ValueMode.RAW
        live = await self._metadata.servers.live() if rules.mode is ValueMode.ELIDE or is_keyed else []
        value = None if rules.mode is ValueMode.RAW else await self._part(stream, rules, requested.value)
        key = await self._part(stream, of_keys, requested.key, is_key=True) if is_keyed else None
        for _ in range(_ATTEMPT_COUNT_MAX):
            stored = await self._metadata.table_columns.get(stream.number)
            book = decode_book(stored.text, stored.version) if stored.version else None
            if key is not None and (book is None or book.key is None) and too_old(live, TYPED_KEYS):
                key = None
            parts = [part for part in (value, key) if part is not None]
            if not parts:
                self._note_old(live, parts, is_keyed=is_keyed)
                return None
            try:
                book = await self._extended(stream, book, parts)
            except Conflict:
                continue
            self._note_old(live, parts, is_keyed=is_keyed)
            for part in parts:
                self._remember(stream, part)
            return self._plan_of(book, value, key, live)
        raise Conflict(f"stream {stream.name}: other workers change its columns all the time")

    async def _part(
        self, stream: Stream, rules: ValueRules, requested: Requested, *, is_key: bool = False
    ) -> _PartWork:
        fixed = (
            NOTHING if rules.schema_id is None else Requested((rules.schema_id,), (MessageKey(rules.schema_id, (0,)),))
        )
        refused = self._refused.get((stream.number, is_key), NOTHING)
        known = await self._known(rules)
        asked = requested.and_then(refused)
        requested = requested.without_guids()
        return _PartWork(
            is_key=is_key,
            rules=rules,
            known=known,
            requested=requested,
            wanted=requested.and_then(fixed).and_then(refused.without_guids()),
            guids=await self._writers.guids(rules, known) if LACKS_GUIDS in asked.ids else None,
        )

    def _plan_of(
        self, book: ColumnBook, value: _PartWork | None, key: _PartWork | None, live: Sequence[Server]
    ) -> ValuePlan:
        count_max = self._settings.schema_count_max
        return ValuePlan(
            **(
                {"elides": False, "known": [], "refused": {}}
                if value is None
                else value.plan(count_max, elides=_elides(value, live))
            ),
            types_values=value is not None,
            columns=FileColumns(
                book=book, schemas=_of_files(value, book, live), key_schemas=_of_files(key, book.key, live)
            ),
            key=None if key is None else PartPlan(**key.plan(count_max, elides=_elides(key, live))),
        )

    async def columns(self, stream: Stream) -> ColumnBook | None:
        """Return the columns of `plan`; None: there are none. Raises as `plan`."""
        plan = await self.plan(stream)
        return None if plan is None else plan.columns.book

    def check_declared(self, book: ColumnBook | None, text: str) -> None:
        """Raise `Invalid` if a table with the columns of `book` (None: without typed ones) cannot have those that `text` declares, too."""
        book = book or new_book(max(FIELD_IDS.values()))
        try:
            fields = codec_of(declared_schema(text)).fields
            with_schema(
                book, DECLARED_ID, fields, last_id=book.next_id, column_count_max=self._settings.column_count_max
            )
        except (SchemaUnusable, Unsupported) as error:
            raise Invalid(str(error)) from error

    async def check_schemas(self, stream_name: str, configs: Mapping[str, str]) -> None:
        """Check the schemas that all values, or all keys, of a stream have by its configs, which must be checked already.

        Raises `Invalid` where `plan` would, and `Unavailable`.
        """
        for rules in (value_rules(stream_name, configs), key_rules(stream_name, configs)):
            if rules.mode is not ValueMode.RAW and rules.schema_id is not None:
                await self._writers.of(rules, [rules.schema_id])

    async def run(
        self, works: Sequence[Typed], items: Sequence[Sequence[WorkItem]], runner: Runner
    ) -> list[ItemResult]:
        """Run the items of the works; add the schemas that items ask for, and run those again. Raises as `plan` and `Runner.run`."""
        flat = [item for group in items for item in group]
        owners = [work for work, group in zip(works, items, strict=True) for _ in group]
        results = list(await runner.run(flat)) if flat else []
        requested: dict[
            int, RequestedParts
        ] = {}  # of each work, in order: what a plan was given, the next one has, too
        for _ in range(self._settings.schema_count_max):
            again = [at for at, result in enumerate(results) if result.lacks_schemas]
            if not again:
                return results
            for work in {id(owners[at]): owners[at] for at in again}.values():
                places = [at for at in again if owners[at] is work]
                wanted = requested.get(id(work), NO_PARTS)
                for at in places:
                    wanted = wanted.and_missing(results[at])
                requested[id(work)] = wanted
                plan = await self.plan(work.stream, wanted)
                if plan is None:
                    raise Conflict(f"the columns of stream {work.stream.name} were disabled meanwhile")
                work.columns = plan.columns.book
                for at in places:
                    flat[at] = replace(flat[at], values=plan)
            for at, result in zip(again, await runner.run([flat[at] for at in again]), strict=True):
                results[at] = result
        raise Conflict(f"work items ask for more than {self._settings.schema_count_max} schemas, one after the other")

    def _note_old(self, live: Sequence[Server], parts: Sequence[_PartWork], *, is_keyed: bool) -> None:
        """Say which live processes are too old for what the stream's settings ask for."""
        format_ = TYPED_KEYS if is_keyed else ELIDED_VALUES
        if any(part.found.protobuf for part in parts):
            format_ = max(format_, ELIDED_MESSAGES)
        old = [server.name for server in too_old(live, format_)]
        metrics.COMPACTION_TOO_OLD.set(len(old))
        if old and old != self._keeps_for:
            log.warning("values are kept beside their columns: some processes are too old", extra={"servers": old})
        self._keeps_for = old

    def _remember(self, stream: Stream, part: _PartWork) -> None:
        """Remember what was refused, and that records name GUIDs, so that the next plan has it, and no item has to ask for it."""
        guids = () if part.guids is None else (LACKS_GUIDS,)
        refused = Requested((*guids, *part.refused), tuple(part.refused_messages))
        if refused != NOTHING:
            at = (stream.number, part.is_key)
            self._refused[at] = refused
            self._refused.move_to_end(at)
        while len(self._refused) > _STREAM_COUNT_MAX:
            self._refused.popitem(last=False)

    async def _known(self, rules: ValueRules) -> list[int]:
        """Return the ids that values may name."""
        if rules.schema_id is not None:
            return [rules.schema_id]
        states = [await self._metadata.schemas.subject(names.parse(subject)) for subject in rules.subjects]
        return sorted({version.schema_id for state in states for version in state.versions})

    async def _extended(self, stream: Stream, book: ColumnBook | None, parts: Sequence[_PartWork]) -> ColumnBook:
        """Return the book with the schemas' columns, stored; say why schemas and messages cannot become columns. Raises `Conflict`.

        The book may know a requested schema's id from a schema that had the id before: in another context, or since deleted.
        """
        is_new = book is None
        for part in parts:
            part.refused, part.refused_messages = {}, {}
            in_book = part.in_book(book)
            is_new = is_new or in_book is None
            own = [] if in_book is None else list(in_book.schema_ids)
            part.ids = list(dict.fromkeys([*part.wanted.schema_ids, *reversed(own)]))[: self._settings.schema_count_max]
            part.found = await self._writers.of(part.rules, part.ids)
        if book is not None and not is_new and not any(_news(part, book) for part in parts):
            return book
        state = await self._tables.state(stream)
        last_id = max(state.last_column_id if state is not None else 0, *FIELD_IDS.values())
        found = book or new_book(last_id)
        names = () if state is None else state.column_names
        for part in parts:
            found = self._with_part(with_keys(found, last_id=last_id) if part.is_key else found, part, last_id, names)
        if found == book:
            return found
        stored = await self._metadata.table_columns.set(stream.number, found.encoded(), version=found.version)
        return replace(found, version=stored.version)

    def _with_part(self, book: ColumnBook, part: _PartWork, last_id: int, names: Collection[str]) -> ColumnBook:
        """Return the book with the columns of the part's new schemas."""
        schemas: list[tuple[int, MessageKey | None]] = [(id_, None) for id_ in sorted(_new_ids(part, book))]
        schemas += [(message.schema_id, message) for message in _new_messages(part)]
        for schema_id, message in schemas:
            try:
                fields = _codec(part.found, schema_id, message).fields
                book = with_schema(
                    book,
                    schema_id,
                    key_fields(fields) if part.is_key else fields,
                    last_id=last_id,
                    names=names,
                    column_count_max=self._settings.column_count_max,
                    message=message,
                    is_key=part.is_key,
                )
            except (SchemaUnusable, Unsupported) as error:
                if message is None:
                    part.refused[schema_id] = refusal(error)
                else:
                    part.refused_messages[message] = refusal(error)
        return book


def _codec(found: FoundSchemas, schema_id: int, message: MessageKey | None) -> ValueCodec:
    """Return the codec of an Avro or JSON schema, or of a message of a Protobuf schema. Raises `SchemaUnusable`."""
    if message is None:
        return codec_of(found.texts[schema_id])
    return codec_of(message_of(found.protobuf[schema_id], message.indexes))


def _new_ids(part: _PartWork, book: ColumnBook | None) -> list[int]:
    """Return the Avro and JSON schemas whose fields may lack columns."""
    in_book = part.in_book(book)
    return [
        schema_id
        for schema_id in part.found.texts
        if in_book is None or schema_id not in in_book.schema_ids or schema_id in part.wanted.schema_ids
    ]


def _new_messages(part: _PartWork) -> list[MessageKey]:
    return [message for message in part.wanted.messages if message.schema_id in part.found.protobuf]


def _news(part: _PartWork, book: ColumnBook) -> bool:
    return bool(_new_ids(part, book) or _new_messages(part))


def _elides(part: _PartWork, live: Sequence[Server]) -> bool:
    format_ = TYPED_KEYS if part.is_key else ELIDED_VALUES
    return part.rules.mode is ValueMode.ELIDE and not too_old(live, format_)


def _of_files(
    part: _PartWork | None, book: ColumnBook | KeyBook | None, live: Sequence[Server]
) -> dict[int, WriterSchema]:
    """Return the schemas whose values may be left out, if all live processes read such files."""
    if part is None or book is None:
        return {}
    format_ = ELIDED_MESSAGES if part.found.protobuf else ELIDED_VALUES
    return part.found.of_files(book, has_messages=not too_old(live, max(format_, TYPED_KEYS if part.is_key else 0)))
