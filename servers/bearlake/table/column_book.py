"""The typed columns of a stream's table: which field id each column has, and how schemas add columns. Pure.

    added field, optional field          a new column; columns are always optional
    int → long, float → double, wider decimal of the same scale     the column becomes wider, its id stays
    long → int and so on                 nothing: the value fits
    any other type                       a second column, `name__type`; of texts in JSON, `name__json`
    removed field, order, symbols        nothing: columns are never dropped

The first schema of a field determines its column's name. Names that the table has already (by letters, whatever their case), or that
Iceberg reserves, get `_2`, `_3` and so on. Fields of keys have columns of their own (`KeyBook`), also if fields of values have the same
name. The metadata store keeps the book as one text per stream (`metadata/table_columns.py`), so all workers give a field the same id, and
the version of the text orders the books: a later book has all columns of an earlier one.

Source: decisions 214 and 248; Apache Iceberg table spec, "Reserved Field IDs", "Schema Evolution".
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bearlake.errors import Corrupt, Unsupported
from bearlake.table.column_tree import (
    Column,
    ColumnType,
    ListOf,
    MapOf,
    StructOf,
    column_of,
    decode_columns,
    encode_columns,
    ids_of,
    name_in_schemas,
    null_bytes,
    promoted,
    word_of,
)

FORMAT_VERSION = 1
KEYS_VERSION = 2
"""Format of books with columns of keys, which programs that do not know such columns refuse."""
NULL_BYTES_MAX = 16 * 1024
"""Memory of a row without values: room for 1,000 decimals. Wide `fixed` types take as much for a tombstone as for a value."""
RESERVED_NAMES = frozenset(
    {
        "_partition_id", "_offset", "_timestamp", "_key", "_headers", "_value", "_batch", "_schema_id", "_error",
        "_key_schema_id",
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_change_type", "_change_ordinal", "_commit_snapshot_id",
        "_row_id", "_last_updated_sequence_number",
    }
)  # fmt: skip
"""Names of our own columns, and of Iceberg's metadata columns."""


class MessageKey(NamedTuple):
    """A message of a Protobuf schema: the schema's id, and the path to the message, which a value names after the id."""

    schema_id: int
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBook:
    """The typed columns of keys."""

    schema_id: int
    """Field id of `_key_schema_id`."""
    columns: tuple[Column, ...] = ()
    schema_ids: tuple[int, ...] = ()
    """As those of `ColumnBook`, of keys."""
    messages: tuple[MessageKey, ...] = ()
    """As those of `ColumnBook`, of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBook:
    """The typed columns of values and of keys.

    `version` is that of the stored text; `next_id` the smallest id that was never given.
    """

    version: int
    next_id: int
    schema_id: int
    """Field id of `_schema_id`."""
    error_id: int
    """Field id of `_error`."""
    columns: tuple[Column, ...] = ()
    schema_ids: tuple[int, ...] = ()
    """Ids of the schemas whose fields have columns, oldest first."""
    messages: tuple[MessageKey, ...] = ()
    """The messages of these schemas whose fields have columns, oldest first (Protobuf)."""
    key: KeyBook | None = None
    """The columns of keys; None: keys have never had columns."""

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns of values, then those of keys."""
        return self.columns if self.key is None else (*self.columns, *self.key.columns)

    @property
    def ids(self) -> frozenset[int]:
        """All field ids of the book."""
        of_keys = [] if self.key is None else [self.key.schema_id]
        return frozenset([self.schema_id, self.error_id, *of_keys, *ids_of(self.all_columns)])

    @property
    def format_version(self) -> int:
        """The format of the text."""
        return FORMAT_VERSION if self.key is None else KEYS_VERSION

    def encoded(self) -> str:
        """Return the text to store, without the version."""
        fields: dict[str, object] = {
            "version": self.format_version,
            "next_id": self.next_id,
            "own": [self.schema_id, self.error_id],
            "columns": encode_columns(self.columns),
            "schemas": list(self.schema_ids),
        }
        if self.messages:
            fields["messages"] = _encode_messages(self.messages)
        if self.key is not None:
            fields["key"] = {
                "own": self.key.schema_id,
                "columns": encode_columns(self.key.columns),
                "schemas": list(self.key.schema_ids),
                "messages": _encode_messages(self.key.messages),
            }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def new_book(last_id: int) -> ColumnBook:
    """Return the book of a stream without typed columns, whose table has given the field ids up to `last_id`."""
    return ColumnBook(version=0, next_id=last_id + 3, schema_id=last_id + 1, error_id=last_id + 2)


