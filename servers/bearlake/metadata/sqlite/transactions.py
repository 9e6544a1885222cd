"""Transactions in SQLite. The rules are in `metadata/transaction_rules.py`; the commit's part is in `gate.py`."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import ChangeKind, CommittedOffset, Lease, PartitionKey, Slice, TransactionChange
from bearlake.metadata.names import check_name
from bearlake.metadata.packing import SLICE_WIDTH, pack_rows
from bearlake.metadata.sqlite import transaction_rows as rows
from bearlake.metadata.sqlite.catchup import COMMIT
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog
from bearlake.metadata.sqlite.servers import check_lease
from bearlake.metadata.transactions import (
    CHANGE_WIDTH,
    NOTHING_OPEN,
    TRANSACTIONAL_ID_BYTES_MAX,
    Aborted,
    Decide,
    End,
    Isolation,
    OpenOffset,
    Transaction,
    Transactions,
    marker_producer,
)
from bearlake.records.markers import MARKER_BYTES, Markers


class SqliteTransactions(Transactions):
    """`metadata.transactions.Transactions`."""

    def __init__(self, database: Database, log: SqliteLog, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    @override
    async def get(self, transactional_id: str) -> Transaction | None:
        return await self._database.run_read(self._get, transactional_id)

    @override
    async def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        return await self._database.run_read(self._owners, list(producer_ids))

    @override
    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        """One step of the writer's thread, so that only another process can change the row in between."""
        check_name("a transactional id", transactional_id, TRANSACTIONAL_ID_BYTES_MAX)
        stored, position = await self._database.run(self._change, transactional_id, decide)
        self._log.notify(position)
        return stored

    @override
    async def put(self, after: Transaction, version: int) -> Transaction:
        check_name("a transactional id", after.transactional_id, TRANSACTIONAL_ID_BYTES_MAX)
        return await self._database.run(self._put, after, version)

    @override
    async def put_offsets(
        self,
        after: Transaction,
        version: int,
        group: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        lease: Lease,
    ) -> Transaction:
        return await self._database.run(self._put_offsets, after, version, group, offsets, lease)

    @override
    async def end(self, after: Transaction, version: int, *, is_commit: bool) -> Transaction:
        stored, position = await self._database.run(self._read_and_end, after, version, is_commit)
        self._log.notify(position)
        return stored

    @override
    async def forget(self, transactional_id: str, version: int) -> None:
        await self._database.run(self._forget, transactional_id, version)

    @override
    async def list(self, *, after: str = "", limit: int = 1000, is_ongoing: bool = False) -> Sequence[Transaction]:
        return await self._database.run_read(self._list, after, limit, is_ongoing)

    @override
    async def open_offsets(
        self, *, producer_id: int | None = None, partition: PartitionKey | None = None
    ) -> Sequence[OpenOffset]:
        return await self._database.run_read(self._open_offsets, producer_id, partition)

    @override
    async def isolation(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, Isolation]:
        return await self._database.run(self._isolation, partitions)

    @override
    async def pending(self, group: str) -> set[PartitionKey]:
        return await self._database.run_read(self._pending, group)

    # Steps.

    def _get(self, name: str) -> Transaction | None:
        with self._database.reading() as connection:
            return rows.find(connection, name)

    def _owners(self, producer_ids: Sequence[int]) -> dict[int, str]:
        with self._database.reading() as connection:
            find = "SELECT producer_id, name FROM transactional_ids WHERE producer_id = ?"
            found = (connection.execute(find, (producer_id,)).fetchone() for producer_id in producer_ids)
            return dict(row for row in found if row is not None)

    def _change(self, name: str, decide: Decide) -> tuple[Transaction | None, int]:
        held = rows.first_row(self._database.read_at_once(rows.FIND, (name,)))
        step = decide(held)  # before the wait for the write lock: another process may change the row until then
        if step is None:
            return None, 0
        if step.after is held:
            return held, 0
        version = 0 if held is None else held.version
        if isinstance(step, End):
            assert held is not None
            return self._end(held, step.after, step.is_commit)
        return self._put(step.after, version), 0

    def _put(self, after: Transaction, version: int) -> Transaction:
        return self._database.at_once(lambda connection: rows.write(connection, after, version, self._clock.now_ms()))

    def _put_offsets(
        self,
        after: Transaction,
        version: int,
        group: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        lease: Lease,
    ) -> Transaction:
        with self._database.writing() as connection:
            stored = rows.write(connection, after, version, self._clock.now_ms())
            check_lease(connection, lease)
            connection.executemany(
                "INSERT OR REPLACE INTO pending_offsets VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (after.producer_id, group, key, found.offset, found.leader_epoch, found.metadata)
                    for key, found in offsets.items()
                ],
            )
            return stored

    def _read_and_end(self, after: Transaction, version: int, is_commit: bool) -> tuple[Transaction, int]:
        before = rows.first_row(self._database.read_at_once(rows.FIND, (after.transactional_id,)))
        if before is None or before.version != version:
            raise rows.changed(after.transactional_id, version)
        return self._end(before, after, is_commit)

    def _end(self, before: Transaction, after: Transaction, is_commit: bool) -> tuple[Transaction, int]:
        """`before`: the row as it was read. Raises `Conflict`, with nothing stored, if the row has changed since."""
        assert before.is_ongoing
        slices: list[Slice] = []
        with self._database.writing() as connection:
            now_ms = self._clock.now_ms()  # times follow the order of the log
            position = self._log.follower.catch_up().head + 1
            stored = rows.write(connection, after, before.version, now_ms)
            opened = rows.close(connection, before.producer_id)
            changes = _markers(
                self._log.follower.ledger, connection, opened, before.producer_id, slices, now_ms, is_commit=is_commit
            )
            if slices:
                producer = marker_producer(before, after)
                markers = Markers(*producer, stored.version, is_commit, now_ms, len(slices))
                connection.execute(
                    "INSERT INTO log (position, kind, created_ms, token, object_size, slices, sequences, outcomes, transactions)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        position,
                        COMMIT,
                        now_ms,
                        markers.key(),
                        markers.size,
                        pack_rows(slices, SLICE_WIDTH),
                        b"",
                        b"",
                        pack_rows(changes, CHANGE_WIDTH),
                    ),
                )
            if rows.has_pending(connection, before.producer_id):
                if is_commit:
                    connection.execute(PLACE_OFFSETS, (now_ms, before.producer_id))
                connection.execute("DELETE FROM pending_offsets WHERE producer_id = ?", (before.producer_id,))
        if slices:
            self._log.follower.ledger.replay_commit(position, now_ms, slices, ())
        return stored, position if slices else 0

    def _forget(self, name: str, version: int) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "DELETE FROM transactional_ids WHERE name = ? AND version = ? AND started_ms < 0", (name, version)
            )

    def _list(self, after: str, limit: int, is_ongoing: bool) -> Sequence[Transaction]:
        with self._database.reading() as connection:
            return rows.page(connection, after, limit, is_ongoing=is_ongoing)

    def _open_offsets(self, producer_id: int | None, partition: PartitionKey | None) -> Sequence[OpenOffset]:
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT partition, producer_id, first_offset FROM open_transactions"
                " WHERE (?1 IS NULL OR producer_id = ?1) AND (?2 IS NULL OR partition = ?2) ORDER BY partition, producer_id",
                (producer_id, partition),
            )
            return [OpenOffset(PartitionKey(row[0]), row[1], row[2]) for row in found]

    def _isolation(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, Isolation]:
        with self._database.looking() as connection:
            position = self._log.follower.catch_up().head
            existing = self._log.follower.ledger.existing
            return {
                key: Isolation(
                    position=position,
                    start=state.start,
                    end=state.end,
                    open_offset=rows.open_offset(connection, key),
                    aborted=[
                        Aborted(*row)
                        for row in connection.execute(
                            "SELECT producer_id, first_offset, marker_offset FROM aborted_transactions"
                            " WHERE partition = ? ORDER BY marker_offset",
                            (key,),
                        )
                    ],
                )
                for key in partitions
                if (state := existing(key)) is not None
            }

    def _pending(self, group: str) -> set[PartitionKey]:
        with self._database.reading() as connection:
            found = connection.execute("SELECT DISTINCT partition FROM pending_offsets WHERE name = ?", (group,))
            return {PartitionKey(row[0]) for row in found}


