"""Rolling up: the log's contents move into the index and the checkpoint.

Each round is one transaction with bounded work (`SqliteSettings.roll_*`); `sweep.py` cleans up afterwards. The checkpoint rows
are written from the ledger, which may be ahead of the entries of this round; replaying those entries later changes nothing
(`ledger.py`).
"""

import sqlite3
from collections import defaultdict

from bearlake.metadata.ledger import Ledger
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
from bearlake.metadata.producers import HEAD_FIELDS
from bearlake.metadata.sqlite.catchup import COMMIT, STREAM, TRIM
from bearlake.metadata.sqlite.claims import close_tasks_of
from bearlake.metadata.sqlite.pages import PageRow, end_of, newest_of, size_of, write_pages
from bearlake.metadata.sqlite.settings import SqliteSettings


class RollUp:
    """One round: read entries after the checkpoint, then write each touched partition once."""

    def __init__(self, connection: sqlite3.Connection, ledger: Ledger, settings: SqliteSettings) -> None:
        self._connection = connection
        self._ledger = ledger
        self._settings = settings
        self._slices: defaultdict[int, list[PageRow]] = defaultdict(list)
        self._producers: set[tuple[int, int]] = set()
        self._touched: dict[int, None] = {}

    def run(self, rolled: int, head: int) -> int:
        """Roll up entries `(rolled, result]`, at most as many as one round may; returns the new rolled-up position."""
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
            elif kind == STREAM and self._is_deleted(number):
                self._sweep_later(partition_key(number, 0), partition_key(number + 1, 0) - 1, None)
                close_tasks_of(self._connection, number)
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
            "INSERT INTO objects (position, key, size, slice_count, committed_ms, outcomes)"
            " SELECT position, token, object_size, ?, created_ms, outcomes FROM log WHERE position = ?",
            (count, position),
        )
        return count

    def _is_deleted(self, number: int) -> bool:
        row = self._connection.execute("SELECT is_deleted FROM streams WHERE number = ?", (number,)).fetchone()
        return row is not None and bool(row[0])  # there is no stream with the number of a POLICY entry

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
            "INSERT INTO partitions (partition, start, end, size, size_before, size_rolled) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (partition) DO UPDATE SET start = excluded.start, end = excluded.end, size = excluded.size,"
            " size_before = excluded.size_before, size_rolled = excluded.size_rolled",
            partitions,
        )
        producers = []
        for partition, producer_id in sorted(self._producers):
            entry = states[PartitionKey(partition)].producers[producer_id]
            batches = [entry[at : at + PRODUCER_WIDTH] for at in range(HEAD_FIELDS, len(entry), PRODUCER_WIDTH)]
            producers.append((partition, producer_id, entry[0], entry[1], pack_rows(batches, PRODUCER_WIDTH)))
        self._connection.executemany(
            "INSERT INTO partition_producers SELECT ?, ?, ?, ?, ?, producer_minute FROM store WHERE true"
            " ON CONFLICT (partition, producer_id) DO UPDATE"
            " SET epoch = excluded.epoch, last_ms = excluded.last_ms, batches = excluded.batches, used_minute = excluded.used_minute",
            producers,
        )

    def _append(self, partition: int, rows: list[PageRow]) -> int:
        """Append slices to the partition's pages; returns the rolled-up bytes afterwards."""
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
                    end_of(added[-1]),
                    max(page[2], newest_of(added)),
                    page[1] + len(added),
                    joined(page[3], pack_rows(added, PAGE_WIDTH)),
                    page[0],
                ),
            )
            size += size_of(added)
        write_pages(self._connection, partition, rows, size, self._settings.page_slice_count_max)
        return size + size_of(rows)