def decode_book(text: str, version: int) -> ColumnBook:
    """Decode a stored text.

    Raises:
        Corrupt: not the text of a book.
        Unsupported: a newer format.
    """
    try:
        fields = json.loads(text)
        if fields["version"] not in (FORMAT_VERSION, KEYS_VERSION):
            raise Unsupported(f"typed columns have format {fields['version']}; expected at most {KEYS_VERSION}")
        schema_id, error_id = fields["own"]
        return ColumnBook(
            version=version,
            next_id=int(fields["next_id"]),
            schema_id=int(schema_id),
            error_id=int(error_id),
            columns=decode_columns(fields["columns"]),
            schema_ids=tuple(int(number) for number in fields["schemas"]),
            messages=_decode_messages(fields.get("messages", ())),
            key=_decode_key(fields["key"]) if fields["version"] == KEYS_VERSION else None,
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Corrupt(f"typed columns: {error!r}") from error


def _encode_messages(messages: Sequence[MessageKey]) -> list[Any]:
    return [[message.schema_id, message.indexes] for message in messages]


def _decode_messages(fields: Any) -> tuple[MessageKey, ...]:  # Any: what `json.loads` returns
    return tuple(MessageKey(int(schema_id), tuple(map(int, indexes))) for schema_id, indexes in fields)


def _decode_key(fields: Any) -> KeyBook:  # Any: what `json.loads` returns
    return KeyBook(
        schema_id=int(fields["own"]),
        columns=decode_columns(fields["columns"]),
        schema_ids=tuple(int(number) for number in fields["schemas"]),
        messages=_decode_messages(fields["messages"]),
    )


def with_keys(book: ColumnBook, *, last_id: int) -> ColumnBook:
    """Return the book with room for columns of keys; the stored version stays. `last_id`: as in `with_schema`."""
    if book.key is not None:
        return book
    schema_id = max(book.next_id, last_id + 1)
    return replace(book, next_id=schema_id + 1, key=KeyBook(schema_id=schema_id))


def with_schema(
    book: ColumnBook,
    schema_id: int,
    fields: Sequence[Column],
    *,
    last_id: int,
    names: Collection[str] = (),
    column_count_max: int,
    null_bytes_max: int = NULL_BYTES_MAX,
    message: MessageKey | None = None,
    is_key: bool = False,
) -> ColumnBook:
    """Return the book with columns for the `fields` of a schema, or of a Protobuf schema's `message`; the stored version stays.

    `last_id` and `names`: the largest field id that the table has given, and the names of its columns. `is_key`: the schema is one of keys.

    Raises:
        Unsupported: the table would have more than `column_count_max` columns, nested fields included, or each of its rows would take
            more than `null_bytes_max` bytes of memory without any value.
    """
    book = with_keys(book, last_id=last_id) if is_key else book
    step = _Step(max(book.next_id, last_id + 1))
    taken = {name.lower() for name in (*RESERVED_NAMES, *names, *(column.name for column in book.all_columns))}
    part: ColumnBook | KeyBook = book.key if is_key and book.key is not None else book
    columns = step.extended(part.columns, fields, taken)
    schema_ids = tuple(dict.fromkeys((*part.schema_ids, schema_id)))
    messages = part.messages if message is None else tuple(dict.fromkeys((*part.messages, message)))
    if isinstance(part, KeyBook):
        key = replace(part, columns=columns, schema_ids=schema_ids, messages=messages)
        found = replace(book, next_id=step.next_id, key=key)
    else:
        found = replace(book, next_id=step.next_id, columns=columns, schema_ids=schema_ids, messages=messages)
    if (count := sum(1 for _ in ids_of(found.all_columns))) > column_count_max:
        raise Unsupported(f"the table would have {count} columns with this schema; the limit is {column_count_max}")
    if (size := null_bytes(found.all_columns)) > null_bytes_max:
        raise Unsupported(f"an empty row would take {size} bytes with this schema; the limit is {null_bytes_max}")
    return found


class _Step:
    """Gives ids while a schema is added."""

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id

    def extended(
        self, columns: tuple[Column, ...], fields: Sequence[Column], taken: Collection[str] = ()
    ) -> tuple[Column, ...]:
        """Return the columns with room for the fields; `taken` has further names, in lower case."""
        found = list(columns)
        for field in fields:
            column = column_of(found, field)
            if column is not None:
                at = found.index(column)
                found[at] = replace(column, type=self._wider(column.type, field.type))
                continue
            own = name_in_schemas(field.source)
            is_first = all(name_in_schemas(other.source) != own for other in found)
            name = field.name if is_first else f"{field.name}__{word_of(field)}"
            name = _free(name, {*taken, *(other.name.lower() for other in found)})
            id_ = self._id()
            found.append(Column(id_, name, field.source, self._new(field.type)))
        return tuple(found)

    def _wider(self, column: ColumnType, source: ColumnType) -> ColumnType:
        """Return the column's type with room for a type of the same family."""
        if isinstance(column, str):
            assert isinstance(source, str)
            wide = promoted(column, source)
            assert wide is not None
            return wide
        if isinstance(column, StructOf):
            assert isinstance(source, StructOf)
            return StructOf(self.extended(column.fields, source.fields))
        if isinstance(column, ListOf):
            assert isinstance(source, ListOf)
            return replace(column, element=self._wider(column.element, source.element))
        assert isinstance(source, MapOf)
        return replace(column, value=self._wider(column.value, source.value))

    def _new(self, source: ColumnType) -> ColumnType:
        if isinstance(source, str):
            return source
        if isinstance(source, StructOf):
            return StructOf(self.extended((), source.fields))
        if isinstance(source, ListOf):
            return ListOf(self._id(), self._new(source.element))
        key_id, value_id = self._id(), self._id()
        return MapOf(key_id, source.key, value_id, self._new(source.value))

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id - 1


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, with the first number that makes it free. Names that differ by case only are equal (Spark)."""
    if name.lower() not in taken:
        return name
    number = 2
    while f"{name}_{number}".lower() in taken:
        number += 1
    return f"{name}_{number}"
