"""Which schemas the values of a stream have, and which columns these schemas have in its table.

The worker plans a task's values after it has read the task's slices: a record names a schema that was registered before it, so the plan
knows every schema that the records may name. The plan has the texts of the schemas whose fields have columns already. An item that meets
another known schema ends and asks for it (`MissingSchemas`); then the worker adds the schema to the column book, and runs the item again.
So a schema that no record uses adds no columns.

Values are left out only if all live processes read such files (`metadata/formats.py`); else they are kept beside their columns.

Everything is read from the metadata store, which is also this deployment's registry. If it does not answer, the task waits and no attempt
is counted. A setting that names no usable schema fails the task, whose error says why, and no other stream's.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from bearlake.compaction.commit import Work
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import ColumnSettings
from bearlake.errors import Conflict, Invalid, Unsupported
from bearlake.metadata import Metadata
from bearlake.metadata.formats import ELIDED_VALUES, too_old
from bearlake.metadata.model import Stream
from bearlake.streams.schemas import names
from bearlake.streams.schemas.library import schema_of
from bearlake.streams.schemas.model import Schema
from bearlake.streams.schemas.references import referenced_texts
from bearlake.streams.value_rules import ValueMode, ValueRules, value_rules
from bearlake.table import Tables
from bearlake.table.column_book import ColumnBook, decode_book, new_book, with_schema
from bearlake.table.schema import FIELD_IDS
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX
from bearlake.table.value_codecs import TYPES, SchemaUnusable, codec_of
from bearlake.table.value_plan import FileColumns, ValuePlan, WriterSchema
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_ATTEMPT_COUNT_MAX = 20
"""Attempts to change a column book that other workers change, too."""
_REASON_LENGTH_MAX = 256
_TOO_MANY = "UNSUPPORTED_SCHEMA: records that were compacted together name more schemas than"
_STREAM_COUNT_MAX = 1_000
"""Streams whose refused schemas are remembered."""


class ValueSchemas:
    """Plans the values of tasks, for one worker."""

    def __init__(self, metadata: Metadata, tables: Tables, settings: ColumnSettings) -> None:
        self._metadata = metadata
        self._tables = tables
        self._settings = settings
        self._refused: OrderedDict[int, set[int]] = OrderedDict()
        self._keeps_for: list[str] = []
        """Names of live processes for which values are kept."""

    async def plan(self, stream: Stream, requested: Sequence[int] = ()) -> ValuePlan | None:
        """Return how values become columns; None: they do not. The columns of the `requested` schemas are stored when this returns.

        A plan has at most `schema_count_max` schemas, the first requested ones before all others. It refuses the other requested ones.

        Raises:
            Invalid: the settings name no schema, or values of the schema's format cannot become columns yet.
            Conflict: other workers change the columns all the time.
            Unavailable: a store did not answer.
        """
        rules = value_rules(stream.name, stream.configs)
        if rules.mode is ValueMode.RAW:
            return None
        context = names.parse(rules.subjects[0]).context  # all have the same (`check_subjects`)
        elides = rules.mode is ValueMode.ELIDE and await self._may_elide()
        known = await self._known(rules)
        remembered = self._refused.get(stream.number, ())
        wanted = dict.fromkeys([*requested, *(known if rules.schema_id is not None else ()), *remembered])
        for _ in range(_ATTEMPT_COUNT_MAX):
            stored = await self._metadata.table_columns.get(stream.number)
            book = decode_book(stored.text, stored.version) if stored.version else None
            own = [] if book is None else list(book.schema_ids)
            ids = list(dict.fromkeys([*wanted, *reversed(own)]))[: self._settings.schema_count_max]
            schemas = {row.id: schema_of(row) for row in await self._metadata.schemas.schemas(context, ids)}
            if rules.schema_id is not None and rules.schema_id not in schemas:
                raise Invalid(f"table.value.schema_id = {rules.schema_id}: the registry has no schema with this id")
            texts = {schema.id: await self._written(schema, rules) for schema in schemas.values()}
            try:
                asked = {id_: texts[id_] for id_ in ids if id_ in texts}
                book, refused = await self._extended(stream, book, asked, wanted)
            except Conflict:
                continue
            self._remember(stream, refused)
            refused |= dict.fromkeys(set(requested).difference(ids), f"{_TOO_MANY} {self._settings.schema_count_max}")
            return ValuePlan(
                elides=elides,
                columns=FileColumns(book=book, schemas={id_: texts[id_] for id_ in texts if id_ in book.schema_ids}),
                known=known,
                refused=refused,
                schema_id=rules.schema_id,
            )
        raise Conflict(f"stream {stream.name}: other workers change its columns all the time")

    async def run(self, works: Sequence[Work], items: Sequence[Sequence[WorkItem]], runner: Runner) -> list[ItemResult]:
        """Run the items of the works; add the schemas that items ask for, and run those again. Raises as `plan` and `Runner.run`."""
        flat = [item for group in items for item in group]
        owners = [work for work, group in zip(works, items, strict=True) for _ in group]
        results = list(await runner.run(flat)) if flat else []
        requested: dict[
            int, dict[int, None]
        ] = {}  # of each work, in order: what a plan was given, the next one has, too
        for _ in range(self._settings.schema_count_max):
            again = [at for at, result in enumerate(results) if result.missing_schema_ids]
            if not again:
                return results
            for work in {id(owners[at]): owners[at] for at in again}.values():
                places = [at for at in again if owners[at] is work]
                ids = requested.setdefault(id(work), {})
                ids |= dict.fromkeys(id_ for at in places for id_ in sorted(results[at].missing_schema_ids))
                plan = await self.plan(work.stream, list(ids))
                if plan is None:
                    raise Conflict(f"the columns of stream {work.stream.name} were disabled meanwhile")
                work.columns = plan.columns.book
                for at in places:
                    flat[at] = replace(flat[at], values=plan)
            for at, result in zip(again, await runner.run([flat[at] for at in again]), strict=True):
                results[at] = result
        raise Conflict(f"work items ask for more than {self._settings.schema_count_max} schemas, one after the other")

    async def _may_elide(self) -> bool:
        """Whether all live processes read files that leave values out. Raises `Unavailable`."""
        old = [server.name for server in too_old(await self._metadata.servers.live(), ELIDED_VALUES)]
        metrics.COMPACTION_TOO_OLD.set(len(old))
        if old and old != self._keeps_for:
            log.warning("values are kept beside their columns: some processes are too old", extra={"servers": old})
        self._keeps_for = old
        return not old

    def _remember(self, stream: Stream, refused: Collection[int]) -> None:
        """Remember refused schemas, so that the next plan names them, and no item has to ask for them."""
        if refused:
            self._refused[stream.number] = set(refused)
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
        self, stream: Stream, book: ColumnBook | None, texts: Mapping[int, WriterSchema], requested: Collection[int]
    ) -> tuple[ColumnBook, dict[int, str]]:
        """Return the book with the schemas' columns, stored, and why schemas cannot become columns. Raises `Conflict`.

        The book may know a requested schema's id from a schema that had the id before: in another context, or since deleted.
        """
        refused: dict[int, str] = {}
        new = [
            schema_id
            for schema_id in texts
            if book is None or schema_id not in book.schema_ids or schema_id in requested
        ]
        if book is not None and not new:
            return book, refused
        state = await self._tables.state(stream)
        last_id = max(state.last_column_id if state is not None else 0, *FIELD_IDS.values())
        found = book or new_book(last_id)
        for schema_id in sorted(new):
            try:
                found = with_schema(
                    found,
                    schema_id,
                    codec_of(texts[schema_id]).fields,
                    last_id=last_id,
                    names=() if state is None else state.column_names,
                    column_count_max=self._settings.column_count_max,
                )
            except (SchemaUnusable, Unsupported) as error:
                refused[schema_id] = f"UNSUPPORTED_SCHEMA: {error}"[:_REASON_LENGTH_MAX]
        if found == book:
            return found, refused
        stored = await self._metadata.table_columns.set(stream.number, found.encoded(), version=found.version)
        return replace(found, version=stored.version), refused

    async def _written(self, schema: Schema, rules: ValueRules) -> WriterSchema:
        """Return the schema for its codec. Raises `FormatUnsupported`, `SchemaTooLarge`."""
        if schema.type.value not in TYPES:
            raise FormatUnsupported(
                f"schema {schema.id} is of type {schema.type.value}: only values of {', '.join(TYPES)} become columns yet"
            )
        references = await referenced_texts(self._metadata.schemas, schema)
        is_framed = rules.schema_id is None
        return WriterSchema(schema.type.value, schema.text, references, is_framed, LEVELS_MAX, COLUMNS_MAX)


class FormatUnsupported(Invalid):
    """This version knows no columns for the schema's format: the stream waits for another setting or version."""
