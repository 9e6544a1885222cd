"""Columns to record batches, with values in pages: a page is used up before the next one is asked for.

Whoever makes the pages needs memory for one of them only. The batches are those of `encode_columns`.
"""

from collections.abc import Iterable

from bearlake.kernel.columns import Columns, EncodedBatch
from bearlake.kernel.columns.encode import Source
from bearlake.kernel.columns.pages import ValuePage, values_of


def encode_pages(
    columns: Columns, pages: Iterable[ValuePage], value_bytes: int, /
) -> "tuple[bytearray | memoryview, list[EncodedBatch]]":
    """Encode all rows: consecutive rows with the same partition id and base offset become one batch, as in `encode_columns`.

    `pages` has the values of all rows, in place of the three columns of values, which are ignored. `pages.py` describes the pages. An
    iterator may make each page when it is asked for it: it is asked for the next one when the batches have all values of the last one.
    `value_bytes`: about how many bytes all pages have; the native kernel reserves memory for them, but not more than 64 MiB.

    Raises:
        ValueError: a buffer is shorter than `row_count` requires, or the pages have another number of rows.
        Corrupt: the columns are inconsistent, or a batch would have 2 GiB; names the first such row. A page is malformed; names the page.
        Whatever `pages` raises.
    """
    columns = Columns(*columns)
    source = Source(columns, has_values=False)
    out = bytearray()
    encoded: list[EncodedBatch] = []
    records = bytearray()
    start, delta = 0, -1

    def close(end: int) -> None:
        batch = source.batch_of(start)
        length, max_timestamp = source.append_batch(out, records, start, end, delta)
        position = len(out) - length
        encoded.append(
            EncodedBatch(*batch, batch[1] + delta + 1, position, length, source.attributes[start], max_timestamp)
        )

    for row, value in enumerate(values_of(pages, columns.row_count)):
        if row == 0 or source.batch_of(row) != source.batch_of(start):
            if row:
                close(row)
            start, delta, records = row, -1, bytearray()
            source.check_header(row)
        delta = source.append_record(records, start, row, delta, value)
    if columns.row_count:
        close(columns.row_count)
    return out, encoded