PLACE_OFFSETS = (
    "INSERT INTO group_offsets (name, partition, next_offset, leader_epoch, metadata, committed_ms)"
    " SELECT p.name, p.partition, p.next_offset, p.leader_epoch, p.metadata, ?1 FROM pending_offsets p WHERE p.producer_id = ?2"
    " AND NOT EXISTS (SELECT 1 FROM streams s WHERE s.number = p.partition >> 20 AND s.is_deleted)"
    " ON CONFLICT (name, partition) DO UPDATE SET next_offset = excluded.next_offset, leader_epoch = excluded.leader_epoch,"
    " metadata = excluded.metadata, committed_ms = excluded.committed_ms"
)
"""Leaves out offsets of deleted streams. Partitions of Kafka's internal topics belong to no stream (decision 198)."""


def _markers(
    ledger: Ledger,
    connection: sqlite3.Connection,
    opened: Sequence[tuple[PartitionKey, int]],
    producer_id: int,
    slices: list[Slice],
    now_ms: int,
    *,
    is_commit: bool,
) -> list[TransactionChange]:
    """Assign the markers' offsets: one at the end of each partition that still exists."""
    kind = ChangeKind.COMMITTED if is_commit else ChangeKind.ABORTED
    changes: list[TransactionChange] = []
    still_open = rows.open_offsets(connection, [partition for partition, _ in opened])
    for partition, first_offset in opened:
        state = ledger.existing(partition)
        if state is None:
            continue
        slices.append(Slice(partition, state.end, 1, len(slices) * MARKER_BYTES, MARKER_BYTES, now_ms))
        open_offset = still_open.get(partition, NOTHING_OPEN)
        changes.append(TransactionChange(kind, partition, producer_id, first_offset, state.end, open_offset))
        if not is_commit:
            _remember_aborted(connection, partition, Aborted(producer_id, first_offset, state.end))
    return changes


def _remember_aborted(connection: sqlite3.Connection, partition: PartitionKey, found: Aborted) -> None:
    """Add an aborted transaction, or extend the producer's last one, if that ended right before it (`Aborted`)."""
    is_joined = connection.execute(
        "UPDATE aborted_transactions SET marker_offset = ? WHERE partition = ? AND marker_offset = ? AND producer_id = ?",
        (found.marker_offset, partition, found.first_offset - 1, found.producer_id),
    ).rowcount
    if not is_joined:
        connection.execute(
            "INSERT INTO aborted_transactions (partition, marker_offset, producer_id, first_offset) VALUES (?, ?, ?, ?)",
            (partition, found.marker_offset, found.producer_id, found.first_offset),
        )
