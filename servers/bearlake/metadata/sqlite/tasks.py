"""Compaction's task queue in SQLite: a row per task, and a row for each partition or data file that a task owns."""

import json
import sqlite3
from collections.abc import Collection, Sequence

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import NotFound, TooLarge
from bearlake.metadata.compaction import (
    ANY_TASK,
    OffsetRange,
    PartitionBacklog,
    StreamBacklog,
    StreamCommits,
    Task,
    TaskChoice,
    TaskClaim,
    TaskKind,
    TaskOffer,
    TaskQueue,
    TaskState,
)
from bearlake.metadata.model import Lease, ObjectKind, PartitionKey, ServerRef
from bearlake.metadata.packing import RANGE_WIDTH, pack_rows, unpack_rows
from bearlake.metadata.patterns import as_glob
from bearlake.metadata.sqlite.backlog import Backlog, read_compacted
from bearlake.metadata.sqlite.claims import check_claim, check_newest, close_task
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog
from bearlake.metadata.sqlite.servers import IS_LIVE, check_lease, check_live
from bearlake.metadata.sqlite.task_objects import register

Tasks = list[Task]
TaskIds = list[int]

RESULT_BYTES_MAX = 16 << 20

COLUMNS = (
    "id, kind, state, tasks.stream_number, ranges, inputs, size_bytes, record_count, oldest_ms, tasks.epoch, tasks.node_id,"
    " server_epoch, attempt_count, claimable_ms, error,"
    " EXISTS (SELECT 1 FROM servers WHERE servers.node_id = tasks.node_id AND servers.epoch = tasks.server_epoch"
    f" AND {IS_LIVE}) AS is_held"
)
"""Columns of table `tasks`."""


MATCHES = " AND (?2 = '[]' OR EXISTS (SELECT 1 FROM json_each(?2) WHERE name GLOB value))"
FIRST = (
    "oldest_ms - coalesce((SELECT json_extract(value, '$[1]') FROM json_each(?3)"
    " WHERE name GLOB json_extract(value, '$[0]') ORDER BY key LIMIT 1), 0), "
)
"""The conditions of a `TaskChoice` in a claim: patterns of its streams, and pairs for its head starts, both in JSON."""


