"""The commit log in PostgreSQL: commits, swaps, following, lookups, trims and upkeep. The steps themselves are in `functions/`."""

from collections.abc import Collection, Sequence

import asyncpg
from typing_extensions import override

from bearlake.errors import Conflict, NotFound, OutOfRange, Overloaded, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.compaction import OffsetRange, Swap
from bearlake.metadata.model import (
    NO_STREAM,
    Entries,
    Entry,
    EntryKind,
    Located,
    LocatedSlice,
    ObjectCommit,
    ObjectCommitted,
    ObjectKind,
    PartitionBounds,
    PartitionKey,
    PartitionUsage,
    ProducerState,
    Slice,
    Stream,
    TransactionChange,
)
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql import swap as swaps
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.commit import (
    arguments,
    by_position,
    outcomes_of,
    runs_of,
    slices_of,
    transactional_of,
)
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.turns import keyed, listed
from bearlake.metadata.postgresql.watch import Watch
from bearlake.metadata.transactions import CHANGE_WIDTH, changes_of, last_stable_offset

SEQUENCE_MASK = 0x7FFF_FFFF

RETAIN_PARTITION_COUNT_MAX = 256
"""Partitions that one step trims by rule; a commit may have to wait for the step."""

DECIDED = "log_position, outcomes"
"""Columns of a commit's result."""
FOLLOW = """
select h.position as head, t.truncated, l.*
  from bearlake.log_head h cross join bearlake.log_tail t
  left join lateral (select * from bearlake.log e where e.position > $1 order by e.position limit $2) l on true
 order by l.position"""
OF_PARTITIONS = """
  from unnest($1::bigint[]) u (partition)
  join bearlake.partition_group g on g.group_key = u.partition >> 5
 where g.starts[(u.partition & 31) + 1] is not null"""
BOUNDS = f"""
select u.partition, g.starts[(u.partition & 31) + 1], g.ends[(u.partition & 31) + 1], bearlake.open_offset(u.partition)
{OF_PARTITIONS}"""
USAGE = f"""
select u.partition, g.sizes[(u.partition & 31) + 1] - g.sizes_before[(u.partition & 31) + 1],
       g.ends[(u.partition & 31) + 1] - g.starts[(u.partition & 31) + 1] {OF_PARTITIONS}"""


