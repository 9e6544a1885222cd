"""The true state of compaction in a simulated deployment, and its checks (I4, I5, I7).

The module observes every swap, table commit and deletion as it happens. It reads a data file's keys once, from the bytes that were put.
A segment must hold the offsets that it names; a table must hold each row once and never lose rows; and no object may be deleted that the
index or a live snapshot names.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from bearlake.metadata.compaction import Swap, SwapObject
from bearlake.metadata.model import ObjectKind, PartitionKey, Slice, partition_index
from bearlake.objects import ByteRange
from bearlake.table import footer as table_footer
from bearlake.table.model import TableCommit
from bearlake.table.rows import Key, read_keys
from bearlake.table.sparse import SparseFile
from simulator.table_rows import TableRow, read_table_rows
from simulator.tables import MemoryTable, MemoryTables

if TYPE_CHECKING:
    from simulator.truth import Truth


class Place(NamedTuple):
    """Offsets `[start, end)` of a partition, stored in the object."""

    start: int
    end: int
    key: str


class LakeTruth:
    """The true state of compaction and its checks; see the module."""

    def __init__(self, truth: "Truth") -> None:
        self._truth = truth
        self.tables: MemoryTables | None = None
        self._places: dict[PartitionKey, list[Place]] = {}
        self._keys: dict[str, list[Key]] = {}
        self._rows: dict[str, list[TableRow]] = {}
        self._swaps: dict[tuple[int, int, str], int] = {}
        self._table_rows: dict[int, set[Key]] = {}
        self.counts: Counter[str] = Counter()

    # -- the index -----------------------------------------------------------------------------------------------

    def committed(self, key: str, slices: Sequence[Slice]) -> None:
        """A WAL object was committed."""
        for piece in slices:
            self._places.setdefault(piece.partition, []).append(Place(piece.base_offset, piece.end_offset, key))

    def swapped(self, swap: Swap, position: int) -> bool:
        """A swap was executed, or its result was returned again; return whether it is new."""
        identity = (swap.claim.task_id, swap.claim.epoch, swap.objects[0].object.key if swap.objects else "")
        first = self._swaps.get(identity)
        if first is not None:
            self._truth.expect(
                first == position, "a repeated swap gets the first result", returned=position, first=first
            )
            return False
        self._swaps[identity] = position
        self.counts["swap" if swap.is_final else "moved to quarantine"] += 1
        for swap_object in swap.objects:
            key = swap_object.object.key
            is_there = key in self._truth.objects and key not in self._truth.deleted
            self._truth.expect(is_there, "I4: what is swapped in is there", key=key)
            if swap_object.object.kind is ObjectKind.PARQUET:
                self._check_segments(swap_object)
            for piece in swap_object.slices:
                self._place(piece.partition, Place(piece.base_offset, piece.end_offset, key))
        return True

    def _place(self, partition: PartitionKey, place: Place) -> None:
        left = []
        for other in self._places.get(partition, ()):
            if other.end <= place.start or other.start >= place.end:
                left.append(other)
                continue
            if other.start < place.start:
                left.append(other._replace(end=place.start))
            if other.end > place.end:
                left.append(other._replace(start=place.end))
        self._places[partition] = sorted([*left, place])

    def _check_segments(self, swap_object: SwapObject) -> None:
        """Check that the file's rows from `position` on are those of the segment."""
        keys = self.keys_of(swap_object.object.key)
        for piece in swap_object.slices:
            index = partition_index(piece.partition)
            rows = [
                offset
                for partition, offset in keys[piece.position : piece.position + piece.record_count]
                if partition == index and piece.base_offset <= offset < piece.end_offset
            ]
            due = [
                offset
                for partition, offset in keys
                if partition == index and piece.base_offset <= offset < piece.end_offset
            ]
            self._truth.expect(
                rows == due and bool(rows) and keys[piece.position][1] == rows[0],
                "I4: a segment holds what it names",
                partition=piece.partition,
                segment=piece,
                rows=rows[:5],
            )

    def keys_of(self, key: str) -> list[Key]:
        """Return (partition index, offset) of the rows of a data file."""
        found = self._keys.get(key)
        if found is None:
            stored = memoryview(self._truth.objects[key])
            file = SparseFile(len(stored), [ByteRange(0, len(stored))], [stored])
            footer = table_footer.parse(stored)
            groups = [read_keys(file, footer, group) for group in range(len(footer.groups))]
            found = self._keys[key] = [keys.key(row) for keys in groups for row in range(len(keys))]
            for before, after in pairwise(found):
                self._truth.expect(before < after, "rows are sorted, each once", key=key, before=before, after=after)
        return found

    def rows_of(self, key: str) -> list[TableRow]:
        """Return the rows of a data file."""
        if key not in self._rows:
            self._rows[key] = read_table_rows(self._truth.objects[key])
        return self._rows[key]

    def named(self) -> set[str]:
        """Return the keys of the objects that the index names after all commits, swaps, trims and deletions."""
        found: set[str] = set()
        for partition, places in self._places.items():
            if self._truth.exists(partition):
                start = self._truth.partition(partition).start
                found.update(place.key for place in places if place.end > start)
        return found

    # -- tables --------------------------------------------------------------------------------------------------

    def table_changed(self, table: MemoryTable, commit: TableCommit | None) -> None:
        """A table has a new snapshot."""
        truth = self._truth
        number = table.stream.number
        rows: Counter[Key] = Counter()
        for key in table.files:
            is_there = key in truth.objects and key not in truth.deleted
            truth.expect(is_there, "I7: what a table lists is there", key=key)
            rows.update(self.keys_of(key))
        twice = [row for row, count in rows.items() if count > 1]
        truth.expect(not twice, "I5: each row once", table=table.identifier, rows=twice[:5])
        for index, offset in rows:
            partition = table.stream.partition(index)
            truth.expect(
                offset < truth.partition(partition).end, "I5: only committed rows", partition=partition, offset=offset
            )
        before = self._table_rows.get(number, set())
        if commit is not None:
            lost = before - rows.keys()
            truth.expect(not lost, "I5: no row is lost", table=table.identifier, rows=sorted(lost)[:5])
            self.counts["table commit"] += 1
            self.counts["table change"] += len(commit.changes)
        self._table_rows[number] = set(rows)

    def table_dropped(self, table: MemoryTable) -> None:
        """A table was dropped with its stream."""
        is_wanted = not table.stream.is_deleted and self._truth.streams[table.stream.number].is_deleted is False
        self._truth.expect(not is_wanted, "the table of a live stream stays", table=table.identifier)
        self._table_rows.pop(table.stream.number, None)

    def check_complete(self, number: int, partitions: Collection[PartitionKey]) -> None:
        """Check that every readable record is a row of its stream's table, except records of batches that do not decode."""
        rows = self._table_rows.get(number, set())
        for key in partitions:
            partition = self._truth.partition(key)
            index = partition_index(key)
            for batch in partition.batches:
                if batch.end <= partition.start or (batch.sent is not None and batch.sent.is_undecodable):
                    continue
                missing = [
                    offset
                    for offset in range(max(batch.base, partition.start), batch.end)
                    if (index, offset) not in rows
                ]
                self._truth.expect(not missing, "I5: every record is a row", partition=key, offsets=missing)

    # -- deletion ------------------------------------------------------------------------------------------------

    def check_deletion(self, keys: Collection[str]) -> None:
        """I7: check that no deleted object is named by the index or a live snapshot."""
        named = self.named()
        for key in keys:
            self._truth.expect(key not in named, "I7: what the index names is not deleted", key=key)
            for table in [] if self.tables is None else self.tables.tables.values():
                is_live = any(key in snapshot.files for snapshot in table.snapshots)
                self._truth.expect(not is_live, "I7: what a snapshot names is not deleted", key=key)
