"""The records of one round of a current table, and what they change in each bucket. Without I/O; the rule is in `current_state.py`.

    see(places of all row groups)  →  take(rows of the row groups that may have some of them)  →  change(bucket), bucket by bucket

Pure functions for a thread. Memory: the places of the round's newest records, and their rows, within a limit.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.errors import Corrupt
from bearlake.table import current_state
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_rows import IS_TOMBSTONE, current_schema
from bearlake.table.current_state import Places
from bearlake.table.schema import KEY, OFFSET, PARTITION_ID, TIMESTAMP

_PLACE = ["partition", "offset"]
_IN_PLACE_ORDER = [("partition", "ascending"), ("offset", "ascending")]


class ExceedsMemory(Exception):
    """The records of a round take more memory than they may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketChange:
    """What a round changes in a bucket: the keys whose rows go, the rows that come, and what the bucket's files remember then."""

    gone_keys: pa.Array
    rows: pa.Table
    remembered: pa.Table

    def kept(self, rows: pa.Table) -> pa.Table:
        """Return those of the bucket's rows so far that stay."""
        return current_state.without_keys(rows, self.gone_keys, KEY)

    def footer(self) -> Mapping[str, str]:
        """Return the key-value metadata of the bucket's file."""
        if self.remembered.num_rows == 0:
            return {}
        return {current_state.FOOTER_NAME: current_state.encode_remembered(self.remembered)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The offsets of a round: of each partition (by index) from its start up to its end."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def has(self, places: Places) -> pa.Array:
        """Return which of the places are in the round."""
        at = pc.index_in(_only(places["partition"]), value_set=pa.array(list(self.ends), pa.int32()))
        starts = pa.array([self.starts.get(index, 0) for index in self.ends], pa.int64())
        ends = pa.array(list(self.ends.values()), pa.int64())
        offsets = _only(places["offset"])
        is_inside = pc.and_(pc.greater_equal(offsets, starts.take(at)), pc.less(offsets, ends.take(at)))
        return pc.fill_null(is_inside, False)


class NewRecords:
    """The newest records of a round, of the keys of some buckets."""

    def __init__(
        self, span: Span, bucket_count: int, buckets: Collection[int], columns: CurrentColumns, *, bytes_max: int
    ) -> None:
        """`columns`: those of the rows. `bytes_max`: memory (bytes) of places, and of rows, uncompressed."""
        self._bytes_max = bytes_max
        self._taken_bytes = 0
        self._span = span
        self._bucket_count = bucket_count
        self._buckets = pa.array(sorted(buckets), pa.int32())
        self._places = current_state.no_places()
        self._rows = current_schema(columns).append(pa.field(IS_TOMBSTONE, pa.bool_())).empty_table()
        self._taken: list[pa.Table] = []
        self._place_buckets = self._row_buckets = pa.array([], pa.int32())
        self.newest_us = 0
        """Largest timestamp (µs) of the round's records, whatever their bucket."""

    def see(self, tables: Sequence[Places]) -> list[bool]:
        """Note the records of some row groups; return which row groups have records of these buckets. Raises `ExceedsMemory`."""
        found = []
        for table in tables:
            places = table.filter(self._span.has(table))
            if places.num_rows:
                self.newest_us = max(self.newest_us, pc.max(places["time"]).as_py())
            places = current_state.newest_by_partition([places])
            found.append(places.filter(pc.is_in(self._bucket_of(places), value_set=self._buckets)))
        self._places = current_state.newest_by_partition([self._places, *found])
        self._check(self._places.nbytes)
        return [places.num_rows > 0 for places in found]

    def take(self, tables: Sequence[pa.Table]) -> None:
        """Take from the rows of some row groups those whose places count. Raises `ExceedsMemory`."""
        for rows in tables:
            taken = rows.take(_indices(rows, self._places))
            self._taken_bytes += taken.nbytes
            self._check(self._taken_bytes)
            self._taken.append(taken)

    def ready(self) -> None:
        """All rows were taken. Raises `Corrupt`: several rows have the same place, or rows have gone."""
        self._rows = pa.concat_tables([self._rows, *self._taken]).combine_chunks()
        self._taken = []
        if self._rows.num_rows != self._places.num_rows:
            raise Corrupt(
                f"data files have {self._rows.num_rows} rows for {self._places.num_rows} records: each record, by {PARTITION_ID} and "
                f"{OFFSET}, must have one row, and its key must be the same wherever it is read"
            )
        self._place_buckets = self._bucket_of(self._places)
        self._row_buckets = current_state.bucket_of(_only(self._rows[KEY]), self._bucket_count)

    def of_bucket(self, bucket: int) -> Places:
        """Return the places of the bucket's keys."""
        return self._places.filter(pc.equal(self._place_buckets, bucket))

    def change(
        self, bucket: int, known: Places, remembered: pa.Table, *, remember_us: int, newest_us: int
    ) -> BucketChange | None:
        """Return what the records change in a bucket; None: nothing.

        `known`: places of the bucket's rows so far with the same keys. `remembered`: what the bucket's files remember. What is older than
        `newest_us` by more than `remember_us` is forgotten.
        """
        places = self.of_bucket(bucket)
        keys = _only(places["key"])
        before = current_state.of_keys(current_state.with_times(known, remembered), keys)
        newest = current_state.newest(current_state.newest_by_partition([places, before]))
        changed = newest.filter(self._span.has(newest)).sort_by(_IN_PLACE_ORDER)
        if changed.num_rows == 0:
            return None
        rows = self._rows.filter(pc.equal(self._row_buckets, bucket))
        rows = rows.take(_indices(rows, changed))
        rows = rows.sort_by([(PARTITION_ID, "ascending"), (OFFSET, "ascending")])
        assert rows.num_rows == changed.num_rows
        is_tombstone = _only(rows[IS_TOMBSTONE])
        return BucketChange(
            gone_keys=_only(changed["key"]),
            rows=rows.filter(pc.invert(is_tombstone)).drop_columns([IS_TOMBSTONE]),
            remembered=current_state.remembered_after(
                remembered,
                changed,
                _only(rows[TIMESTAMP]).cast(pa.int64()),
                is_tombstone,
                forget_before=newest_us - remember_us,
            ),
        )

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            raise ExceedsMemory

    def _bucket_of(self, places: Places) -> pa.Array:
        return current_state.bucket_of(_only(places["key"]), self._bucket_count)


def _indices(rows: pa.Table, places: Places) -> pa.Array:
    """Return which rows are at the places. Only the places are joined: Arrow joins no nested columns."""
    numbered = rows.select([PARTITION_ID, OFFSET]).rename_columns(_PLACE)
    numbered = numbered.append_column("at", pc.indices_nonzero(pa.repeat(pa.scalar(True), rows.num_rows)))
    found = numbered.join(places.select(_PLACE), keys=_PLACE, join_type="left semi", use_threads=False)
    return _only(found["at"])


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.array([], column.type)])
