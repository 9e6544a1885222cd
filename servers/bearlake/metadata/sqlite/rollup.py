"""Rolling up: the log's contents move into the index and the checkpoint.

A `Round` reads entries after the checkpoint, and then writes each partition that they touch once. It does both in bounded parts, and each
part of the writing may be its own transaction; the last one moves the checkpoint's position. Before that, the index may already have
slices of entries after the checkpoint. They are a partition's oldest ones, up to the end of its last page: look-ups (`lookup.py`) and
later rounds continue there, even if this round never ends.

The checkpoint rows are written from the ledger, which may be ahead of the entries of this round; replaying those entries later changes
nothing (`ledger.py`). `sweep.py` cleans up afterwards.
"""

import sqlite3
from bisect import bisect_left
from collections import defaultdict
from itertools import islice

from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import PartitionKey, partition_key
from bearlake.metadata.packing import (
    PAGE_WIDTH,
    PRODUCER_WIDTH,
    SEQUENCE_WIDTH,
    VERSION_BYTE,
    columns,
    pack_number,
    pack_rows,
    page_fields,
    unpack_rows,
)
from bearlake.metadata.producers import HEAD_FIELDS
from bearlake.metadata.sqlite.catchup import COMMIT, STREAM, TRIM
from bearlake.metadata.sqlite.claims import close_tasks_of
from bearlake.metadata.sqlite.pages import BASE
from bearlake.metadata.sqlite.settings import SqliteSettings

ROW_BYTES = 8 * PAGE_WIDTH

PART_SLICE_COUNT = 10_000
"""Slices that one part of the reading takes, about 4 ms."""

FIND_LAST_PAGE = (
    "SELECT p.size_rolled, i.id, i.end_offset, i.slice_count, i.max_timestamp"
    " FROM (SELECT ?1 AS partition) LEFT JOIN partitions p USING (partition) LEFT JOIN index_pages i"
    " ON i.id = (SELECT id FROM index_pages WHERE partition = ?1 ORDER BY base_offset DESC LIMIT 1)"
)


class Round:
    """One round: entries `(start, end]`; `end` grows while entries are read."""

    def __init__(self, start: int, head: int, settings: SqliteSettings) -> None:
        """Roll up entries after `start`, the checkpoint's position, up to `head` at most."""
        self.start = self.end = start
        self.is_done = False
        """Whether the position of the checkpoint is `end` now."""
        self._last = min(head, start + settings.roll_entry_count_max)
        self._settings = settings
        self._slice_count = 0
        self._slices: defaultdict[int, list[bytes]] = defaultdict(list)
        """The rows of each touched partition, in parts; an empty list if a partition was only trimmed."""
        self._producers: defaultdict[int, set[int]] = defaultdict(set)
        self._trims: list[tuple[int, int, int]] = []
        self._streams: list[int] = []
        self._has_objects = False

    def read(self, connection: sqlite3.Connection) -> bool:
        """Read some of the entries; returns whether the round has more of them. The connection has a snapshot."""
        part_end = self._slice_count + PART_SLICE_COUNT
        for position, kind, slices, sequences, partition, start, number in connection.execute(
            "SELECT position, kind, slices, sequences, partition, start_offset, stream_number FROM log"
            " WHERE position > ? AND position <= ? ORDER BY position",
            (self.end, self._last),
        ):
            self.end = position
            if kind == COMMIT:
                self._read_commit(position, slices, sequences)
            elif kind == TRIM:
                self._slices[partition] += ()
                self._trims.append((partition, partition, start))
            elif kind == STREAM:
                self._streams.append(number)
            if self._slice_count >= self._settings.roll_slice_count_max:
                return False
            if self._slice_count >= part_end:
                return True
        return False

    def write(self, connection: sqlite3.Connection, ledger: Ledger) -> bool:
        """Write the objects, then some of the partitions, and at the end the checkpoint's position; returns whether more is left."""
        if not self._has_objects:
            self._write_objects(connection)
            if len(self._slices) > self._settings.roll_partition_count_max:
                return True
        partitions = list(islice(self._slices, self._settings.roll_partition_count_max))
        self._write_pages(connection, ledger, partitions)
        self._write_producers(connection, ledger, partitions)
        for partition in partitions:
            del self._slices[partition]
        if self._slices:
            return True
        self._sweep_later(connection)
        connection.execute("UPDATE store SET rolled_position = ?", (self.end,))
        self.is_done = True
        return False

    def _read_commit(self, position: int, slices: bytes, sequences: bytes) -> None:
        rows, number = self._slices, pack_number(position)
        for partition, fields in page_fields(slices):
            rows[partition] += fields, number
        self._slice_count += len(slices) // ROW_BYTES
        for row in unpack_rows(sequences, SEQUENCE_WIDTH):
            self._producers[row[0]].add(row[1])

    def _write_objects(self, connection: sqlite3.Connection) -> None:
        """Write the objects, which the pages will name; a round that did not end may have written them before."""
        connection.execute(
            "INSERT OR IGNORE INTO objects (position, key, size, slice_count, committed_ms, outcomes)"
            " SELECT position, token, object_size, length(slices) / ?, created_ms, outcomes FROM log"
            " WHERE position > ? AND position <= ? AND kind = ?",
            (ROW_BYTES, self.start, self.end, COMMIT),
        )
        self._has_objects = True

    def _write_pages(self, connection: sqlite3.Connection, ledger: Ledger, partitions: list[int]) -> None:
        """Append the slices to the partitions' pages, and bring the checkpoint's rows up to date."""
        pages = _Pages(self._settings.page_slice_count_max)
        checkpoint = []
        for partition in partitions:
            state = ledger.partitions[PartitionKey(partition)]
            size_rolled = pages.append(connection, partition, b"".join(self._slices[partition]))
            checkpoint.append((partition, state.start, state.end, state.size, state.size_before, size_rolled))
        pages.write(connection)
        connection.executemany(
            "INSERT INTO partitions (partition, start, end, size, size_before, size_rolled) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (partition) DO UPDATE SET start = excluded.start, end = excluded.end, size = excluded.size,"
            " size_before = excluded.size_before, size_rolled = excluded.size_rolled",
            checkpoint,
        )

    def _write_producers(self, connection: sqlite3.Connection, ledger: Ledger, partitions: list[int]) -> None:
        producers = []
        for partition in partitions:
            for producer_id in self._producers.pop(partition, ()):
                entry = ledger.partitions[PartitionKey(partition)].producers[producer_id]
                batches = [entry[at : at + PRODUCER_WIDTH] for at in range(HEAD_FIELDS, len(entry), PRODUCER_WIDTH)]
                producers.append((partition, producer_id, entry[0], entry[1], pack_rows(batches, PRODUCER_WIDTH)))
        connection.executemany(
            "INSERT INTO partition_producers SELECT ?, ?, ?, ?, ?, producer_minute FROM store WHERE true"
            " ON CONFLICT (partition, producer_id) DO UPDATE"
            " SET epoch = excluded.epoch, last_ms = excluded.last_ms, batches = excluded.batches, used_minute = excluded.used_minute",
            producers,
        )

    def _sweep_later(self, connection: sqlite3.Connection) -> None:
        """Note what trims and deletions left behind. Sweeps may begin only now: the rows to sweep are in the index.

        A stream that was deleted after this round's entries may still have later ones. The round that takes its deletion notes it: a sweep
        before that would remove the checkpoint under these entries, and their slices twice.
        """
        sweeps: list[tuple[int, int, int | None]] = [*self._trims]
        for number in self._streams:
            row = connection.execute(  # there is no stream with the number of a POLICY entry
                "SELECT 1 FROM streams WHERE number = ? AND is_deleted AND version <= ?", (number, self.end)
            ).fetchone()
            if row is not None:
                sweeps.append((partition_key(number, 0), partition_key(number + 1, 0) - 1, None))
                close_tasks_of(connection, number)
        connection.executemany(
            "INSERT INTO sweeps (first_partition, last_partition, end_offset) VALUES (?, ?, ?)", sweeps
        )


