"""Rewriting index pages: rows are removed (trims, swaps, deletions) or replaced, and the objects that they named are released.

A page's rows lie back to back, so `size_before` of the page and the lengths of its rows give the bytes below each row. Every change of
rows keeps this true: pages after a change never need another `size_before`.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

from bearlake.metadata.packing import PAGE_WIDTH, pack_rows, unpack_rows

PageRow = tuple[int, ...]
"""The integers of one row: `packing.PAGE_WIDTH` of them."""

Used = Counter[int]
"""How many rows name each object (by its number)."""

BASE, COUNT, POSITION, LENGTH, TIMESTAMP, OBJECT = range(PAGE_WIDTH)

base_of, length_of, object_of = itemgetter(BASE), itemgetter(LENGTH), itemgetter(OBJECT)


def end_of(row: PageRow) -> int:
    """Return the first offset after the row."""
    return row[BASE] + row[COUNT]


def size_of(rows: Sequence[PageRow]) -> int:
    """Return the total bytes of the rows."""
    return sum(map(length_of, rows))


def newest_of(rows: Sequence[PageRow]) -> int:
    """Return the largest timestamp of the rows."""
    newest: int = max(map(itemgetter(TIMESTAMP), rows))
    return newest


def write_pages(
    connection: sqlite3.Connection, partition: int, rows: Sequence[PageRow], size_before: int, slice_count_max: int
) -> None:
    """Insert pages with the rows, each as full as possible; `size_before` is the bytes of the partition below them."""
    for at in range(0, len(rows), slice_count_max):
        added = rows[at : at + slice_count_max]
        connection.execute(
            "INSERT INTO index_pages (partition, base_offset, end_offset, max_timestamp, slice_count, size_before, slices)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                partition,
                added[0][BASE],
                end_of(added[-1]),
                newest_of(added),
                len(added),
                size_before,
                pack_rows(added, PAGE_WIDTH),
            ),
        )
        size_before += size_of(added)


def rewrite_page(connection: sqlite3.Connection, page_id: int, rows: Sequence[PageRow], size_before: int) -> None:
    """Replace the page's rows by these rows."""
    connection.execute(
        "UPDATE index_pages SET base_offset = ?, end_offset = ?, max_timestamp = ?, slice_count = ?, size_before = ?, slices = ?"
        " WHERE id = ?",
        (
            rows[0][BASE],
            end_of(rows[-1]),
            newest_of(rows),
            len(rows),
            size_before,
            pack_rows(rows, PAGE_WIDTH),
            page_id,
        ),
    )


def drop_pages(connection: sqlite3.Connection, page_ids: Sequence[int]) -> None:
    """Delete the pages; the caller has counted their rows."""
    connection.executemany("DELETE FROM index_pages WHERE id = ?", [(page_id,) for page_id in page_ids])


def trim_page(connection: sqlite3.Connection, page_id: int, size_before: int, blob: bytes, start: int) -> Used:
    """Drop the rows of a page that end at or before `start`; at least one row stays. Returns the dropped rows' use of objects."""
    rows = list(unpack_rows(blob, PAGE_WIDTH))
    dropped = [row for row in rows if end_of(row) <= start]
    if dropped:
        rewrite_page(connection, page_id, rows[len(dropped) :], size_before + size_of(dropped))
    return used_by(dropped)


def used_by(rows: Sequence[PageRow]) -> Used:
    """Return how many of the rows name each object."""
    return Counter(map(object_of, rows))


def release(connection: sqlite3.Connection, used: Mapping[int, int], now_ms: int) -> None:
    """Reduce the objects' row counts; an object that no row names is unused from now on."""
    connection.executemany(
        "UPDATE objects SET slice_count = slice_count - ?1,"
        " unused_ms = CASE WHEN slice_count <= ?1 THEN ?2 ELSE NULL END WHERE position = ?3",
        [(count, now_ms, number) for number, count in sorted(used.items())],
    )
