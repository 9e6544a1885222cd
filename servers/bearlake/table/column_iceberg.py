"""Adds typed columns to an Iceberg table, with the field ids of the column book.

The table's property `bearlake.columns` names the ids that Bearlake has added, at any level. An id that the table has and the property has
not is another engine's column: the table's commit then fails, because the data files have other values under that id. An id that the
property has and the table has not is a column that a user has dropped: it stays dropped. Users may rename columns.

Source: Apache Iceberg table spec, "Schema Evolution"; decision 214.
"""

import json
from collections.abc import Collection, Sequence
from itertools import count
from typing import Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from bearlake.errors import Conflict, Corrupt
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf, ids_of, promoted
from bearlake.table.schema import ERROR, KEY_SCHEMA_ID, SCHEMA_ID, iceberg_schema

COLUMNS_PROPERTY: Final = "bearlake.columns"
"""Table property: JSON list of the field ids of typed columns, as ranges [first, last]."""

_PRIMITIVES: Final[dict[str, IcebergType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "uuid": UUIDType(),
}


def stage_columns(transaction: Transaction, book: ColumnBook | None) -> None:
    """Stage what the table lacks of the book's columns; nothing if it has all, or if there is no book.

    Raises:
        Conflict: another engine has given one of the ids to a column of its own, or changed the type of ours.
    """
    if book is not None:
        stage_fields(transaction, _columns_of(book))


def stage_fields(transaction: Transaction, columns: Sequence[Column], *, dropped_id: int | None = None) -> None:
    """Stage what the table lacks of the typed columns, and the drop of the column with the field id `dropped_id`, if it is there.

    Raises as `stage_columns`.
    """
    metadata = transaction.table_metadata
    ids = frozenset(ids_of(columns))
    known = typed_ids(metadata)
    schema = metadata.schema()
    kept = [field for field in schema.fields if field.field_id != dropped_id]
    fields = _extended(kept, columns, known)
    if tuple(fields) == schema.fields and ids <= known:
        return
    number = 1 + max(found.schema_id for found in metadata.schemas)
    new = Schema(*fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)
    updates = (AddSchemaUpdate(schema=new), SetCurrentSchemaUpdate())
    requirement = AssertCurrentSchemaId.model_validate({"current-schema-id": schema.schema_id})
    transaction._apply(updates, (requirement,))
    transaction.set_properties({COLUMNS_PROPERTY: _write_ids(known | ids)})


def typed_ids(metadata: TableMetadata) -> frozenset[int]:
    """Return the field ids of all typed columns that the table has had."""
    return _read_ids(metadata.properties.get(COLUMNS_PROPERTY, "[]"))


def refused_change(before: TableMetadata, after: Schema) -> str | None:
    """Return what `after` changes so that `stage_columns` would fail later: the name of a column; None: nothing.

    Typed columns may be dropped, renamed and promoted, at any level.
    """
    earlier: dict[int, IcebergType] = {}
    for schema in before.schemas:
        earlier |= {id_: field.field_type for id_, field in index_by_id(schema).items()}
    earlier |= {id_: field.field_type for id_, field in index_by_id(before.schema()).items()}
    ids = typed_ids(before)
    for id_, field in index_by_id(after).items():
        if id_ in ids and not _is_promotion(earlier.get(id_), field.field_type):
            return field.name
    return None


def _is_promotion(old: IcebergType | None, new: IcebergType) -> bool:
    if old is None or not old.is_primitive or not new.is_primitive:
        return type(old) is type(new)  # what is nested has ids of its own
    return old == new or promoted(_word(old), _word(new)) == _word(new)


def new_schema(book: ColumnBook | None) -> Schema:
    """Return the columns of a new table with those of the book."""
    fields = iceberg_schema().fields
    return iceberg_schema() if book is None else Schema(*_extended(fields, _columns_of(book), frozenset()))


def staged_schema(table: Table, book: ColumnBook | None) -> Schema:
    """Return the columns that a table will have with those of the book. Raises as `stage_columns`."""
    transaction = Transaction(table)
    stage_columns(transaction, book)
    return transaction.table_metadata.schema()


def iceberg_type(found: ColumnType) -> IcebergType:
    """Return a column's type in Iceberg, with the ids of what is in it."""
    if isinstance(found, StructOf):
        return StructType(*map(_field, found.fields))
    if isinstance(found, ListOf):
        return ListType(found.element_id, iceberg_type(found.element), element_required=False)
    if isinstance(found, MapOf):
        return MapType(
            found.key_id, iceberg_type(found.key), found.value_id, iceberg_type(found.value), value_required=False
        )
    if found.startswith("decimal("):
        precision, scale = found[len("decimal(") : -1].split(",")
        return DecimalType(int(precision), int(scale))
    if found.startswith("fixed["):
        return FixedType(int(found[len("fixed[") : -1]))
    return _PRIMITIVES[found]


def _columns_of(book: ColumnBook) -> tuple[Column, ...]:
    own = (Column(book.schema_id, SCHEMA_ID, "", "int"), Column(book.error_id, ERROR, "", "string"))
    if book.key is None:
        return (*own, *book.columns)
    return (*own, *book.columns, Column(book.key.schema_id, KEY_SCHEMA_ID, "", "int"), *book.key.columns)


def _field(column: Column) -> NestedField:
    return NestedField(column.id, column.name, iceberg_type(column.type), required=False)


def _extended(fields: Sequence[NestedField], columns: Sequence[Column], known: Collection[int]) -> list[NestedField]:
    """Return the table's fields with what they lack of the columns."""
    found = list(fields)
    places = {field.field_id: at for at, field in enumerate(found)}
    for column in columns:
        at = places.get(column.id)
        if at is None:
            if column.id not in known:
                taken = {field.name.lower() for field in found}
                found.append(_field(column).model_copy(update={"name": _free(column.name, taken)}))
            continue
        if column.id not in known:
            raise Conflict(f"another engine has added the column {found[at].name} with the field id {column.id}")
        wider = _wider(found[at].field_type, column.type, known, found[at].name)
        if wider != found[at].field_type:
            found[at] = found[at].model_copy(update={"field_type": wider})
    return found


def _wider(ours: IcebergType, column: ColumnType, known: Collection[int], name: str) -> IcebergType:
    """Return the type of a column of the table, with room for the book's. A type that is wider already stays."""
    if isinstance(ours, StructType) and isinstance(column, StructOf):
        return StructType(*_extended(ours.fields, column.fields, known))
    if isinstance(ours, ListType) and isinstance(column, ListOf):
        element = _wider(ours.element_type, column.element, known, name)
        return ListType(ours.element_id, element, element_required=ours.element_required)
    if isinstance(ours, MapType) and isinstance(column, MapOf):
        value = _wider(ours.value_type, column.value, known, name)
        return MapType(ours.key_id, ours.key_type, ours.value_id, value, value_required=ours.value_required)
    wider = promoted(_word(ours), column) if isinstance(column, str) and ours.is_primitive else None
    if wider is None:
        raise Conflict(f"another engine has changed the type of the column {name} to {ours}")
    return iceberg_type(wider)


def _word(found: IcebergType) -> str:
    return str(found).replace(" ", "")


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if another engine has added a column of that name."""
    candidates = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(candidate for candidate in candidates if candidate.lower() not in taken)


def _read_ids(text: str) -> frozenset[int]:
    try:
        return frozenset(id_ for first, last in json.loads(text) for id_ in range(int(first), int(last) + 1))
    except (ValueError, TypeError) as error:
        raise Corrupt(f"table property {COLUMNS_PROPERTY} is not a JSON list of ranges: {text[:100]!r}") from error


def _write_ids(ids: Collection[int]) -> str:
    ranges: list[list[int]] = []
    for id_ in sorted(ids):
        if ranges and ranges[-1][1] == id_ - 1:
            ranges[-1][1] = id_
        else:
            ranges.append([id_, id_])
    return json.dumps(ranges, separators=(",", ":"))
