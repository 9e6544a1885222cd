"""Which schemas the values of a stream have, and which columns these schemas have in its table.

The worker plans a task's values after it has read the task's slices: a record names a schema that was registered before it, so the plan
knows every schema that the records may name. The plan has the texts of the schemas whose fields have columns already. An item that meets
another known schema ends and asks for it (`MissingSchemas`); then the worker adds the schema to the column book, and runs the item again.
So a schema that no record uses adds no columns. A value of a Protobuf schema names one of its messages after the id; items ask for messages
in the same way.

Values are left out only if all live processes read such files (`metadata/formats.py`); else they are kept beside their columns.

Everything is read from the metadata store, which is also this deployment's registry. If it does not answer, the task waits and no attempt
is counted. A setting that names no usable schema fails the task, whose error says why, and no other stream's.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.writer_schemas import FoundSchemas, WriterSchemas, refusal
from bearlake.errors import Conflict, Unsupported
from bearlake.metadata import Metadata
from bearlake.metadata.formats import ELIDED_MESSAGES, ELIDED_VALUES, too_old
from bearlake.metadata.model import Server, Stream
from bearlake.streams.schemas import names
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.streams.value_rules import ValueMode, ValueRules, value_rules
from bearlake.table import Tables
from bearlake.table.column_book import ColumnBook, MessageKey, decode_book, new_book, with_schema
from bearlake.table.schema import FIELD_IDS
from bearlake.table.value_codecs import SchemaUnusable, codec_of, message_of
from bearlake.table.value_plan import FileColumns, ValuePlan, WriterSchema
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
    """Schemas, and messages of Protobuf schemas, that a plan must have; the first ones count most."""

    ids: tuple[int, ...] = ()
    messages: tuple[MessageKey, ...] = ()

    @property
    def schema_ids(self) -> tuple[int, ...]:
        """The ids of all of them."""
        return tuple(dict.fromkeys([*self.ids, *(message.schema_id for message in self.messages)]))

    def and_then(self, other: "Requested") -> "Requested":
        """Return these, then the others."""
        return Requested(
            tuple(dict.fromkeys((*self.ids, *other.ids))), tuple(dict.fromkeys((*self.messages, *other.messages)))
        )


NOTHING: Final = Requested()


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
        self._refused: OrderedDict[int, Requested] = OrderedDict()
        self._keeps_for: list[str] = []
        """Names of live processes for which values are kept."""

    async def plan(self, stream: Stream, requested: Requested = NOTHING) -> ValuePlan | None:
        """Return how values become columns; None: they do not. The columns of what is `requested` are stored when this returns.

        A plan has at most `schema_count_max` schemas, the first requested ones before all others. It refuses the other requested ones.

        Raises:
            Invalid: the settings name no schema, or values of the schema's format cannot become columns yet.
            Conflict: other workers change the columns all the time.
            Unavailable: a store or the compiler of schemas did not answer.
        """
        rules = value_rules(stream.name, stream.configs)
        if rules.mode is ValueMode.RAW:
            return None
        live = await self._metadata.servers.live() if rules.mode is ValueMode.ELIDE else []
        known = await self._known(rules)
        fixed = (
            NOTHING if rules.schema_id is None else Requested((rules.schema_id,), (MessageKey(rules.schema_id, (0,)),))
        )
        wanted = requested.and_then(fixed).and_then(self._refused.get(stream.number, NOTHING))
        for _ in range(_ATTEMPT_COUNT_MAX):
            stored = await self._metadata.table_columns.get(stream.number)
            book = decode_book(stored.text, stored.version) if stored.version else None
            own = [] if book is None else list(book.schema_ids)
            ids = list(dict.fromkeys([*wanted.schema_ids, *reversed(own)]))[: self._settings.schema_count_max]
            found = await self._writers.of(rules, ids)
            refused: dict[int, str] = {}
            refused_messages: dict[MessageKey, str] = {}
            try:
                book = await self._extended(stream, book, found, wanted, refused, refused_messages)
            except Conflict:
                continue
            self._remember(stream, Requested(tuple(refused), tuple(refused_messages)))
            beyond = set(requested.schema_ids).difference(ids)
            return ValuePlan(
                elides=rules.mode is ValueMode.ELIDE and not too_old(live, ELIDED_VALUES),
                columns=FileColumns(book=book, schemas=self._of_files(found, book, live)),
                known=known,
                refused=found.refused
                | refused
                | dict.fromkeys(beyond, f"{_TOO_MANY} {self._settings.schema_count_max}"),
                schema_id=rules.schema_id,
                protobuf=found.protobuf,
                refused_messages=refused_messages,
            )
        raise Conflict(f"stream {stream.name}: other workers change its columns all the time")

    async def run(
        self, works: Sequence[Typed], items: Sequence[Sequence[WorkItem]], runner: Runner
    ) -> list[ItemResult]:
        """Run the items of the works; add the schemas that items ask for, and run those again. Raises as `plan` and `Runner.run`."""
        flat = [item for group in items for item in group]
        owners = [work for work, group in zip(works, items, strict=True) for _ in group]
        results = list(await runner.run(flat)) if flat else []
        requested: dict[int, Requested] = {}  # of each work, in order: what a plan was given, the next one has, too
        for _ in range(self._settings.schema_count_max):
            again = [at for at, result in enumerate(results) if result.missing_schema_ids or result.missing_messages]
            if not again:
                return results
            for work in {id(owners[at]): owners[at] for at in again}.values():
                places = [at for at in again if owners[at] is work]
                wanted = requested.get(id(work), NOTHING)
                for at in places:
                    missing = results[at]
                    wanted = wanted.and_then(
                        Requested(tuple(sorted(missing.missing_schema_ids)), tuple(sorted(missing.missing_messages)))
                    )
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

    def _of_files(self, found: FoundSchemas, book: ColumnBook, live: Sequence[Server]) -> dict[int, WriterSchema]:
        """Return the schemas whose values may be left out, if all live processes read such files; say which do not."""
        old = [server.name for server in too_old(live, ELIDED_MESSAGES if found.protobuf else ELIDED_VALUES)]
        metrics.COMPACTION_TOO_OLD.set(len(old))
        if old and old != self._keeps_for:
            log.warning("values are kept beside their columns: some processes are too old", extra={"servers": old})
        self._keeps_for = old
        return found.of_files(book, has_messages=not old)

    def _remember(self, stream: Stream, refused: Requested) -> None:
        """Remember what was refused, so that the next plan names it, and no item has to ask for it."""
        if refused != NOTHING:
            self._refused[stream.number] = refused
            self._refused.move_to_end(stream.number)
        while len(self._refused) > _STREAM_COUNT_MAX:
            self._refused.popitem(last=False)

    async def _known(self, rules: ValueRules) -> list[int]:
        """Return the ids that values may name."""
        if rules.schema_id is not None:
            return [rules.schema_id]
        states = [await self._metadata.schemas.subject(names.parse(subject)) for subject in rules.subjects]
        return sorted({version.schema_id for state in states for version in state.versions})

    async def _extended(
        self,
        stream: Stream,
        book: ColumnBook | None,
        schemas: FoundSchemas,
        wanted: Requested,
        refused: dict[int, str],
        refused_messages: dict[MessageKey, str],
    ) -> ColumnBook:
        """Return the book with the schemas' columns, stored; say why schemas and messages cannot become columns. Raises `Conflict`.

        The book may know a requested schema's id from a schema that had the id before: in another context, or since deleted.
        """
        new = [
            schema_id
            for schema_id in schemas.avro
            if book is None or schema_id not in book.schema_ids or schema_id in wanted.schema_ids
        ]
        messages = [message for message in wanted.messages if message.schema_id in schemas.protobuf]
        if book is not None and not new and not messages:
            return book
        state = await self._tables.state(stream)
        last_id = max(state.last_column_id if state is not None else 0, *FIELD_IDS.values())
        extend = partial(
            with_schema,
            last_id=last_id,
            names=() if state is None else state.column_names,
            column_count_max=self._settings.column_count_max,
        )
        found = book or new_book(last_id)
        for schema_id in sorted(new):
            try:
                found = extend(found, schema_id, codec_of(schemas.avro[schema_id]).fields)
            except (SchemaUnusable, Unsupported) as error:
                refused[schema_id] = refusal(error)
        for message in messages:
            try:
                schema = message_of(schemas.protobuf[message.schema_id], message.indexes)
                found = extend(found, message.schema_id, codec_of(schema).fields, message=message)
            except (SchemaUnusable, Unsupported) as error:
                refused_messages[message] = refusal(error)
        if found == book:
            return found
        stored = await self._metadata.table_columns.set(stream.number, found.encoded(), version=found.version)
        return replace(found, version=stored.version)
