"""Decodes values and keys into typed columns while rows are written, and proves for each whether its columns give it back (I6).

A value that does not decode keeps its row: its columns are null, its bytes stay, and `_error` says why: a code, and the path of the field
or a reason. `_schema_id` is null for tombstones and for values that name no schema. Codes of keys begin with `KEY_`; they follow those of
the value.

    NO_SCHEMA           neither the value nor a header of the record names a schema, or the path of a Protobuf message does not follow
    UNKNOWN_SCHEMA      no version of the stream's subjects has the id
    UNSUPPORTED_SCHEMA  the schema cannot become columns
    others              the value is not one of its schema: the codes of `bearlake.columns`

Pure functions for a thread.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table import header_schemas
from bearlake.table.column_arrow import arrow_type, gather, scatter
from bearlake.table.column_book import ColumnBook, KeyBook, MessageKey
from bearlake.table.column_tree import Column, has_room, holds_unchanged
from bearlake.table.declared import DECLARED_ID
from bearlake.table.schema import HEADERS, KEY, VALUE
from bearlake.table.typed_rows import HEAD_BYTES, TypedPart, prefix_of, typed_rows, untyped_part
from bearlake.table.value_codecs import ERROR_LENGTH_MAX, ValueCodec, codec_of
from bearlake.table.value_messages import message_groups
from bearlake.table.value_plan import LACKS_GUIDS, PartPlan, ValuePlan, WriterSchema

NO_SCHEMA: Final = "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"
_ID_MAX = 2**31 - 1
_BETWEEN: Final = "; "


class MissingSchemas(Exception):
    """Values or keys name schemas, or messages of Protobuf schemas, that the plan does not have, or that its columns do not hold."""

    def __init__(
        self,
        ids: frozenset[int],
        messages: frozenset[MessageKey] = frozenset(),
        key_ids: frozenset[int] = frozenset(),
        key_messages: frozenset[MessageKey] = frozenset(),
    ) -> None:
        of_keys = f"; of keys: {sorted(key_ids)} and {sorted(key_messages)}" if key_ids or key_messages else ""
        super().__init__(f"schemas {sorted(ids)} and messages {sorted(messages)} are missing{of_keys}")
        self.ids = ids
        self.messages = messages
        self.key_ids = key_ids
        self.key_messages = key_messages


@dataclass(frozen=True, slots=True)
class _Part:
    """The values of one schema: which rows they are (None: all), their columns, errors, and which can be left out."""

    mask: pa.BooleanArray | None
    columns: Sequence[pa.Array]
    errors: pa.StringArray
    is_exact: pa.BooleanArray


class ValueTyping:
    """Adds the typed columns of one work item."""

    def __init__(self, plan: ValuePlan) -> None:
        self.columns = plan.columns
        """The columns."""
        self._book = book = plan.columns.book
        self._values = None
        if plan.types_values:
            self._values = _PartTyping(plan, book, plan.columns.schemas, header_schemas.VALUE_NAME)
        self._keys = None
        if plan.key is not None:
            assert book.key is not None, "a plan for keys has a book with columns of keys"
            self._keys = _PartTyping(plan.key, book.key, plan.columns.key_schemas, header_schemas.KEY_NAME)
        self.error_counts: Counter[str] = Counter()
        """Number of values and keys without columns, by code."""

    def add(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the rows with typed columns, as `typed_rows` describes them.

        Raises:
            MissingSchemas: values or keys name schemas that the plan does not have.
        """
        headers = rows.column(HEADERS)
        value, errors, missing = self._typed(self._values, rows.column(VALUE), headers, self._book.columns)
        key = None
        if self._book.key is not None:
            columns = self._book.key.columns
            key, key_errors, missing_of_keys = self._typed(self._keys, rows.column(KEY), headers, columns, "KEY_")
            if missing is not None or missing_of_keys is not None:
                raise _of_both(missing, missing_of_keys)
            errors = _joined_errors(errors, key_errors)
        if missing is not None:
            raise missing
        return typed_rows(rows, self._book, errors, value, key)

    def _typed(
        self,
        typing: "_PartTyping | None",
        values: pa.BinaryArray,
        headers: pa.ListArray,
        columns: Sequence[Column],
        prefix: str = "",
    ) -> tuple[TypedPart, pa.StringArray, MissingSchemas | None]:
        """Return typed columns, errors after `prefix`, and what the plan lacks; counts the errors."""
        lacking: MissingSchemas | None = None
        if typing is not None:
            try:
                part, errors = typing.typed(values, headers)
            except MissingSchemas as missing:
                lacking = missing
        if typing is None or lacking is not None:
            return untyped_part(columns, len(values)), pa.nulls(len(values), pa.string()), lacking
        if errors.null_count < len(errors):
            if prefix:
                errors = pc.binary_join_element_wise(prefix, errors, "")
            codes = pc.list_element(pc.split_pattern(errors.drop_null(), ":", max_splits=1), 0)
            for found in pc.value_counts(codes).to_pylist():
                self.error_counts[found["values"]] += found["counts"]
        return part, errors, None