class PostgresqlLog(CommitLog):
    """`CommitLog` on a `Database`."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    @override
    def blocking_commit(self) -> None:
        pass

    @override
    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Takes one round trip; repeated with the same token if the connection breaks."""
        runs = runs_of(commit.batches)
        try:
            if commit.is_transactional:
                transactional = transactional_of(commit, runs)
                step = call("commit_transactional", DECIDED, **arguments(commit, runs), transactional=transactional)
            else:
                step = call("commit_object", DECIDED, **arguments(commit, runs))
            row = await self._database.row(*step)
        except failures.TokenKnown:
            # Not as a read: only the answers of a session are certain to be on the synchronous standby (`sessions.py`).
            try:
                row = await self._database.row(*call("token_result", DECIDED, token=commit.token))
            except Overloaded as error:  # this step changed nothing, but the token is decided
                raise Unavailable(str(error)) from error
        assert row is not None
        position, decided = row[0], row[1] or ()
        if len(decided) != 3 * len(runs.partitions):
            raise Conflict("the commit token was used for an object with other batches")
        self._watch.saw(position)
        return ObjectCommitted(
            position=position,
            outcomes=outcomes_of(runs, decided),
            slices=slices_of(runs, decided),
            is_transactional=commit.is_transactional,
        )

    @override
    async def follow(self, after: int, *, limit: int) -> Entries:
        """Entries and head come from one snapshot."""
        rows = await self._database.rows(FOLLOW, after, limit, is_read=True)
        head, truncated = rows[0]["head"], rows[0]["truncated"]
        if after < truncated:
            raise OutOfRange(f"log entries up to {truncated} are truncated", start=truncated, end=head)
        entries = [_entry(row) for row in rows if row["position"] is not None]
        return Entries(entries=entries, head=head)

    @override
    async def wait(self, after: int, *, wait_ms: int) -> None:
        await self._watch.wait(after, wait_ms=wait_ms)

    @override
    async def head(self) -> int:
        position: int = await self._database.value("select position from bearlake.log_head", is_read=True)
        return position

    @override
    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        rows = await self._database.rows(BOUNDS, list(partitions), is_read=True)
        return await keyed(rows, _bounds)

    @override
    async def usage(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionUsage]:
        """Bytes of a slice count until all of it is below the start offset."""
        rows = await self._database.rows(USAGE, list(partitions), is_read=True)
        return await keyed(rows, _usage)

    @override
    async def locate(self, partition: PartitionKey, offset: int, *, limit: int) -> Located:
        return await self._locate(partition, offset, None, limit)

    @override
    async def locate_timestamp(self, partition: PartitionKey, timestamp: int) -> Located:
        return await self._locate(partition, 0, timestamp, 1)

    @override
    async def locate_max_timestamp(self, partition: PartitionKey) -> Located:
        rows = await self._database.rows(
            "select * from bearlake.locate(p_partition => $1, p_offset => 0,"
            " p_timestamp => coalesce(bearlake.max_timestamp(p_partition => $1), 0), p_limit => 1)",
            partition,
            is_read=True,
        )
        return _located(partition, rows)

    async def _locate(self, partition: PartitionKey, offset: int, timestamp: int | None, limit: int) -> Located:
        rows = await self._database.rows(
            *call("locate", partition=partition, offset=offset, timestamp=timestamp, limit=limit), is_read=True
        )
        return _located(partition, rows)

    @override
    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        row = await self._database.row(
            *call("trim_partition", "start_offset, end_offset", partition=partition, start=start)
        )
        assert row is not None
        return PartitionBounds(row[0], row[1], row[1])

    @override
    async def producers(self, partition: PartitionKey) -> list[ProducerState]:
        rows = await self._database.rows(
            "select p.* from bearlake.partition_group g left join bearlake.producer p on p.partition = $1 and not exists"
            " (select from bearlake.producer_name n where n.partition = $1 and n.producer_id = p.producer_id)"
            " where g.group_key = $1 >> 5 and g.starts[($1 & 31) + 1] is not null order by p.producer_id",
            partition,
            is_read=True,
        )
        if not rows:
            raise NotFound(f"there is no partition {partition}")
        return [_producer(row) for row in rows if row["producer_id"] is not None]

    @override
    async def forbid(self, tokens: Collection[str]) -> set[str]:
        rows = await self._database.rows(*call("forbid_tokens", tokens=list(tokens)))
        return {row[0] for row in rows}

    @override
    async def slices(self, ranges: Collection[OffsetRange], *, count_max: int | None = None) -> list[LocatedSlice]:
        """The result is as of one moment."""
        statement, *values = call(
            "slices_of",
            partitions=[range_.partition for range_ in ranges],
            starts=[range_.start for range_ in ranges],
            ends=[range_.end for range_ in ranges],
        )
        rows = await self._database.rows(f"{statement} limit ${len(values) + 1}", *values, count_max, is_read=True)
        return await listed(rows, lambda row: LocatedSlice(Slice._make(row[:6]), row[6], row[7], ObjectKind(row[8])))

    @override
    async def swap(self, swap: Swap) -> int:
        """Takes one round trip, and one more for each round of roll-up that must come first."""
        settings = self._database.settings
        step = call(
            "swap_rows",
            **swaps.arguments(swap),
            entry_limit=settings.roll_entry_count_max,
            slice_limit=settings.roll_slice_count_max,
            page_slices=settings.page_slice_count_max,
        )
        position: int | None = None
        while position is None:
            position = await self._database.value(*step)
        self._watch.saw(position)
        return position

    @override
    async def retain(
        self, stream: Stream, indexes: Collection[int], *, before_ms: int | None, size_max: int | None
    ) -> dict[PartitionKey, PartitionBounds]:
        """Uses one transaction for every 256 partitions."""
        ordered = sorted({stream.partition(index) for index in indexes})
        moved: dict[PartitionKey, PartitionBounds] = {}
        for at in range(0, len(ordered), RETAIN_PARTITION_COUNT_MAX):
            partitions = ordered[at : at + RETAIN_PARTITION_COUNT_MAX]
            rows = await self._database.rows(
                *call(
                    "retain_as_of",
                    number=stream.number,
                    version=stream.version,
                    partitions=partitions,
                    before_ms=before_ms,
                    size_max=size_max,
                )
            )
            moved |= {partition: PartitionBounds(start, end, end) for partition, start, end in rows}
        return moved

    @override
    async def maintain(self, *, entry_count_min: int) -> int:
        """Runs rounds of three short transactions, each bounded by the settings."""
        head, rolled = await self._ends()
        total = 0
        while True:
            count = await self._round(entry_count_min)
            total += count
            if not count or rolled + total >= head:
                return total

    async def _ends(self) -> tuple[int, int]:
        """Return the newest position and the newest one that is rolled up."""
        ends = "select h.position, t.rolled from bearlake.log_head h, bearlake.log_tail t"
        ((head, rolled),) = await self._database.rows(ends, is_read=True)
        return head, rolled

    async def _round(self, entry_count_min: int) -> int:
        database, settings = self._database, self._database.settings
        rolled: int = await database.value(
            *call(
                "roll_up",
                entry_count_min=entry_count_min,
                entry_limit=settings.roll_entry_count_max,
                slice_limit=settings.roll_slice_count_max,
                page_slices=settings.page_slice_count_max,
            )
        )
        await database.rows(*call("sweep", limit=settings.sweep_page_count_max))
        await database.rows(
            *call(
                "forget_tokens",
                older_ms=settings.token_result_keep_ms,
                forbidden_ms=settings.forbidden_keep_ms,
                limit=settings.sweep_page_count_max,
            )
        )
        return rolled


