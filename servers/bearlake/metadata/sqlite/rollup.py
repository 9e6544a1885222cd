"""Maintenance: what the log holds moves into the index and the checkpoint, and the log is cut behind it.

Each round is one transaction with bounded work (`SqliteSettings.roll_*`, `sweep_page_count_max`). The checkpoint rows are written from
the ledger, which may be ahead of the entries of this round: replaying those entries later changes nothing (`ledger.py`).
"""

import sqlite3
from collections import defaultdict

from bearlake.metadata.ledger import HEAD_FIELDS, Ledger
from bearlake.metadata.model import PartitionKey, partition_key
from bearlake.metadata.packing import (
    PAGE_WIDTH,
    PRODUCER_WIDTH,
    SEQUENCE_WIDTH,
    SLICE_WIDTH,
    joined,
    pack_rows,
    unpack_rows,
)
from bearlake.metadata.sqlite.catchup import COMMIT, TRIM
from bearlake.metadata.sqlite.settings import SqliteSettings

PageRow = tuple[int, ...]
"""See `packing.PAGE_WIDTH`."""


LEFT_BEHIND = (
    ("partition_producers", "partition, producer_id"),
    ("group_offsets", "name, partition"),
    ("partitions", "partition"),
)
"""Tables with rows of a deleted stream's partitions, and their keys."""


class RollUp:
    """One round: reads entries behind the checkpoint, then writes what they touched, once per partition."""

    def __init__(self, connection: sqlite3.Connection, ledger: Ledger, settings: SqliteSettings) -> None:
        self._connection = connection
        self._ledger = ledger
        self._settings = settings
        self._slices: defaultdict[int, list[PageRow]] = defaultdict(list)
        self._producers: set[tuple[int, int]] = set()
        self._touched: dict[int, None] = {}

    def run(self, rolled: int, head: int) -> int:
        """Roll up entries `(rolled, result]`, as many as one round may; returns the position that is rolled up then."""
        last = min(head, rolled + self._settings.roll_entry_count_max)
        slice_count = 0
        for position, kind, slices, sequences, partition, start, number in self._connection.execute(
            "SELECT position, kind, slices, sequences, partition, start_offset, stream_number FROM log"
            " WHERE position > ? AND position <= ? ORDER BY position",
            (rolled, last),
        ):
            if kind == COMMIT:
                slice_count += self._read_commit(position, slices, sequences)
            elif kind == TRIM:
                self._touched[partition] = None
                self._sweep_later(partition, partition, start)
            elif self._is_deleted(number):
                self._sweep_later(partition_key(number, 0), partition_key(number + 1, 0) - 1, None)
            rolled = position
            if (
                slice_count >= self._settings.roll_slice_count_max
                or len(self._touched) >= self._settings.roll_partition_count_max
            ):
                break
        self._write()
        self._connection.execute("UPDATE store SET rolled_position = ?", (rolled,))
        return rolled

    def _read_commit(self, position: int, slices: bytes, sequences: bytes) -> int:
        count = 0
        for partition, base, record_count, at, length, timestamp in unpack_rows(slices, SLICE_WIDTH):
            self._slices[partition].append((base, record_count, at, length, timestamp, position))
            self._touched[partition] = None
            count += 1
        self._producers.update((row[0], row[1]) for row in unpack_rows(sequences, SEQUENCE_WIDTH))
        self._connection.execute(
            "INSERT INTO objects SELECT position, token, object_size, ?, created_ms, outcomes FROM log WHERE position = ?",
            (count, position),
        )
        return count

    def _is_deleted(self, number: int) -> bool:
        (is_deleted,) = self._connection.execute(
            "SELECT is_deleted FROM streams WHERE number = ?", (number,)
        ).fetchone()
        return bool(is_deleted)

    def _sweep_later(self, first: int, last: int, end_offset: int | None) -> None:
        self._connection.execute(
            "INSERT INTO sweeps (first_partition, last_partition, end_offset) VALUES (?, ?, ?)",
            (first, last, end_offset),
        )

    def _write(self) -> None:
        states = self._ledger.partitions
        partitions = []
        for partition in sorted(self._touched):
            state = states[PartitionKey(partition)]
            size_rolled = self._append(partition, self._slices[partition])
            partitions.append((partition, state.start, state.end, state.size, state.size_before, size_rolled))
        self._connection.executemany(
            "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (partition) DO UPDATE SET start = excluded.start,"
            " end = excluded.end, size = excluded.size, size_before = excluded.size_before, size_rolled = excluded.size_rolled",
            partitions,
        )
        producers = []
        for partition, producer_id in sorted(self._producers):
            entry = states[PartitionKey(partition)].producers[producer_id]
            batches = [entry[at : at + PRODUCER_WIDTH] for at in range(HEAD_FIELDS, len(entry), PRODUCER_WIDTH)]
            producers.append((partition, producer_id, entry[0], entry[1], pack_rows(batches, PRODUCER_WIDTH)))
        self._connection.executemany(
            "INSERT INTO partition_producers VALUES (?, ?, ?, ?, ?) ON CONFLICT (partition, producer_id) DO UPDATE"
            " SET epoch = excluded.epoch, last_ms = excluded.last_ms, batches = excluded.batches",
            producers,
        )

    def _append(self, partition: int, rows: list[PageRow]) -> int:
        """Append slices to the partition's pages; returns the bytes that are rolled up then."""
        row = self._connection.execute(
            "SELECT size_rolled FROM partitions WHERE partition = ?", (partition,)
        ).fetchone()
        size = row[0] if row else 0
        page = self._connection.execute(
            "SELECT id, slice_count, max_timestamp, slices FROM index_pages WHERE partition = ? ORDER BY base_offset DESC LIMIT 1",
            (partition,),
        ).fetchone()
        room = self._settings.page_slice_count_max - page[1] if page else 0
        if rows and page and room > 0:
            added, rows = rows[:room], rows[room:]
            self._connection.execute(
                "UPDATE index_pages SET end_offset = ?, max_timestamp = ?, slice_count = ?, slices = ? WHERE id = ?",
                (
                    _end(added),
                    max(page[2], _newest(added)),
                    page[1] + len(added),
                    joined(page[3], pack_rows(added, PAGE_WIDTH)),
                    page[0],
                ),
            )
            size += _size(added)
        for at in range(0, len(rows), self._settings.page_slice_count_max):
            added = rows[at : at + self._settings.page_slice_count_max]
            self._connection.execute(
                "INSERT INTO index_pages (partition, base_offset, end_offset, max_timestamp, slice_count, size_before, slices)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (partition, added[0][0], _end(added), _newest(added), len(added), size, pack_rows(added, PAGE_WIDTH)),
            )
            size += _size(added)
        return size