class SqliteTasks(TaskQueue):
    """`metadata.TaskQueue`."""

    def __init__(self, database: Database, log: SqliteLog, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        self._backlog = Backlog(database, log, clock)

    @override
    async def offer(self, offers: Sequence[TaskOffer], lease: Lease) -> list[Task]:
        """Also leaves out ranges that pass the end, and inputs that are not data files of the stream."""
        return await self._database.run(self._offer, offers, lease)

    @override
    async def claim(
        self, worker: ServerRef, *, limit: int, bytes_max: int, choice: TaskChoice = ANY_TASK
    ) -> list[Task]:
        """Stops at the first task that does not fit, so that no task is overtaken because of its size."""
        return await self._database.run(self._claim, worker, limit, bytes_max, choice)

    @override
    async def prepare(self, claim: TaskClaim, result: bytes | None, keys: Collection[str]) -> None:
        """Raises `TooLarge` if the result is too large."""
        if result is not None and len(result) > RESULT_BYTES_MAX:
            raise TooLarge(f"the result of task {claim.task_id}", len(result), RESULT_BYTES_MAX)
        await self._database.run(self._prepare, claim, result, keys)

    @override
    async def check(self, claims: Collection[TaskClaim]) -> None:
        await self._database.run_read(self._check, claims)

    @override
    async def release(self, claims: Collection[TaskClaim], *, wait_ms: int = 0) -> None:
        await self._database.run(self._release, claims, wait_ms)

    @override
    async def fail(self, claim: TaskClaim, error: str, *, retry_after_ms: int, is_quarantined: bool) -> None:
        """A repeat, before another worker claims the task, changes nothing."""
        await self._database.run(self._fail, claim, error, retry_after_ms, is_quarantined)

    @override
    async def cancel(self, claim: TaskClaim) -> None:
        await self._database.run(self._cancel, claim)

    @override
    async def retry(self, task_id: int) -> Task:
        return await self._database.run(self._retry, task_id)

    @override
    async def list(self, *, stream_number: int | None = None, after: int = 0, limit: int = 1000) -> Sequence[Task]:
        return await self._database.run_read(self._list, stream_number, after, limit)

    @override
    async def uncompacted(self, *, after: PartitionKey, limit: int) -> Sequence[PartitionBacklog]:
        return await self._backlog.uncompacted(after, limit)

    @override
    async def backlog(self) -> Sequence[StreamBacklog]:
        return await self._backlog.by_stream()

    @override
    async def commits(self) -> Sequence[StreamCommits]:
        return await self._database.run_read(self._commits)

    @override
    async def compacted(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        return await self._database.run(self._compacted, partitions)

    # Steps, on the writer's thread (except `_list` and `_check`).

    def _offer(self, offers: Sequence[TaskOffer], lease: Lease) -> Tasks:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            check_lease(connection, lease)
            self._log.follower.catch_up()
            ids = [
                self._insert(connection, offer, now_ms) for offer in offers if self._is_acceptable(connection, offer)
            ]
            find = f"SELECT {COLUMNS} FROM tasks WHERE id = ?"
            return [_task(connection.execute(find, (task_id,)).fetchone(), now_ms) for task_id in ids]

    def _is_acceptable(self, connection: sqlite3.Connection, offer: TaskOffer) -> bool:
        stream = self._log.follower.ledger.stream(offer.stream_number)
        if stream is None or stream.is_deleted:
            return False
        if offer.kind is TaskKind.COMPACT:
            return bool(offer.ranges) and all(self._is_next(connection, range_) for range_ in offer.ranges)
        find = (
            "SELECT 1 FROM objects WHERE key = ?1 AND kind = ?2 AND stream_number = ?3 AND deleted_ms IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM task_inputs WHERE key = ?1)"
        )
        return bool(offer.inputs) and all(
            connection.execute(find, (key, ObjectKind.PARQUET, offer.stream_number)).fetchone() for key in offer.inputs
        )

    def _is_next(self, connection: sqlite3.Connection, range_: OffsetRange) -> bool:
        partition, start, end = range_
        if connection.execute("SELECT 1 FROM task_partitions WHERE partition = ?", (partition,)).fetchone():
            return False
        state = self._log.follower.ledger.existing(partition)
        return (
            state is not None
            and start == max(state.start, read_compacted(connection, partition))
            and start < end <= state.end
        )

    def _insert(self, connection: sqlite3.Connection, offer: TaskOffer, now_ms: int) -> int:
        task_id = connection.execute(
            "INSERT INTO tasks (kind, state, stream_number, ranges, inputs, size_bytes, record_count, oldest_ms,"
            " epoch, attempt_count, claimable_ms, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, '')",
            (
                offer.kind,
                TaskState.OPEN,
                offer.stream_number,
                pack_rows(offer.ranges, RANGE_WIDTH),
                json.dumps(list(offer.inputs)),
                offer.size_bytes,
                offer.record_count,
                now_ms - offer.age_ms,
            ),
        ).lastrowid
        assert task_id is not None
        connection.executemany(
            "INSERT INTO task_partitions VALUES (?, ?)", [(range_.partition, task_id) for range_ in offer.ranges]
        )
        connection.executemany("INSERT INTO task_inputs VALUES (?, ?)", [(key, task_id) for key in offer.inputs])
        return task_id

    def _claim(self, worker: ServerRef, limit: int, bytes_max: int, choice: TaskChoice) -> Tasks:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            check_live(connection, worker)
            ids = self._choose(connection, now_ms, limit, bytes_max, choice)
            (number,) = connection.execute(
                "UPDATE store SET last_claim_number = last_claim_number + 1 RETURNING last_claim_number"
            ).fetchone()
            connection.executemany(
                "UPDATE tasks SET epoch = epoch + 1, node_id = ?, server_epoch = ?, claim_number = ? WHERE id = ?",
                [(worker.node_id, worker.epoch, number, task_id) for task_id in ids],
            )
            find = f"SELECT {COLUMNS} FROM tasks WHERE id = ?"
            return [
                _task(connection.execute(find, (task_id,)).fetchone(), now_ms, _results(connection, task_id))
                for task_id in ids
            ]

    def _choose(
        self, connection: sqlite3.Connection, now_ms: int, limit: int, bytes_max: int, choice: TaskChoice
    ) -> TaskIds:
        chosen: TaskIds = []
        dropped: TaskIds = []
        total = 0
        values: list[object] = [now_ms]
        condition = order = ""
        if not choice.is_plain:
            condition, order = MATCHES, FIRST
            values += [
                json.dumps([as_glob(pattern) for pattern in choice.streams]),
                json.dumps([(as_glob(pattern), head_start_ms) for pattern, head_start_ms in choice.head_starts]),
            ]
        for task_id, size, is_deleted in connection.execute(
            "SELECT tasks.id, size_bytes, is_deleted FROM tasks INDEXED BY tasks_claimable"
            " JOIN streams ON number = stream_number WHERE state = 1 AND claimable_ms <= ?1"
            " AND NOT EXISTS (SELECT 1 FROM servers WHERE servers.node_id = tasks.node_id AND servers.epoch = tasks.server_epoch"
            f" AND {IS_LIVE}){condition} ORDER BY {order}tasks.id",
            values,
        ):
            if is_deleted:
                dropped.append(task_id)
            elif len(chosen) >= limit or (chosen and total + size > bytes_max):
                break
            else:
                chosen.append(task_id)
                total += size
        for task_id in dropped:
            close_task(connection, task_id)
        return chosen

    def _prepare(self, claim: TaskClaim, result: bytes | None, keys: Collection[str]) -> None:
        with self._database.writing() as connection:
            check_claim(connection, claim)
            register(connection, claim.task_id, keys)
            if result is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO task_results VALUES (?, ?, ?)", (claim.task_id, claim.epoch, result)
                )

    def _check(self, claims: Collection[TaskClaim]) -> None:
        with self._database.reading() as connection:
            for claim in claims:
                check_newest(connection, claim)

    def _release(self, claims: Collection[TaskClaim], wait_ms: int) -> None:
        claimable_ms = self._clock.now_ms() + wait_ms if wait_ms else 0
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE tasks SET node_id = NULL, server_epoch = NULL, claimable_ms = max(claimable_ms, ?)"
                " WHERE id = ? AND epoch = ? AND node_id = ? AND server_epoch = ?",
                [
                    (claimable_ms, claim.task_id, claim.epoch, claim.worker.node_id, claim.worker.epoch)
                    for claim in claims
                ],
            )

    def _fail(self, claim: TaskClaim, error: str, retry_after_ms: int, is_quarantined: bool) -> None:
        with self._database.writing() as connection:
            if connection.execute(
                "SELECT 1 FROM tasks WHERE id = ? AND epoch = ? AND node_id IS NULL", (claim.task_id, claim.epoch)
            ).fetchone():
                return
            check_claim(connection, claim)
            connection.execute(
                "UPDATE tasks SET state = ?, attempt_count = attempt_count + 1, claimable_ms = ?, error = ?,"
                " node_id = NULL, server_epoch = NULL WHERE id = ?",
                (
                    TaskState.QUARANTINED if is_quarantined else TaskState.OPEN,
                    self._clock.now_ms() + retry_after_ms,
                    error,
                    claim.task_id,
                ),
            )

    def _cancel(self, claim: TaskClaim) -> None:
        with self._database.writing() as connection:
            check_claim(connection, claim)
            close_task(connection, claim.task_id)

    def _retry(self, task_id: int) -> Task:
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE tasks SET state = ?, attempt_count = 0, claimable_ms = 0 WHERE id = ?",
                (TaskState.OPEN, task_id),
            )
            row = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE id = ?", (task_id,)).fetchone()
            if row is None:
                raise NotFound(f"there is no task {task_id}")
            return _task(row, now_ms)

    def _list(self, stream_number: int | None, after: int, limit: int) -> Sequence[Task]:
        now_ms = self._clock.now_ms()
        where = "id > ?1" if stream_number is None else "id > ?1 AND stream_number = ?3"
        parameters = [after, limit] + ([] if stream_number is None else [stream_number])
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM tasks WHERE {where} ORDER BY id LIMIT ?2", parameters
            ).fetchall()
        return [_task(row, now_ms) for row in rows]

    def _commits(self) -> Sequence[StreamCommits]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM stream_commits ORDER BY stream_number").fetchall()
        return [StreamCommits(*row) for row in rows]

    def _compacted(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        with self._database.looking() as connection:
            self._log.follower.catch_up()
            existing = self._log.follower.ledger.existing
            return {key: read_compacted(connection, key) for key in partitions if existing(key) is not None}


def _results(connection: sqlite3.Connection, task_id: int) -> dict[int, bytes]:
    rows = connection.execute("SELECT epoch, result FROM task_results WHERE task_id = ? ORDER BY epoch", (task_id,))
    return dict(rows.fetchall())


def _task(row: tuple[int | str | bytes, ...], now_ms: int, results: dict[int, bytes] | None = None) -> Task:
    (
        task_id, kind, state, stream_number, ranges, inputs, size_bytes, record_count, oldest_ms, epoch, node_id,
        server_epoch, attempt_count, claimable_ms, error, is_held,
    ) = row  # fmt: skip
    assert isinstance(ranges, bytes)
    assert isinstance(inputs, str)
    assert isinstance(error, str)
    holder = ServerRef(node_id=int(node_id), epoch=int(server_epoch)) if is_held else None
    return Task(
        id=int(task_id),
        kind=TaskKind(int(kind)),
        state=TaskState(int(state)),
        stream_number=int(stream_number),
        ranges=[OffsetRange(PartitionKey(p), start, end) for p, start, end in unpack_rows(ranges, RANGE_WIDTH)],
        inputs=json.loads(inputs),
        size_bytes=int(size_bytes),
        record_count=int(record_count),
        age_ms=max(0, now_ms - int(oldest_ms)),
        epoch=int(epoch),
        holder=holder,
        attempt_count=int(attempt_count),
        wait_ms=max(0, int(claimable_ms) - now_ms),
        error=error,
        results=results or {},
    )
