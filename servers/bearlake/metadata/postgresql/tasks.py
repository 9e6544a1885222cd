"""Compaction's task queue in PostgreSQL; each method is one call. The tables are in `schema/tasks.sql`."""

from collections.abc import Collection, Sequence
from itertools import accumulate

import asyncpg
from typing_extensions import override

from bearlake.errors import Fenced, TooLarge
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
from bearlake.metadata.model import Lease, PartitionKey, ServerRef
from bearlake.metadata.patterns import as_regular_expression
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database

RESULT_BYTES_MAX = 16 << 20

COLUMNS = (
    "id, kind, state, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, age_ms, epoch, node_id, server_epoch,"
    " attempt_count, wait_ms, error"
)
CLAIMED = f"{COLUMNS}, result_epochs, results"
LIST = f"""
select {COLUMNS} from bearlake.queued_task
 where id > $1 and ($2::bigint is null or stream_number = $2) order by id limit $3"""
LOST_CLAIMS = """
select u.id, u.epoch
  from unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[]) u (id, epoch, node_id, server_epoch)
 where not exists (select from bearlake.task t where t.id = u.id and t.is_held and t.epoch = u.epoch
                      and t.node_id = u.node_id and t.server_epoch = u.server_epoch)"""
COMPACTED = """
select u.partition, c.offsets[(u.partition & 31) + 1]
  from unnest($1::bigint[]) u (partition)
  join bearlake.partition_group g on g.group_key = u.partition >> 5
  join bearlake.compaction_group c on c.group_key = u.partition >> 5
 where g.starts[(u.partition & 31) + 1] is not null"""


