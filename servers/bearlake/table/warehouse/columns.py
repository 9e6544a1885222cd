"""What other engines may change about the columns of a stream's table. Pure.

Compaction writes the columns of `table/schema.py`, and typed columns with the field ids of the column book. So an engine's new columns are
optional, and have new ids: above every id that the table has given, and not so far above it that the ids could run out.

Source: decisions 214, 221, 224; Iceberg table spec, "Schema Evolution", "Reserved Field IDs".
"""

from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from bearlake.table import schema
from bearlake.table.column_book import RESERVED_NAMES
from bearlake.table.column_iceberg import refused_change
from bearlake.table.warehouse.model import forbidden, new_ids_end


def check_columns(before: TableMetadata, after: TableMetadata) -> None:
    """Raise `Refused` if a commit that makes `after` of `before` changes columns that compaction needs."""
    found = after.schema()
    for ours in schema.iceberg_schema().fields:
        theirs = next((field for field in found.fields if field.field_id == ours.field_id), None)
        if theirs is None or theirs.name != ours.name or theirs.field_type != ours.field_type:
            raise forbidden(f"the column {ours.name} belongs to the stream; it cannot be dropped, renamed or changed")
        if theirs.required != ours.required:
            raise forbidden(f"the column {ours.name} must stay {'required' if ours.required else 'optional'}")
    if name := refused_change(before, found):
        raise forbidden(f"the typed column {name} belongs to the stream; its type can only be promoted")
    known = {field_id for old in before.schemas for field_id in index_by_id(old)}
    for new in after.schemas:
        _check_ids(new, known, before.last_column_id)
    _check_names(found, before.schema())


def _check_ids(new: Schema, known: set[int], last_id: int) -> None:
    ids = list(_ids(new.as_struct()))
    if len(set(ids)) < len(ids):
        raise forbidden("two columns have one field id")
    end = new_ids_end(last_id)
    for field_id, field in index_by_id(new).items():
        if field_id in known:
            continue
        if not last_id < field_id < end:
            raise forbidden(f"the new column {field.name} must have a field id from {last_id + 1} to {end - 1}")
    for field in new.fields:
        if field.required and field.field_id not in known:
            raise forbidden(f"the column {field.name} must be optional: records of the stream do not have it")


def _ids(kind: IcebergType) -> Iterator[int]:
    """Yield the ids of the fields of a type, at any level."""
    fields: Sequence[NestedField] = ()
    match kind:
        case StructType():
            fields = kind.fields
        case ListType():
            fields = (kind.element_field,)
        case MapType():
            fields = (kind.key_field, kind.value_field)
    for field in fields:
        yield field.field_id
        yield from _ids(field.field_type)


def _check_names(found: Schema, before: Schema) -> None:
    """Engines whose names have no case could not read a table in which two columns have one name, or one has a name of their own."""
    known = {field.name for field in before.fields}
    names = [field.name.lower() for field in found.fields]
    for field in found.fields:
        name = field.name.lower()
        if field.name not in known and (name in RESERVED_NAMES or names.count(name) > 1):
            raise forbidden(f"the column {field.name} cannot be added: its name is reserved, or taken in another case")
