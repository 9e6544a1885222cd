"""From the file to the ledger: states from the checkpoint's tables, entries of other processes from the log.

`catch_up` is the first step of every transaction that uses the ledger. It needs the transaction's snapshot. It applies only committed
entries, so the ledger stays correct even if the transaction is rolled back later.
"""

import sqlite3
from typing import NamedTuple

from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import EntryKind, PartitionKey
from bearlake.metadata.packing import PRODUCER_WIDTH, SEQUENCE_WIDTH, unpack_rows, unpack_slices
from bearlake.metadata.partition_state import PartitionState, StreamState

COMMIT, TRIM, STREAM, SWAP = (
    int(EntryKind.COMMIT),
    int(EntryKind.TRIM),
    int(EntryKind.STREAM),
    int(EntryKind.SWAP),
)


class Heads(NamedTuple):
    """The log's ends in one snapshot: newest position, newest rolled up, newest truncated, counts of expiries and of raised epochs,
    the largest id of an idempotent producer whose state expired, and the position floor (`metadata/producers.py`)."""

    head: int
    rolled: int
    truncated: int
    forgotten_count: int
    raised_count: int
    expired_producer_id: int
    position_floor: int


def read_heads(connection: sqlite3.Connection) -> Heads:
    """Return the log's ends as of the connection's snapshot."""
    return Heads._make(
        connection.execute(
            "SELECT coalesce((SELECT max(position) FROM log), rolled_position), rolled_position, truncated_position, forgotten_count,"
            " raised_count, expired_producer_id, position_floor"
            " FROM store"
        ).fetchone()
    )


class SqliteCheckpoint:
    """The tables `streams`, `partitions`, `partition_producers` and `partition_epochs` as the ledger's checkpoint."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def stream(self, number: int) -> StreamState | None:
        """Return the stream as it is in the snapshot."""
        row = self._connection.execute(
            "SELECT partition_count, is_deleted, is_terminated, former_producer_id FROM streams WHERE number = ?",
            (number,),
        ).fetchone()
        if row is None:
            return None
        return StreamState(row[0], is_deleted=bool(row[1]), is_terminated=bool(row[2]), former_producer_id=row[3])

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        """Return the partition with all its producers; empty if nothing was rolled up yet."""
        epoch, start, end, size, size_before = self._connection.execute(
            "SELECT coalesce((SELECT epoch FROM partition_epochs WHERE partition = k.partition), 0), start, end, size, size_before"
            " FROM (SELECT ? AS partition) k LEFT JOIN partitions USING (partition)",
            (key,),
        ).fetchone()
        if end is None:
            return PartitionState(stream, epoch=epoch)
        producers = {}
        for producer_id, producer_epoch, last_ms, batches in self._connection.execute(
            "SELECT producer_id, epoch, last_ms, batches FROM partition_producers WHERE partition = ?", (key,)
        ):
            remembered = [field for batch in unpack_rows(batches, PRODUCER_WIDTH) for field in batch]
            producers[producer_id] = (producer_epoch, last_ms, *remembered)
        return PartitionState(
            stream, start=start, end=end, size=size, size_before=size_before, epoch=epoch, producers=producers
        )

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        """Return the floor of the name that has this id. Only read for the first batch of a named producer."""
        row = self._connection.execute(
            "SELECT floor FROM producer_names WHERE partition = ? AND producer_id = ?", (key, producer_id)
        ).fetchone()
        return None if row is None else row[0]


class Follower:
    """Keeps a ledger in step with the file."""

    def __init__(self, connection: sqlite3.Connection, *, partition_count_max: int) -> None:
        self._connection = connection
        self.forgotten_count = -1  # treats all state as stale: the first step starts at the checkpoint
        self.raised_count = 0
        self.ledger = Ledger(SqliteCheckpoint(connection), partition_count_max=partition_count_max)

    def catch_up(self) -> Heads:
        """Apply the changes of other processes (and of other steps of this process) up to the current snapshot."""
        heads = read_heads(self._connection)
        ledger = self.ledger
        ledger.evict()
        ledger.expired_id = heads.expired_producer_id
        ledger.position_floor = heads.position_floor
        if heads.forgotten_count != self.forgotten_count or ledger.applied < heads.truncated:
            ledger.reset(heads.rolled)  # cached producers are stale, or entries that were not applied are truncated
            self.forgotten_count = heads.forgotten_count
        elif self.raised_count < heads.raised_count:
            self._raise_epochs()
        self.raised_count = heads.raised_count
        if ledger.applied < heads.head:
            self._apply(max(ledger.applied, heads.truncated))
        if ledger.rolled < heads.rolled:
            ledger.rolled_up(heads.rolled)
        return heads

    def _raise_epochs(self) -> None:
        known = self.ledger.partitions
        for partition, epoch in self._connection.execute(
            "SELECT partition, epoch FROM partition_epochs WHERE number > ?", (self.raised_count,)
        ):
            if partition in known:
                known[partition].epoch = epoch

    def _apply(self, after: int) -> None:
        ledger = self.ledger
        for (
            position,
            kind,
            created_ms,
            slices,
            sequences,
            partition,
            start,
            size_before,
            stream_number,
        ) in self._connection.execute(
            "SELECT position, kind, created_ms, slices, sequences, partition, start_offset, size_before, stream_number"
            " FROM log WHERE position > ? ORDER BY position",
            (after,),
        ):
            assert position == ledger.applied + 1, "entries are applied in order, without gaps"
            if kind == COMMIT:
                ledger.replay_commit(
                    position, created_ms, unpack_slices(slices), unpack_rows(sequences, SEQUENCE_WIDTH)
                )
            elif kind == TRIM:
                ledger.replay_trim(position, partition, start, size_before)
            elif kind == SWAP:
                ledger.replay_swap(position)
            else:
                ledger.replay_stream(position, stream_number)
