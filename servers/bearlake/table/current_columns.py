"""The columns of a current table: our own without `_batch`, then typed ones. Pure; no third-party types, so that they can be sent as JSON.

Columns have the field ids that they have in the stream's table, so the data files of both fit both. Of events of a change data capture
(Debezium), the columns of the row after the change stand in place of the event's own, each with the field id that it has inside the event:

    event   op string, before struct<…>, after struct<10: id, 11: name>, source struct<…>
    table   10: id, 11: name

A column of keys is left out if the row has a column of the same name: Debezium's key repeats the row's primary key.

Source: Debezium 3 documentation, "Change event values"; Apache Iceberg table spec, "Schemas and Data Types".
"""

import json
from dataclasses import dataclass, replace
from typing import Final

from bearlake.errors import Corrupt
from bearlake.table.column_book import RESERVED_NAMES, ColumnBook
from bearlake.table.column_tree import Column, StructOf, decode_columns, encode_columns
from bearlake.table.schema import ERROR, KEY_SCHEMA_ID, SCHEMA_ID

AFTER: Final = "after"
OPERATION: Final = "op"
_ABSENT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentColumns:
    """The columns beside our own, in order. `is_unwrapped`: values are events of a change data capture.

    `after_id`, `operation_id`: field ids of an event's row after the change, and of its operation; -1: the stream has no such column, and
    events can only be JSON.
    """

    columns: tuple[Column, ...] = ()
    is_unwrapped: bool = False
    after_id: int = _ABSENT
    operation_id: int = _ABSENT

    def encoded(self) -> str:
        """Return the columns as JSON."""
        fields = [encode_columns(self.columns), self.is_unwrapped, self.after_id, self.operation_id]
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def decode_current_columns(text: str) -> CurrentColumns:
    """Decode what `CurrentColumns.encoded` returns. Raises `Corrupt`."""
    try:
        columns, is_unwrapped, after_id, operation_id = json.loads(text)
        return CurrentColumns(
            columns=decode_columns(columns),
            is_unwrapped=bool(is_unwrapped),
            after_id=int(after_id),
            operation_id=int(operation_id),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise Corrupt(f"columns of a current table: {error!r}") from error


def current_columns(book: ColumnBook | None, *, is_unwrapped: bool) -> CurrentColumns:
    """Return the columns of the current table of a stream with this book. None: it has no typed columns."""
    if book is None:
        return CurrentColumns(is_unwrapped=is_unwrapped)
    after = next((c for c in book.columns if c.source == AFTER and isinstance(c.type, StructOf)), None)
    operation = next((c for c in book.columns if c.source == OPERATION and c.type == "string"), None)
    values = book.columns
    if is_unwrapped and after is not None and operation is not None:
        assert isinstance(after.type, StructOf)
        values = _named_apart(after.type.fields)
    keys = () if book.key is None else book.key.columns
    taken = {column.name.lower() for column in values}
    own = [Column(book.schema_id, SCHEMA_ID, "", "int"), Column(book.error_id, ERROR, "", "string")]
    own_key = [] if book.key is None else [Column(book.key.schema_id, KEY_SCHEMA_ID, "", "int")]
    return CurrentColumns(
        columns=(*own, *values, *own_key, *(column for column in keys if column.name.lower() not in taken)),
        is_unwrapped=is_unwrapped,
        after_id=_ABSENT if after is None or operation is None else after.id,
        operation_id=_ABSENT if after is None or operation is None else operation.id,
    )


def _named_apart(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with names that our own columns do not have."""
    names = {column.name.lower() for column in columns}
    found = []
    for column in columns:
        name = column.name
        number = 2
        while name.lower() in RESERVED_NAMES or (name != column.name and name.lower() in names):
            name, number = f"{column.name}_{number}", number + 1
        found.append(replace(column, name=name))
    return tuple(found)