def _end(rows: list[PageRow]) -> int:
    return rows[-1][0] + rows[-1][1]


def _newest(rows: list[PageRow]) -> int:
    return max(row[4] for row in rows)


def _size(rows: list[PageRow]) -> int:
    return sum(row[3] for row in rows)


def truncate(connection: sqlite3.Connection, last: int, truncated: int, entry_count_max: int) -> None:
    """Delete the oldest entries up to `last`, at most `entry_count_max` of them."""
    last = min(last, truncated + entry_count_max)
    if last > truncated:
        connection.execute("DELETE FROM log WHERE position <= ?", (last,))
        connection.execute("UPDATE store SET truncated_position = ?", (last,))


def forget_results(connection: sqlite3.Connection, before_ms: int, count_max: int) -> None:
    """Forget the outcomes of objects that were committed before `before_ms`, of at most so many."""
    connection.execute(
        "UPDATE objects SET outcomes = NULL WHERE position IN"
        " (SELECT position FROM objects WHERE outcomes IS NOT NULL AND committed_ms < ? ORDER BY committed_ms LIMIT ?)",
        (before_ms, count_max),
    )


def sweep(connection: sqlite3.Connection, page_count_max: int) -> None:
    """Drop pages below trimmed starts and all that deleted streams left behind, at most so many rows in one go."""
    for sweep_id, first, last, end_offset in connection.execute(
        "SELECT * FROM sweeps ORDER BY id LIMIT 100"
    ).fetchall():
        if end_offset is None:
            pages = connection.execute(
                "SELECT id, slices FROM index_pages WHERE partition BETWEEN ? AND ? ORDER BY partition, base_offset LIMIT ?",
                (first, last, page_count_max),
            ).fetchall()
        else:
            pages = connection.execute(
                "SELECT id, slices FROM index_pages WHERE partition = ? AND base_offset < ? AND end_offset <= ?"
                " ORDER BY base_offset LIMIT ?",
                (first, end_offset, end_offset, page_count_max),
            ).fetchall()
        _drop(connection, pages)
        page_count_max -= len(pages)
        if end_offset is None and page_count_max > 0:
            page_count_max -= _forget_partitions(connection, first, last, page_count_max)
        if page_count_max <= 0:
            return
        connection.execute("DELETE FROM sweeps WHERE id = ?", (sweep_id,))


def _drop(connection: sqlite3.Connection, pages: list[tuple[int, bytes]]) -> None:
    used: defaultdict[int, int] = defaultdict(int)
    for _, blob in pages:
        for row in unpack_rows(blob, PAGE_WIDTH):
            used[row[5]] += 1
    connection.executemany(
        "UPDATE objects SET slice_count = slice_count - ? WHERE position = ?",
        [(count, position) for position, count in sorted(used.items())],
    )
    connection.executemany("DELETE FROM index_pages WHERE id = ?", [(page_id,) for page_id, _ in pages])


def _forget_partitions(connection: sqlite3.Connection, first: int, last: int, row_count_max: int) -> int:
    deleted = 0
    for table, keys in LEFT_BEHIND:
        deleted += connection.execute(
            f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {table} WHERE partition BETWEEN ? AND ? LIMIT ?)",
            (first, last, row_count_max),
        ).rowcount
    return deleted
