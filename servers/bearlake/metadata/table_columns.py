"""The typed columns of streams' tables: one text per stream, which says which field id each column has.

The store keeps the text and its version. `table/column_book.py` writes and reads the text. A field id must mean the same to all workers
for the whole life of the table, so a change names the version that its author read (I12).
"""

from typing import NamedTuple, Protocol


class TableColumns(NamedTuple):
    """A stream's text. `version` counts its changes; 0: the stream has no typed columns, and the text is empty."""

    text: str
    version: int


NONE = TableColumns("", 0)


class TableColumnsStore(Protocol):
    """The typed columns by stream number. The text of a deleted stream stays: its number is never given again."""

    async def get(self, stream_number: int) -> TableColumns:
        """Return the stream's columns as of now."""

    async def set(self, stream_number: int, text: str, *, version: int) -> TableColumns:
        """Replace the stream's text, if it still has this version.

        Raises:
            Conflict: the text has another version: read again.
        """