def _entry(row: asyncpg.Record) -> Entry:
    if row["kind"] == EntryKind.COMMIT:
        rows = zip(
            row["partitions"],
            row["base_offsets"],
            row["record_counts"],
            row["positions"],
            row["lengths"],
            row["timestamps"],
            strict=True,
        )
        slices = by_position([Slice._make(values) for values in rows])
        return Entry(
            position=row["position"],
            kind=EntryKind.COMMIT,
            object_key=row["object_key"],
            object_size=row["object_size"],
            slices=slices,
            changes=_changes(row["transactions"]),
        )
    if row["kind"] == EntryKind.SWAP:
        moved = zip(row["partitions"], row["base_offsets"], row["record_counts"], strict=True)
        ranges = [(partition, start, start + count) for partition, start, count in moved]
        return Entry(position=row["position"], kind=EntryKind.SWAP, ranges=ranges)
    if row["kind"] == EntryKind.STREAM and row["stream_number"] == NO_STREAM:
        return Entry(position=row["position"], kind=EntryKind.POLICY)
    return Entry(
        position=row["position"],
        kind=EntryKind(row["kind"]),
        partition=PartitionKey(row["partition"] or 0),
        start_offset=row["start_offset"] or 0,
        stream_number=row["stream_number"] or 0,
    )


def _changes(fields: list[int] | None) -> Sequence[TransactionChange]:
    return changes_of(fields[at : at + CHANGE_WIDTH] for at in range(0, len(fields), CHANGE_WIDTH)) if fields else ()


def _bounds(row: asyncpg.Record) -> tuple[PartitionKey, PartitionBounds]:
    partition, start, end, open_offset = row
    return partition, PartitionBounds(start, end, last_stable_offset(start, end, open_offset))


def _usage(row: asyncpg.Record) -> tuple[PartitionKey, PartitionUsage]:
    partition, size, record_count = row
    return partition, PartitionUsage(size, record_count)


def _located(partition: PartitionKey, rows: list[asyncpg.Record]) -> Located:
    start, end, position = rows[0]["base_offset"], rows[0]["record_count"], rows[0]["at"]
    slices = [
        LocatedSlice(Slice(partition, base, count, at, length, timestamp), key, size, ObjectKind(kind))
        for base, count, at, length, timestamp, key, size, kind in rows[1:]
    ]
    return Located(slices=slices, bounds=PartitionBounds(start, end, end), position=position)


def _producer(row: asyncpg.Record) -> ProducerState:
    first, last, base = row["batches"][:3]
    return ProducerState(
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        last_sequence=last,
        last_offset=base + ((last - first) & SEQUENCE_MASK),
        last_timestamp_ms=row["updated_ms"],
    )
