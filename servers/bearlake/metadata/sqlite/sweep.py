"""Maintenance after the roll-up: delete rows left by trims and deletions, old results, and the log's oldest entries.

Each function does a bounded piece of work in the caller's transaction.
"""

import sqlite3
from collections import Counter

from bearlake.metadata import tokens
from bearlake.metadata.packing import PAGE_WIDTH, unpack_rows
from bearlake.metadata.sqlite.pages import Used, drop_pages, object_of, release, trim_page

LEFT_BEHIND = (
    ("partition_producers", "partition, producer_id"),
    ("producer_names", "partition, name"),
    ("partition_epochs", "partition"),
    ("cursors", "partition, name"),
    ("cursor_deletions", "partition"),
    ("group_offsets", "name, partition"),
    ("partitions", "partition"),
    ("aborted_transactions", "partition, marker_offset"),
)
"""Tables with rows of a deleted stream's partitions, and their keys."""


def truncate(connection: sqlite3.Connection, last: int, truncated: int, entry_count_max: int) -> None:
    """Delete the oldest entries up to `last`, at most `entry_count_max` of them."""
    last = min(last, truncated + entry_count_max)
    if last > truncated:
        connection.execute("DELETE FROM log WHERE position <= ?", (last,))
        connection.execute("UPDATE store SET truncated_position = ?", (last,))


def forget_results(connection: sqlite3.Connection, before_ms: int, count_max: int) -> None:
    """Delete the outcomes of at most `count_max` objects that were committed before `before_ms`, and older swaps."""
    connection.execute(
        "UPDATE objects SET outcomes = NULL WHERE position IN"
        " (SELECT position FROM objects WHERE outcomes IS NOT NULL AND committed_ms < ? ORDER BY committed_ms LIMIT ?)",
        (before_ms, count_max),
    )
    connection.execute(
        "UPDATE forbidden_tokens SET outcomes = NULL WHERE token IN (SELECT token FROM forbidden_tokens"
        " WHERE outcomes IS NOT NULL AND forbidden_ms < ? ORDER BY forbidden_ms LIMIT ?)",
        (before_ms, count_max),
    )
    connection.execute("DELETE FROM swaps WHERE swapped_ms < ?", (before_ms,))


def forget_objects(connection: sqlite3.Connection, before_ms: int, count_max: int) -> None:
    """Delete at most `count_max` objects whose bytes were gone before `before_ms` and whose outcomes are deleted (I8)."""
    _forget(connection, "objects", "key", "deleted_ms < ? AND outcomes IS NULL", "deleted_ms", before_ms, count_max)


def forget_tokens(connection: sqlite3.Connection, before_ms: int, count_max: int) -> None:
    """Delete at most `count_max` tokens that were forbidden or refused before `before_ms` (I8)."""
    _forget(connection, "forbidden_tokens", "token", "forbidden_ms < ?", "forbidden_ms", before_ms, count_max)


def _forget(
    connection: sqlite3.Connection, table: str, key: str, rule: str, order: str, before_ms: int, count_max: int
) -> None:
    """Raise the floor, then delete. Tokens that are too recent by their own time stay."""
    found = connection.execute(
        f"SELECT {key} FROM {table} WHERE {rule} AND ({key} < ? OR {key} NOT GLOB ?) ORDER BY {order} LIMIT ?",
        (before_ms, tokens.hour_prefix(before_ms), f"{tokens.PREFIX}*", count_max),
    ).fetchall()
    if not found:
        return
    (floor,) = connection.execute("SELECT token_floor FROM store").fetchone()
    connection.execute("UPDATE store SET token_floor = ?", (tokens.raised(floor, [row[0] for row in found]),))
    connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", found)


def sweep(connection: sqlite3.Connection, page_count_max: int, now_ms: int) -> None:
    """Drop rows below trimmed starts and all rows of deleted streams, at most `page_count_max` pages and rows per call."""
    for sweep_id, first, last, end_offset in connection.execute(
        "SELECT * FROM sweeps ORDER BY id LIMIT ?", (page_count_max,)
    ).fetchall():
        if end_offset is None:
            page_count_max -= _sweep_deleted(connection, first, last, page_count_max, now_ms)
        else:
            page_count_max -= _sweep_trimmed(connection, first, end_offset, page_count_max, now_ms)
        if page_count_max <= 0:
            return
        connection.execute("DELETE FROM sweeps WHERE id = ?", (sweep_id,))


def _sweep_trimmed(connection: sqlite3.Connection, partition: int, start: int, page_count_max: int, now_ms: int) -> int:
    pages = connection.execute(
        "SELECT id, slices FROM index_pages WHERE partition = ? AND base_offset < ? AND end_offset <= ? ORDER BY base_offset LIMIT ?",
        (partition, start, start, page_count_max),
    ).fetchall()
    _drop(connection, pages, now_ms)
    count = len(pages)
    count += connection.execute(
        "DELETE FROM aborted_transactions WHERE partition = ?1 AND marker_offset IN (SELECT marker_offset FROM aborted_transactions"
        " WHERE partition = ?1 AND marker_offset < ?2 ORDER BY marker_offset LIMIT ?3)",
        (partition, start, page_count_max - count),
    ).rowcount
    if count >= page_count_max:
        return count
    page = connection.execute(
        "SELECT id, size_before, slices FROM index_pages WHERE partition = ? AND base_offset < ? ORDER BY base_offset LIMIT 1",
        (partition, start),
    ).fetchone()
    if page is not None:
        page_id, size_before, blob = page
        release(connection, trim_page(connection, page_id, size_before, blob, start), now_ms)
    return count


def _sweep_deleted(connection: sqlite3.Connection, first: int, last: int, row_count_max: int, now_ms: int) -> int:
    pages = connection.execute(
        "SELECT id, slices FROM index_pages WHERE partition BETWEEN ? AND ? ORDER BY partition, base_offset LIMIT ?",
        (first, last, row_count_max),
    ).fetchall()
    _drop(connection, pages, now_ms)
    count = len(pages)
    for table, keys in LEFT_BEHIND:
        if count < row_count_max:
            count += connection.execute(
                f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {table} WHERE partition BETWEEN ? AND ? LIMIT ?)",
                (first, last, row_count_max - count),
            ).rowcount
    return count


def _drop(connection: sqlite3.Connection, pages: list[tuple[int, bytes]], now_ms: int) -> None:
    used: Used = Counter()
    for _, blob in pages:
        used.update(map(object_of, unpack_rows(blob, PAGE_WIDTH)))
    release(connection, used, now_ms)
    drop_pages(connection, [page_id for page_id, _ in pages])