def _of_both(value: MissingSchemas | None, key: MissingSchemas | None) -> MissingSchemas:
    """Return what values and keys lack."""
    value, key = value or MissingSchemas(frozenset()), key or MissingSchemas(frozenset())
    return MissingSchemas(value.ids, value.messages, key.ids, key.messages)


def _joined_errors(errors: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    """Return the texts of both, the first ones first. Where there are two, each has half of the room, so that both have their codes."""
    if others.null_count == len(others):
        return errors
    halves = [pc.utf8_slice_codeunits(part, 0, (ERROR_LENGTH_MAX - len(_BETWEEN)) // 2) for part in (errors, others)]
    single = pc.utf8_slice_codeunits(pc.coalesce(errors, others), 0, ERROR_LENGTH_MAX)
    return pc.coalesce(pc.binary_join_element_wise(*halves, _BETWEEN), single)


class _PartTyping:
    """Decodes the values, or the keys, of one work item."""

    def __init__(
        self, plan: PartPlan, book: ColumnBook | KeyBook, schemas: Mapping[int, WriterSchema], header: str
    ) -> None:
        self._header = header
        self._plan = plan
        self._book = book
        self._schemas = schemas
        self._known = frozenset(plan.known)

    def typed(self, values: pa.BinaryArray, headers: pa.ListArray) -> tuple[TypedPart, pa.StringArray]:
        """Return the typed columns, and why others have none. Raises `MissingSchemas`."""
        named = self._in_headers(values, headers)
        if named is None:
            return self._with_prefix(values)
        part, errors = self._with_prefix(named.values)
        kept = pc.and_(part.is_elided, pc.invert(named.is_named))  # the schema that gives a value back stands before it
        return part._replace(is_elided=kept), pc.coalesce(named.errors, errors)

    def _in_headers(self, values: pa.BinaryArray, headers: pa.ListArray) -> header_schemas.NamedInHeaders | None:
        if self._plan.schema_id is not None:
            return None
        try:
            return header_schemas.framed(values, headers, self._header, self._plan.guids)
        except header_schemas.UnknownGuids:
            raise MissingSchemas(frozenset([LACKS_GUIDS])) from None

    def _with_prefix(self, values: pa.BinaryArray) -> tuple[TypedPart, pa.StringArray]:
        """Return the same of values that name their schemas themselves."""
        if (shared := self._id_of_all(values)) is not None:
            columns, errors, is_elided = self._joined(len(values), self._parts(shared, None, values))
            has_id = self._plan.schema_id != DECLARED_ID
            ids = pa.repeat(pa.scalar(shared if has_id else None, pa.int32()), len(values))
            return TypedPart(ids, columns, is_elided), errors
        if self._plan.schema_id is not None:
            ids = pc.if_else(pc.is_valid(values), pa.scalar(self._plan.schema_id, pa.int32()), None)
            refusal = self._plan.refused.get(self._plan.schema_id)
            errors = pc.if_else(pc.is_valid(ids), pa.scalar(refusal, pa.string()), None)
        else:
            ids, errors = self._named(values)
        undecided = pc.if_else(pc.is_null(errors), ids, None)
        parts = [
            part
            for schema_id in pc.unique(undecided).drop_null().to_pylist()
            for part in self._parts(schema_id, pc.fill_null(pc.equal(undecided, schema_id), False), values)
        ]
        columns, problems, is_elided = self._joined(len(values), parts)
        if self._plan.schema_id == DECLARED_ID:
            ids = pa.nulls(len(values), pa.int32())
        return TypedPart(ids, columns, is_elided), pc.coalesce(errors, problems)

    def _id_of_all(self, values: pa.BinaryArray) -> int | None:
        """Return the id of the schema of all values, if there are no nulls and it has columns; else None. Most row groups are like this."""
        if not len(values) or values.null_count:
            return None
        found = self._plan.schema_id
        if found is None:
            octets = values[0].as_py()[:HEAD_BYTES]
            if len(octets) < HEAD_BYTES or octets[0] != 0:
                return None
            found = int.from_bytes(octets[1:])
            if found not in self._known or not pc.all(pc.starts_with(values, octets)).as_py():
                return None
        has_columns = found in self._schemas or found in self._plan.protobuf
        return found if has_columns and found <= _ID_MAX and found not in self._plan.refused else None

    def _named(self, values: pa.BinaryArray) -> tuple[pa.Int32Array, pa.StringArray]:
        """Return for each value the id that it names, and why it has no columns."""
        heads = pc.dictionary_encode(pc.binary_slice(values, 0, HEAD_BYTES))
        ids: list[int | None] = []
        errors: list[str | None] = []
        missing = set()
        for octets in heads.dictionary.to_pylist():
            found = int.from_bytes(octets[1:]) if len(octets) == HEAD_BYTES and octets[0] == 0 else None
            if found is None:
                ids.append(None)
                errors.append(NO_SCHEMA)
                continue
            ids.append(found if found <= _ID_MAX else None)
            refusal = self._plan.refused.get(found)
            if found not in self._known:
                refusal = f"UNKNOWN_SCHEMA: {found}"
            elif refusal is None and found not in self._schemas and found not in self._plan.protobuf:
                missing.add(found)
            errors.append(refusal)
        if missing:
            raise MissingSchemas(frozenset(missing))
        return (
            pa.array(ids, pa.int32()).take(heads.indices),
            pa.array(errors, pa.string()).take(heads.indices),
        )

    def _parts(self, schema_id: int, mask: pa.BooleanArray | None, values: pa.BinaryArray) -> list[_Part]:
        """Decode the values of a schema; `mask`: which they are, None: all."""
        if schema_id in self._plan.protobuf:
            return self._messages(schema_id, mask, values)
        schema = self._schemas[schema_id]
        if not has_room(self._book.columns, codec_of(schema).fields):  # the id has named another schema before
            raise MissingSchemas(frozenset([schema_id]))
        prefix = prefix_of(schema_id, schema)
        elides = self._plan.elides and codec_of(schema).gives_back
        return [self._decoded(schema, mask, values, prefix, len(prefix), elides=elides)]

    def _messages(self, schema_id: int, mask: pa.BooleanArray | None, values: pa.BinaryArray) -> list[_Part]:
        """Decode the values of a Protobuf schema, each message for itself."""
        own = values if mask is None else pc.if_else(mask, values, None)
        groups, errors = message_groups(own, self._plan.protobuf[schema_id])
        keys = [MessageKey(schema_id, group.indexes) for group in groups]
        missing = [
            key
            for key, group in zip(keys, groups, strict=True)
            if key not in self._plan.refused_messages and not self._has_message(key, group.schema)
        ]
        if missing:
            raise MissingSchemas(frozenset(), frozenset(missing))
        parts = []
        for key, group in zip(keys, groups, strict=True):
            refusal = self._plan.refused_messages.get(key)
            if refusal is not None:
                errors = pc.if_else(group.mask, pa.scalar(refusal, pa.string()), errors)
                continue
            prefix = prefix_of(schema_id, group.schema)
            is_first = group.schema == self._schemas.get(schema_id) and group.head_bytes == len(prefix)
            elides = self._plan.elides and is_first
            parts.append(self._decoded(group.schema, group.mask, values, prefix, group.head_bytes, elides=elides))
        if errors.null_count < len(errors):
            parts.append(self._refused(errors))
        return parts

    def _has_message(self, key: MessageKey, schema: WriterSchema) -> bool:
        return key in self._book.messages and has_room(self._book.columns, codec_of(schema).fields)

    def _refused(self, errors: pa.StringArray) -> _Part:
        """Return the values with errors, which have no columns."""
        mask = pc.is_valid(errors)
        texts = errors.drop_null()
        columns = [pa.nulls(len(texts), arrow_type(column.type)) for column in self._book.columns]
        return _Part(mask, columns, texts, pa.array([False] * len(texts), pa.bool_()))

    def _decoded(
        self,
        schema: WriterSchema,
        mask: pa.BooleanArray | None,
        values: pa.BinaryArray,
        prefix: bytes,
        head_bytes: int,
        *,
        elides: bool,
    ) -> _Part:
        """Decode the values of the mask, each after its first `head_bytes`; with `elides`, `prefix` is those."""
        is_all = mask is None or pc.all(mask).as_py()
        octets = values if is_all else values.filter(mask)
        codec = codec_of(schema)
        found = codec.decoded(octets, skip=head_bytes, proves=elides)
        columns = scatter(found.struct, codec.fields, self._book.columns)
        is_exact = found.is_exact if elides else pa.array([False] * len(octets), pa.bool_())
        if elides and not holds_unchanged(self._book.columns, codec.fields):  # the proof is for the codec's types
            is_exact = self._gives_back(codec, prefix, columns, octets, is_exact)
        return _Part(None if is_all else mask, columns, found.errors, is_exact)

    def _gives_back(
        self,
        codec: ValueCodec,
        prefix: bytes,
        columns: Sequence[pa.Array],
        octets: pa.BinaryArray,
        is_exact: pa.BooleanArray,
    ) -> pa.BooleanArray:
        """Return which values the columns give back: as serving does, encode the columns again, and compare."""
        exact_columns = [column.filter(is_exact) for column in columns]
        struct = gather(exact_columns, self._book.columns, codec.fields, codec.struct)
        equal = pc.equal(codec.encoded(struct, prefix), octets.filter(is_exact))
        places = pc.subtract(pc.cumulative_sum(is_exact.cast(pa.int32())), 1)
        return pc.fill_null(equal.take(pc.if_else(is_exact, places, None)), False)

    def _joined(self, count: int, parts: Sequence[_Part]) -> tuple[list[pa.Array], pa.StringArray, pa.BooleanArray]:
        """Return columns, errors and elided rows of all parts, in the order of the rows."""
        if len(parts) == 1 and parts[0].mask is None and parts[0].errors.null_count == count:
            return list(parts[0].columns), parts[0].errors, parts[0].is_exact
        places = pa.nulls(count, pa.int32())
        start = 0
        for part in parts:
            if part.mask is None:
                places = pa.array(range(count), pa.int32())
            else:
                own = pc.add(pc.cumulative_sum(part.mask.cast(pa.int32())), start - 1)
                places = pc.if_else(part.mask, own, places)
            start += len(part.errors)
        errors = _taken([part.errors for part in parts], places, pa.string())
        places = pc.if_else(pc.is_null(errors), places, None)
        columns = [
            _taken([part.columns[at] for part in parts], places, arrow_type(column.type))
            for at, column in enumerate(self._book.columns)
        ]
        is_elided = _taken([part.is_exact for part in parts], places, pa.bool_())
        return columns, errors, pc.fill_null(is_elided, False)


def _taken(arrays: Sequence[pa.Array], places: pa.Int32Array, found: pa.DataType) -> pa.Array:
    if not arrays:
        return pa.nulls(len(places), found)
    return pa.concat_arrays(arrays).take(places)