class _Pages:
    """Appends to pages, collected for a few statements.

    An append rewrites the partition's last page while that is cheap: while the page is no larger than the added rows or a quarter of a
    full page. Else it adds a page. So a page costs few rewrites, and a look-up of many slices reads few pages.
    """

    def __init__(self, slice_count_max: int) -> None:
        self._slice_count_max = slice_count_max
        self._joined: list[tuple[object, ...]] = []
        self._added: list[tuple[object, ...]] = []

    def append(self, connection: sqlite3.Connection, partition: int, rows: bytes) -> int:
        """Append the rows that lie after the partition's last page; returns the rolled-up bytes of the partition then."""
        size, page_id, page_end, page_count, page_timestamp = connection.execute(
            FIND_LAST_PAGE, (partition,)
        ).fetchone()
        size = size or 0
        if not rows:
            return size
        fields = columns(rows, PAGE_WIDTH)
        if page_id is not None and fields[BASE][0] < page_end:
            known = bisect_left(fields[BASE], page_end)  # an earlier round wrote these, and did not end
            rows, fields = rows[known * ROW_BYTES :], [field[known:] for field in fields]
            if not rows:
                return size
        bases, counts, _, lengths, timestamps, _ = fields
        count, limit = len(bases), self._slice_count_max
        if page_id is not None and page_count + count <= limit and page_count <= max(count, limit // 4):
            end, newest = bases[-1] + counts[-1], max(page_timestamp, max(timestamps))
            self._joined.append((end, newest, page_count + count, rows, page_id))
            return size + sum(lengths)
        for at in range(0, count, limit):
            last = min(at + limit, count) - 1
            page = VERSION_BYTE + rows[at * ROW_BYTES : (last + 1) * ROW_BYTES]
            newest = max(timestamps[at : last + 1])
            self._added.append((partition, bases[at], bases[last] + counts[last], newest, last + 1 - at, size, page))
            size += sum(lengths[at : last + 1])
        return size

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected changes."""
        connection.executemany(
            "UPDATE index_pages SET end_offset = ?, max_timestamp = ?, slice_count = ?, slices = CAST(slices || ? AS BLOB) WHERE id = ?",
            self._joined,
        )
        connection.executemany(
            "INSERT INTO index_pages (partition, base_offset, end_offset, max_timestamp, slice_count, size_before, slices)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._added,
        )