class PostgresqlTasks(TaskQueue):
    """`metadata.TaskQueue`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def offer(self, offers: Sequence[TaskOffer], lease: Lease) -> list[Task]:
        """Also leaves out ranges beyond the end, and inputs that are not data files of the stream.

        A repeat after a lost reply creates nothing and returns nothing; `list` shows the tasks.
        """
        ranges = [range_ for offer in offers for range_ in offer.ranges]
        rows = await self._database.rows(
            *call(
                "offer_tasks",
                COLUMNS,
                lease=lease.name,
                lease_epoch=lease.epoch,
                node_id=lease.holder.node_id,
                server_epoch=lease.holder.epoch,
                kinds=[int(offer.kind) for offer in offers],
                streams=[offer.stream_number for offer in offers],
                sizes=[offer.size_bytes for offer in offers],
                counts=[offer.record_count for offer in offers],
                ages=[offer.age_ms for offer in offers],
                range_ends=list(accumulate(len(offer.ranges) for offer in offers)),
                input_ends=list(accumulate(len(offer.inputs) for offer in offers)),
                partitions=[range_.partition for range_ in ranges],
                starts=[range_.start for range_ in ranges],
                ends=[range_.end for range_ in ranges],
                inputs=[key for offer in offers for key in offer.inputs],
            )
        )
        return [_task(row) for row in rows]

    @override
    async def claim(
        self, worker: ServerRef, *, limit: int, bytes_max: int, choice: TaskChoice = ANY_TASK
    ) -> list[Task]:
        """Stops at the first task that does not fit, so that no task is overtaken because of its size.

        A repeat after a lost reply claims other tasks; this worker keeps the tasks of the first call, see `list`.
        """
        claim = call(
            "claim_tasks",
            CLAIMED,
            node_id=worker.node_id,
            server_epoch=worker.epoch,
            limit=limit,
            bytes_max=bytes_max,
        )
        if not choice.is_plain:
            claim = call(
                "claim_chosen_tasks",
                CLAIMED,
                node_id=worker.node_id,
                server_epoch=worker.epoch,
                limit=limit,
                bytes_max=bytes_max,
                streams=[as_regular_expression(pattern) for pattern in choice.streams],
                first=[as_regular_expression(pattern) for pattern, _ in choice.head_starts],
                head_starts=[head_start_ms for _, head_start_ms in choice.head_starts],
            )
        rows = await self._database.rows(*claim, is_repeatable=False)
        return [_task(row, dict(zip(row["result_epochs"] or (), row["results"] or (), strict=True))) for row in rows]

    @override
    async def prepare(self, claim: TaskClaim, result: bytes | None, keys: Collection[str]) -> None:
        """Raises `TooLarge` if the result is too large."""
        if result is not None and len(result) > RESULT_BYTES_MAX:
            raise TooLarge(f"the result of task {claim.task_id}", len(result), RESULT_BYTES_MAX)
        await self._database.rows(
            *call(
                "prepare_task",
                **_of_claim(claim),
                result=None if result is None else bytes(result),
                keys=list(keys),
            )
        )

    @override
    async def check(self, claims: Collection[TaskClaim]) -> None:
        """Not marked as a read: a table commit rests on the answer, so it waits for lost sessions to end."""
        lost = await self._database.rows(LOST_CLAIMS, *_claim_columns(claims))
        if lost:
            raise Fenced(f"task {lost[0][0]} is not held in epoch {lost[0][1]} any more")

    @override
    async def release(self, claims: Collection[TaskClaim], *, wait_ms: int = 0) -> None:
        tasks, epochs, node_ids, server_epochs = _claim_columns(claims)
        await self._database.rows(
            *call(
                "release_tasks",
                tasks=tasks,
                epochs=epochs,
                node_ids=node_ids,
                server_epochs=server_epochs,
                wait_ms=wait_ms,
            )
        )

    @override
    async def fail(self, claim: TaskClaim, error: str, *, retry_after_ms: int, is_quarantined: bool) -> None:
        """A repeat, before another worker claims the task, changes nothing."""
        await self._database.rows(
            *call(
                "fail_task",
                **_of_claim(claim),
                error=error.replace("\0", "\N{SYMBOL FOR NULL}"),  # PostgreSQL's text type cannot hold NUL
                retry_after_ms=retry_after_ms,
                is_aside=is_quarantined,
            )
        )

    @override
    async def cancel(self, claim: TaskClaim) -> None:
        """A repeat has no effect for an hour, `Fenced` afterwards."""
        await self._database.rows(*call("cancel_task", **_of_claim(claim)))

    @override
    async def retry(self, task_id: int) -> Task:
        return _task((await self._database.rows(*call("retry_task", COLUMNS, task=task_id)))[0])

    @override
    async def list(self, *, stream_number: int | None = None, after: int = 0, limit: int = 1000) -> Sequence[Task]:
        """Without the results, which may be large."""
        rows = await self._database.rows(LIST, after, stream_number, limit, is_read=True)
        return [_task(row) for row in rows]

    @override
    async def uncompacted(self, *, after: PartitionKey, limit: int) -> Sequence[PartitionBacklog]:
        """`compacted` is the start offset if that is larger."""
        rows = await self._database.rows(*call("uncompacted", after=after, limit=limit), is_read=True)
        return [PartitionBacklog._make(row) for row in rows]

    @override
    async def backlog(self) -> Sequence[StreamBacklog]:
        rows = await self._database.rows(*call("stream_backlogs"), is_read=True)
        return [
            StreamBacklog(
                stream_number=number,
                size_bytes=size,
                record_count=record_count,
                partition_count=partition_count,
                age_ms=age_ms,
            )
            for number, size, record_count, partition_count, age_ms in rows
        ]

    @override
    async def commits(self) -> Sequence[StreamCommits]:
        rows = await self._database.rows(
            "select stream_number, commit_count, committed_ms from bearlake.stream_commits order by stream_number",
            is_read=True,
        )
        return [StreamCommits(*row) for row in rows]

    @override
    async def compacted(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        rows = await self._database.rows(COMPACTED, list(partitions), is_read=True)
        return {row[0]: row[1] for row in rows}


def _of_claim(claim: TaskClaim) -> dict[str, object]:
    return {
        "task": claim.task_id,
        "epoch": claim.epoch,
        "node_id": claim.worker.node_id,
        "server_epoch": claim.worker.epoch,
    }


def _claim_columns(claims: Collection[TaskClaim]) -> tuple[list[int], list[int], list[int], list[int]]:
    return (
        [claim.task_id for claim in claims],
        [claim.epoch for claim in claims],
        [claim.worker.node_id for claim in claims],
        [claim.worker.epoch for claim in claims],
    )


def _task(row: asyncpg.Record, results: dict[int, bytes] | None = None) -> Task:
    is_held = row["node_id"] is not None
    return Task(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        state=TaskState(row["state"]),
        stream_number=row["stream_number"],
        ranges=[
            OffsetRange._make(values) for values in zip(row["partitions"], row["starts"], row["ends"], strict=True)
        ],
        inputs=row["inputs"],
        size_bytes=row["size_bytes"],
        record_count=row["record_count"],
        age_ms=row["age_ms"],
        epoch=row["epoch"],
        holder=ServerRef(node_id=row["node_id"], epoch=row["server_epoch"]) if is_held else None,
        attempt_count=row["attempt_count"],
        wait_ms=row["wait_ms"],
        error=row["error"],
        results=results or {},
    )
