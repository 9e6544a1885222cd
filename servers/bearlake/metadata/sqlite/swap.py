"""The swap: rows that name new objects replace index rows of a partition, in one transaction with the end of the task.

Rows below a partition's start are trimmed: they need not exist, and new rows that lie wholly below the start are not written.
Replaced rows must already be in pages (`SqliteLog.swap` rolls them up first), and the number of bytes must not change, so that
usage, retention by size and the `size_before` of later pages stay correct.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from bearlake.errors import Conflict
from bearlake.metadata.compaction import OffsetRange, Swap, TaskKind
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import ObjectKind, PartitionKey, stream_number
from bearlake.metadata.packing import PAGE_WIDTH, RANGE_WIDTH, SLICE_WIDTH, pack_rows, unpack_rows
from bearlake.metadata.sqlite.catchup import SWAP
from bearlake.metadata.sqlite.claims import check_claim, close_task
from bearlake.metadata.sqlite.index import FROM_OFFSET
from bearlake.metadata.sqlite.pages import (
    BASE,
    PageRow,
    Used,
    base_of,
    drop_pages,
    end_of,
    object_of,
    release,
    rewrite_page,
    size_of,
    write_pages,
)
from bearlake.metadata.sqlite.task_objects import check_swap

FIND_PAGES = (
    f"SELECT id, size_before, slices FROM index_pages WHERE {FROM_OFFSET} AND base_offset < ?3 ORDER BY base_offset"
)


class Run(NamedTuple):
    """Adjacent new rows of a partition, which replace the index rows of `[start, end)`."""

    partition: PartitionKey
    start: int
    end: int
    rows: list[PageRow]


def first_position(connection: sqlite3.Connection, swap: Swap) -> int | None:
    """Return the position of the entry that this swap has already written, or None."""
    row = connection.execute(
        "SELECT position FROM swaps WHERE task_id = ? AND epoch = ? AND first_key = ?",
        (swap.claim.task_id, swap.claim.epoch, _first_key(swap)),
    ).fetchone()
    return None if row is None else int(row[0])


def unrolled_position(connection: sqlite3.Connection, ledger: Ledger, swap: Swap) -> int:
    """Return the newest log entry that must be rolled up before the swap can run; 0 if there is none."""
    ends: dict[PartitionKey, int] = {}
    for range_ in [*task_ranges(connection, swap), *replaced_ranges(swap)]:
        ends[range_.partition] = max(ends.get(range_.partition, 0), range_.end)
    needed = 0
    for partition, end in ends.items():
        tail = ledger.partitions[partition].tail
        needed = max([needed, *(tail[at + 1] for at in range(0, len(tail), 2) if tail[at] < end)])
    return needed


def task_ranges(connection: sqlite3.Connection, swap: Swap) -> list[OffsetRange]:
    """Return the ranges that the swap declares compacted; none unless it is the final swap of a COMPACT task."""
    if not swap.is_final:
        return []
    row = connection.execute(
        "SELECT ranges FROM tasks WHERE id = ? AND kind = ?", (swap.claim.task_id, TaskKind.COMPACT)
    ).fetchone()
    return [] if row is None else [OffsetRange(PartitionKey(p), s, e) for p, s, e in unpack_rows(row[0], RANGE_WIDTH)]


def replaced_ranges(swap: Swap) -> list[OffsetRange]:
    """Return the ranges that the new slices cover, by partition and offset, with adjacent ranges joined."""
    return [OffsetRange(run.partition, run.start, run.end) for run in _runs(swap, [0] * len(swap.objects))]


class IndexSwap:
    """One swap inside a transaction whose ledger has caught up. If `run` raises, the transaction is rolled back."""

    def __init__(
        self, connection: sqlite3.Connection, ledger: Ledger, now_ms: int, *, position: int, slice_count_max: int
    ) -> None:
        self._connection = connection
        self._ledger = ledger
        self._now_ms = now_ms
        self._position = position
        self._slice_count_max = slice_count_max
        self._released: Used = Counter()
        self._named: Used = Counter()
        self._compacted: dict[PartitionKey, list[tuple[int, int, int]]] = defaultdict(list)
        """Per partition: start and end of the replaced range, and the bytes below the end."""

    def run(self, swap: Swap) -> None:
        """Replace rows and write the entry at `position`. Raises `Fenced` and `Conflict` as `CommitLog.swap`."""
        connection = self._connection
        check_claim(connection, swap.claim)
        numbers = self._take_numbers(swap)
        ranges: list[OffsetRange] = []
        for run in _runs(swap, numbers):
            state = self._ledger.existing(run.partition)
            if state is not None and self._replace(run, state.start):
                ranges.append(OffsetRange(run.partition, run.start, run.end))
        self._insert_objects(swap, numbers)
        release(connection, self._released, self._now_ms)
        if swap.is_final:
            self._move_compacted(task_ranges(connection, swap))
            self._count_commit(ranges)
            close_task(connection, swap.claim.task_id)
        connection.execute(
            "INSERT INTO log (position, kind, created_ms, slices) VALUES (?, ?, ?, ?)",
            (self._position, SWAP, self._now_ms, pack_rows(ranges, RANGE_WIDTH)),
        )
        connection.execute(
            "INSERT INTO swaps VALUES (?, ?, ?, ?, ?)",
            (swap.claim.task_id, swap.claim.epoch, _first_key(swap), self._position, self._now_ms),
        )

    def _count_commit(self, ranges: Sequence[OffsetRange]) -> None:
        for number in {stream_number(range_.partition) for range_ in ranges}:
            self._connection.execute(
                "INSERT INTO stream_commits VALUES (?1, 1, ?2) ON CONFLICT DO UPDATE"
                " SET commit_count = commit_count + 1, committed_ms = max(committed_ms, ?2)",
                (number, self._now_ms),
            )

    def _take_numbers(self, swap: Swap) -> list[int]:
        check_swap(self._connection, swap.claim.task_id, [object_.object.key for object_ in swap.objects])
        (last,) = self._connection.execute(
            "UPDATE store SET last_object_number = last_object_number + ? RETURNING last_object_number",
            (len(swap.objects),),
        ).fetchone()
        return [-number for number in range(last - len(swap.objects) + 1, last + 1)]

    def _insert_objects(self, swap: Swap, numbers: Sequence[int]) -> None:
        (stream_number,) = self._connection.execute(
            "SELECT stream_number FROM tasks WHERE id = ?", (swap.claim.task_id,)
        ).fetchone()
        committed_ms = self._now_ms if swap.is_final else self._oldest_released_ms()
        rows = []
        for object_, number in zip(swap.objects, numbers, strict=True):
            key, size, kind = object_.object
            is_data_file = kind is ObjectKind.PARQUET
            count = self._named[number]
            rows.append(
                (
                    number,
                    key,
                    size,
                    count,
                    committed_ms,
                    kind,
                    stream_number if is_data_file else 0,
                    self._position,
                    pack_rows(object_.slices, SLICE_WIDTH) if is_data_file else None,
                    None if count else self._now_ms,
                )
            )
        self._connection.executemany(
            "INSERT INTO objects (position, key, size, slice_count, committed_ms, kind, stream_number, swap_position, segments, unused_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def _oldest_released_ms(self) -> int:
        """Return the oldest commit time (ms) of the released objects: bytes that only move keep their age."""
        find = "SELECT committed_ms FROM objects WHERE position = ?"
        return min(
            (self._connection.execute(find, (number,)).fetchone()[0] for number in self._released), default=self._now_ms
        )

    def _replace(self, run: Run, start: int) -> bool:
        """Replace the current rows by the run's rows; returns False if all of them are trimmed."""
        if run.end <= start:
            return False
        pages = self._connection.execute(FIND_PAGES, (run.partition, run.start, run.end)).fetchall()
        present = [row for _, _, blob in pages for row in unpack_rows(blob, PAGE_WIDTH)]
        first = bisect_right(present, run.start, key=end_of)
        last = bisect_left(present, run.end, key=base_of)
        before, replaced, behind = present[:first], present[first:last], present[last:]
        if not replaced or end_of(replaced[-1]) != run.end or (replaced[0][BASE] != run.start and run.start > start):
            raise Conflict(f"partition {run.partition} has no rows that begin at {run.start} and end at {run.end}")
        is_trimmed = start > run.start or replaced[0][BASE] != run.start
        size_before = pages[0][1] if pages else 0
        size_end = size_before + size_of(before) + size_of(replaced)
        added = [row for row in run.rows if end_of(row) > start]
        if (
            is_trimmed
        ):  # earlier rows of the page are below the start: they go too, so that the bytes below each row stay correct
            replaced, before = before + replaced, []
            size_before = size_end - size_of(added)
        elif size_of(added) != size_of(replaced):
            raise Conflict(
                f"partition {run.partition} has {size_of(replaced)} bytes from {run.start} to {run.end}, not {size_of(added)}"
            )
        self._released.update(map(object_of, replaced))
        self._named.update(map(object_of, added))
        self._write(run.partition, [page[0] for page in pages], before + added + behind, size_before)
        self._compacted[run.partition].append((run.start, run.end, size_end))
        return True

    def _write(self, partition: int, page_ids: Sequence[int], rows: list[PageRow], size_before: int) -> None:
        connection = self._connection
        if len(rows) <= self._slice_count_max // 2:
            page = connection.execute(  # the previous page takes the rows if it has room: compaction does not leave tiny pages
                "SELECT id, slice_count, end_offset FROM index_pages WHERE partition = ? AND base_offset < ?"
                " ORDER BY base_offset DESC LIMIT 1",
                (partition, rows[0][BASE]),
            ).fetchone()
            is_other = (
                page is not None and page[0] not in page_ids
            )  # after a trim, rows may begin after the start of their first page
            if is_other and page[1] + len(rows) <= self._slice_count_max and page[2] == rows[0][BASE]:
                (neighbour_size, blob) = connection.execute(
                    "SELECT size_before, slices FROM index_pages WHERE id = ?", (page[0],)
                ).fetchone()
                neighbours = list(unpack_rows(blob, PAGE_WIDTH))
                if neighbour_size + size_of(neighbours) == size_before:
                    drop_pages(connection, page_ids)
                    rewrite_page(connection, page[0], neighbours + rows, neighbour_size)
                    return
        if len(rows) <= self._slice_count_max:
            drop_pages(connection, page_ids[1:])
            rewrite_page(connection, page_ids[0], rows, size_before)
        else:
            drop_pages(connection, page_ids)
            write_pages(connection, partition, rows, size_before, self._slice_count_max)

    def _move_compacted(self, ranges: Sequence[OffsetRange]) -> None:
        moved = []
        for partition, start, end in ranges:
            state = self._ledger.existing(partition)
            if state is None:
                continue
            at, size = max(start, state.start), 0
            for run_start, run_end, run_size in self._compacted[partition]:
                if run_start <= at < run_end:
                    at, size = run_end, run_size
            if at < end:
                raise Conflict(f"partition {partition}: the swap omits offsets {at} to {end} of its task")
            moved.append((end, size, partition))
        self._connection.executemany(
            "UPDATE partitions SET compacted = max(compacted, ?), size_compacted = max(size_compacted, ?) WHERE partition = ?",
            moved,
        )


def _first_key(swap: Swap) -> str:
    return swap.objects[0].object.key if swap.objects else ""


def _runs(swap: Swap, numbers: Sequence[int]) -> list[Run]:
    """Return the new rows by partition and offset, with adjacent rows together.

    Raises:
        Conflict: two of the new slices overlap.
    """
    rows = sorted(
        (slice_.partition, (*slice_[1:], number))
        for object_, number in zip(swap.objects, numbers, strict=True)
        for slice_ in object_.slices
    )
    runs: list[Run] = []
    for partition, row in rows:
        last = runs[-1] if runs else None
        if last is not None and last.partition == partition and row[BASE] < last.end:
            raise Conflict(f"two new slices of partition {partition} overlap at {row[BASE]}")
        if last is not None and last.partition == partition and row[BASE] == last.end:
            last.rows.append(row)
            runs[-1] = last._replace(end=end_of(row))
        else:
            runs.append(Run(partition, row[BASE], end_of(row), [row]))
    return runs
