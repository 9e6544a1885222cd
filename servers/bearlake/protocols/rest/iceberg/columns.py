"""Keeps the field ids of other engines' columns apart from those of typed columns.

Compaction gives ids to typed columns in the metadata store before the table has them (decision 214), and an engine gives ids by the table
alone. So the catalog takes an engine's ids in the metadata store before it commits them (decision 224). An id that is taken and never
committed stays unused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bearlake.errors import Conflict
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.table.column_book import decode_book, new_book
from bearlake.table.warehouse.model import Refused, forbidden, new_ids_end

_ATTEMPT_COUNT_MAX = 10
_ID_NAMES = ("id", "element-id", "key-id", "value-id")
_PART_COUNT_MAX = 100_000
"""Objects and lists of new schemas, which the event loop looks through: 10,000 fields of nested types."""


class ColumnReservations:
    """Takes field ids in the column books of streams."""

    def __init__(self, columns: TableColumnsStore) -> None:
        self._columns = columns

    async def take(self, stream_number: int, ids: frozenset[int]) -> None:
        """Let no typed column get one of these field ids from now on.

        Raises:
            Refused: a typed column that the table does not have yet has one of them, or too many writers change the book.
            Unavailable: unknown whether they are taken, which does no harm.
        """
        for _ in range(_ATTEMPT_COUNT_MAX if ids else 0):
            stored = await self._columns.get(stream_number)
            book = decode_book(stored.text, stored.version) if stored.version else new_book(max(ids))
            if stored.version and book.ids & ids:
                raise _conflict(f"compaction is about to add a column with the field id {min(book.ids & ids)}")
            if stored.version and book.next_id > max(ids):
                return
            taken = replace(book, next_id=max(book.next_id, max(ids) + 1))
            try:
                await self._columns.set(stream_number, taken.encoded(), version=stored.version)
            except Conflict:
                continue
            return
        if ids:
            raise _conflict("other writers add columns at the same time")


def new_ids(updates: Sequence[Any], last_id: int) -> frozenset[int]:
    """Return the field ids in new schemas of the updates (Any: JSON) that the table, whose newest id is `last_id`, has not given.

    Raises:
        Refused: an id that no new column may have.
    """
    found = frozenset(
        field_id
        for update in updates
        if isinstance(update, dict) and update.get("action") == "add-schema"
        for field_id in _ids(update.get("schema"))
    )
    if found and max(found) >= new_ids_end(last_id):
        raise forbidden(f"new columns must have field ids from {last_id + 1} to {new_ids_end(last_id) - 1}")
    return frozenset(field_id for field_id in found if last_id < field_id)


def _ids(part: Any) -> Iterator[int]:
    """Yield the ids in a part of a schema (Any: JSON), whatever its depth. Raises `Refused`."""
    waiting, count = [part], 0
    while waiting:
        part, count = waiting.pop(), count + 1
        if count > _PART_COUNT_MAX:
            raise forbidden(f"a schema has more than {_PART_COUNT_MAX} parts")
        if isinstance(part, dict):
            yield from (part[name] for name in _ID_NAMES if type(part.get(name)) is int)
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting += [found for found in inner if isinstance(found, dict | list)]


def _conflict(reason: str) -> Refused:
    return Refused(409, "CommitFailedException", f"{reason}: load the table again")
