"""Reads schemas from this deployment's registry as compaction needs them: texts with their references, and compiled Protobuf files.

The compiler of Protobuf schemas runs in processes with limits (`streams/schemas/confined`), because anyone who may register schemas writes
its input. Compiled schemas are kept, up to `_COMPILED_LENGTH_MAX` characters.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.streams.schemas import names
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.streams.schemas.library import schema_of
from bearlake.streams.schemas.model import Schema, SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.references import named_texts, referenced_texts
from bearlake.streams.value_rules import ValueRules
from bearlake.table.column_book import ColumnBook, KeyBook
from bearlake.table.declared import DECLARED_ID
from bearlake.table.typed import descriptors
from bearlake.table.typed.json_documents import reference_texts
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX
from bearlake.table.typed.model import SchemaType as TypedSchemaType
from bearlake.table.value_codecs import SchemaUnusable, message_of
from bearlake.table.value_plan import WriterSchema

REASON_LENGTH_MAX: Final = 256
_COMPILED_LENGTH_MAX: Final = 64 * 1024 * 1024
_GUID_COUNT_MAX: Final = 100_000
"""GUIDs that are remembered."""
_ROW_COUNT_MAX: Final = 100
"""Schemas of one read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSchemas:
    """Schemas by id.

    `texts`: those of Avro and JSON Schema. `protobuf`: those whose values each name a message. `refused`: those that the compiler refuses,
    and why.
    """

    texts: dict[int, WriterSchema] = field(default_factory=dict)
    protobuf: dict[int, WriterSchema] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    def of_files(self, book: ColumnBook | KeyBook, *, has_messages: bool) -> dict[int, WriterSchema]:
        """Return the schemas whose values may be left out: of Protobuf, the first message of the book that the schema has, if any."""
        found = {id_: schema for id_, schema in self.texts.items() if id_ in book.schema_ids}
        for message in book.messages if has_messages else ():
            whole = self.protobuf.get(message.schema_id)
            if whole is not None and message.schema_id not in found:
                try:
                    found[message.schema_id] = message_of(whole, message.indexes)
                except SchemaUnusable:  # the id has named another schema before
                    continue
        return found


class WriterSchemas:
    """The registry's schemas, for one worker."""

    def __init__(self, metadata: Metadata, compiler: SchemaCompiler | None) -> None:
        self._metadata = metadata
        self._compiler = compiler
        self._compiled: OrderedDict[tuple[str, int, bytes], str] = OrderedDict()
        self._length = 0
        self._guids: OrderedDict[tuple[str, int], str] = OrderedDict()

    async def guids(self, rules: ValueRules, ids: Sequence[int]) -> dict[str, int]:
        """Return the schemas with these ids by GUID, in hex. Raises `Unavailable`."""
        context = names.parse(rules.subjects[0]).context
        missing = [id_ for id_ in ids if (context, id_) not in self._guids]
        known = {id_: self._guids[context, id_] for id_ in ids if (context, id_) in self._guids}
        for start in range(0, len(missing), _ROW_COUNT_MAX):
            for row in await self._metadata.schemas.schemas(context, missing[start : start + _ROW_COUNT_MAX]):
                known[row.id] = self._guids[context, row.id] = schema_of(row).guid.hex
        while len(self._guids) > _GUID_COUNT_MAX:
            self._guids.popitem(last=False)
        return {guid: id_ for id_, guid in sorted(known.items(), reverse=True)}

    async def of(self, rules: ValueRules, ids: Sequence[int]) -> FoundSchemas:
        """Return the schemas with these ids.

        Raises:
            Invalid: the settings name no schema, or there is no compiler for a schema's format.
            Unavailable: the store or the compiler did not answer.
        """
        context = names.parse(rules.subjects[0]).context  # all have the same (`check_subjects`)
        registered = [id_ for id_ in ids if id_ != DECLARED_ID]
        schemas = [schema_of(row) for row in await self._metadata.schemas.schemas(context, registered)]
        known = {schema.id for schema in schemas} | ({DECLARED_ID} if rules.columns else set())
        if rules.schema_id is not None and rules.schema_id not in known:
            raise Invalid(f"{rules.schema_id_config} = {rules.schema_id}: the registry has no schema with this id")
        is_framed = rules.schema_id is None
        found = FoundSchemas()
        if rules.columns and DECLARED_ID in ids:
            found.texts[DECLARED_ID] = declared_schema(rules.columns)
        for schema in schemas:
            if schema.type is not SchemaType.PROTOBUF:
                found.texts[schema.id] = await self._text(schema, is_framed=is_framed)
                continue
            if self._compiler is None:
                raise Invalid(
                    f"schema {schema.id} is of type {schema.type.value}, for which this process has no compiler"
                )
            try:
                text = await self._descriptors(schema, self._compiler)
            except (InvalidSchema, SchemaTooLarge) as error:
                found.refused[schema.id] = refusal(error)
                continue
            found.protobuf[schema.id] = WriterSchema(schema.type.value, text, (), is_framed, LEVELS_MAX, COLUMNS_MAX)
        return found

    async def _text(self, schema: Schema, *, is_framed: bool) -> WriterSchema:
        """Return an Avro or a JSON schema with its references."""
        if schema.type is SchemaType.JSON:
            references = reference_texts(await named_texts(self._metadata.schemas, schema))
        else:
            references = await referenced_texts(self._metadata.schemas, schema)
        return WriterSchema(schema.type.value, schema.text, references, is_framed, LEVELS_MAX, COLUMNS_MAX)

    async def _descriptors(self, schema: Schema, compiler: SchemaCompiler) -> str:
        """Return the text of the schema's compiled files. Raises `InvalidSchema`, `SchemaTooLarge`, `Unavailable`."""
        key = (schema.context, schema.id, schema.guid.bytes)
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        texts = await named_texts(self._metadata.schemas, schema)
        compiled = await compiler.compiled(schema.type.value, schema.text, texts)
        text = descriptors.text_of(compiled.files)
        self._compiled[key] = text
        self._length += len(text)
        while self._length > _COMPILED_LENGTH_MAX and len(self._compiled) > 1:
            self._length -= len(self._compiled.popitem(last=False)[1])
        return text


def declared_schema(text: str) -> WriterSchema:
    """Return the schema of values that have declared columns."""
    return WriterSchema(TypedSchemaType.COLUMNS, text, (), False, LEVELS_MAX, COLUMNS_MAX)


def refusal(error: Exception) -> str:
    """Return why a schema has no columns, as `_error` says it."""
    return f"UNSUPPORTED_SCHEMA: {error}"[:REASON_LENGTH_MAX]
