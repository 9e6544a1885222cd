"""Schemas of engines as the declared columns of a stream (`table/declared.py`).

The columns of a stream's table are optional, because a record that does not fit them keeps its row. Elements of lists and values of maps
become optional, too, whatever an engine asks for.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, update_table_metadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType

from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.column_iceberg import column_ids
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf
from bearlake.table.declared import LEVELS_MAX, PRIMITIVES
from bearlake.table.warehouse.answers import owner_of
from bearlake.table.warehouse.columns import check_columns
from bearlake.table.warehouse.guard import check_stream_properties
from bearlake.table.warehouse.model import Body, Name, Owner, invalid
from bearlake.table.warehouse.requests import request_of
from bearlake.table.warehouse.service import Warehouse, load_table

_SCHEMA_UPDATES: Final = (AddSchemaUpdate, SetCurrentSchemaUpdate)


def columns_of_table(body: Body) -> tuple[Column, ...]:
    """Return the columns of a request to create a table. Raises `Refused`: a stream cannot have such a table."""
    if body.get("stage-create"):
        raise invalid(
            "the table of a stream cannot be created with rows (CREATE TABLE AS SELECT): rows come from producers"
        )
    if body.get("location"):
        raise invalid("the table of a stream lies in the folder of the stream: create it without a location")
    for part, what in (("partition-spec", "partitions"), ("write-order", "sort order")):
        asked = body.get(part)
        if isinstance(asked, dict) and asked.get("fields"):
            raise invalid(f"the table of a stream has no {what} of its own: its files are in the order of offsets")
    schema = Schema.model_validate(body["schema"])
    if schema.identifier_field_ids:
        raise invalid("the table of a stream has no identifier fields")
    if not schema.fields:
        raise invalid("expected columns: a stream without declared columns needs no CREATE TABLE")
    return _columns(schema.fields, "", 0, {})


async def declared_changes(
    warehouse: Warehouse, name: Name, body: Body, owner: Owner, sources: Mapping[int, str]
) -> tuple[Column, ...]:
    """Return the columns that a commit to the table of `owner` declares, if its requirements hold; none: it declares none.

    `sources`: as those of `added_columns`. Raises as the methods of `Warehouse`.
    """

    def changes(catalog: ConditionalCatalog) -> tuple[Column, ...]:
        asked = request_of(name, body)
        if not any(isinstance(change, AddSchemaUpdate) for change in asked.updates):
            return ()
        table = load_table(catalog, name)
        if owner_of(table.metadata) != owner:
            raise CommitFailedException("another table has this name now")
        for requirement in asked.requirements:
            requirement.validate(table.metadata)
        check_stream_properties(asked.updates)
        after = update_table_metadata(table.metadata, asked.updates, metadata_location=table.metadata_location)
        check_columns(table.metadata, after)
        found = added_columns(table.schema(), after.schema(), asked.updates, sources)
        had = {name for id_, name in sources.items() if id_ in column_ids(table.metadata.properties)}
        known = {field.field_id for field in table.schema().fields}
        for field in after.schema().fields:
            if field.field_id not in known and field.name in had:
                raise invalid(f"the column {field.name} was dropped or renamed, and stays so: choose another name")
        return found

    return await warehouse.run(changes)


def added_columns(
    before: Schema, after: Schema, updates: Sequence[Any], sources: Mapping[int, str]
) -> tuple[Column, ...]:
    """Return the columns that a commit declares: new ones, and declared ones that get fields or wider types; none: it does neither.

    `updates` (Any: PyIceberg's closed union) make `after` of `before`. `sources`: the names of the declared columns and of the fields in
    them, by field id.

    Raises:
        Refused: the commit does other things, too; or a stream cannot have such a column.
    """
    known, found = index_by_id(before), index_by_id(after)
    tops = {field.field_id for field in before.fields}
    grown = {id_ for field in after.fields for id_ in _ids_of(field) if _is_grown(id_, known, found)}
    declared = [
        field
        for field in after.fields
        if (field.field_id not in tops or field.field_id in sources) and not grown.isdisjoint(_ids_of(field))
    ]
    if not declared:
        return ()
    is_alone = all(isinstance(change, _SCHEMA_UPDATES) for change in updates)
    is_kept = all(id_ in found and found[id_].name == field.name for id_, field in known.items())
    if not is_alone or not is_kept or not grown.issubset(id_ for field in declared for id_ in _ids_of(field)):
        raise invalid("columns of a stream's table are added and widened by a statement that does nothing else")
    return _columns(declared, "", 0, sources)


def _ids_of(field: NestedField) -> Iterator[int]:
    """Yield the ids of a field and of those below it."""
    yield field.field_id
    if isinstance(field.field_type, StructType | ListType | MapType):
        yield from index_by_id(Schema(field))


def _is_grown(id_: int, known: Mapping[int, NestedField], found: Mapping[int, NestedField]) -> bool:
    """Whether a field is new, or a primitive one of another type."""
    if id_ not in known:
        return True
    before, after = known[id_].field_type, found[id_].field_type
    return after.is_primitive and before != after


def _columns(fields: Sequence[NestedField], path: str, level: int, sources: Mapping[int, str]) -> tuple[Column, ...]:
    found = []
    for field in fields:
        name = sources.get(field.field_id, field.name)
        below = f"{path}.{name}" if path else name
        if field.required:
            raise invalid(
                f"the column {below} must be optional: a record that does not fit keeps its row. To refuse such records, set the"
                " property bearlake.config.schema.validation to value"
            )
        if field.initial_default is not None or field.write_default is not None:
            raise invalid(f"the column {below} cannot have a default")
        found.append(Column(0, name, below, _type(field.field_type, below, level + 1, sources)))
    return tuple(found)


def _type(found: IcebergType, path: str, level: int, sources: Mapping[int, str]) -> ColumnType:
    if level > LEVELS_MAX:
        raise invalid(f"the column {path} is nested more than {LEVELS_MAX} levels deep")
    match found:
        case StructType():
            return StructOf(_columns(found.fields, path, level, sources))
        case ListType():
            return ListOf(0, _type(found.element_type, f"{path}.element", level + 1, sources))
        case MapType():
            if not isinstance(found.key_type, StringType):
                raise invalid(f"the keys of the map {path} must be strings, as those of JSON are")
            return MapOf(0, "string", 0, _type(found.value_type, f"{path}.value", level + 1, sources))
    word = str(found).replace(" ", "")
    if word not in PRIMITIVES and not word.startswith("decimal("):
        raise invalid(
            f"the column {path} is {word}; a stream has {', '.join(PRIMITIVES)}, decimals, structs, lists and maps"
        )
    return word
