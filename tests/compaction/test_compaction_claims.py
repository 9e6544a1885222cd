# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""A worker's claims while the store does not answer: the worker releases no task that it is closing at the same time."""

import asyncio
from collections.abc import Awaitable, Callable

from bearlake.compaction.worker import Worker
from bearlake.metadata.compaction import OffsetRange, Task, TaskClaim, TaskKind, TaskOffer
from fixtures.virtual_lake import Lake
from simulator.loop import virtual_time


async def claimed(lake: Lake) -> tuple[Worker, Task, TaskClaim]:
    """A worker that holds the only task, and whose next claim got no answer."""
    stream = await lake.stream()
    await lake.produce(stream, lake.batch(b"1"))
    lease = await lake.metadata.leases.acquire("compaction/planner", lake.server)
    offer = TaskOffer(
        kind=TaskKind.COMPACT,
        stream_number=stream.number,
        ranges=[OffsetRange(stream.partition(0), 0, 1)],
        size_bytes=1,
        record_count=1,
        age_ms=0,
    )
    await lake.metadata.tasks.offer([offer], lease)
    worker = (await lake.compactor()).worker
    tasks = await lake.metadata.tasks.claim(worker._server, limit=1, bytes_max=1 << 30)
    claims = worker._claims.take(tasks)
    worker._claims.record_unanswered()
    return worker, tasks[0], claims[tasks[0].id]


async def fail_when(lake: Lake, claim: TaskClaim, go: asyncio.Event) -> None:
    """`TaskQueue.fail`, whose request stays in flight until `go` is set."""
    await go.wait()
    await lake.metadata.tasks.fail(claim, "it broke", retry_after_ms=60_000, is_quarantined=False)


def in_virtual_time(body: Callable[[Lake], Awaitable[None]]) -> None:
    @virtual_time
    async def run() -> None:
        lake = await Lake.open()
        await body(lake)
        await lake.metadata.close()

    run()


def test_a_task_is_not_released_while_its_failure_is_being_counted() -> None:
    async def body(lake: Lake) -> None:
        worker, _, claim = await claimed(lake)
        go = asyncio.Event()
        ending = asyncio.create_task(worker._end_claim(claim, fail_when(lake, claim, go)))
        await asyncio.sleep(0)

        await worker._claims.release_due()
        assert await lake.metadata.tasks.claim(lake.server, limit=1, bytes_max=1 << 30) == []
        go.set()
        assert await ending
        (task,) = await lake.metadata.tasks.list()
        assert task.attempt_count == 1

    in_virtual_time(body)


def test_a_failure_whose_answer_arrives_during_the_check_keeps_its_retry_delay() -> None:
    async def body(lake: Lake) -> None:
        worker, _, claim = await claimed(lake)
        go = asyncio.Event()
        ending = asyncio.create_task(worker._end_claim(claim, fail_when(lake, claim, go)))
        inner = worker._claims._tasks.list

        async def slow(**options: int) -> object:
            page = await inner(**options)
            go.set()
            await ending
            return page

        worker._claims._tasks.list = slow
        await worker._claims.release_due()
        worker._claims._tasks.list = inner

        assert await lake.metadata.tasks.claim(lake.server, limit=1, bytes_max=1 << 30) == []
        (task,) = await lake.metadata.tasks.list()
        assert task.attempt_count == 1

    in_virtual_time(body)


def test_a_task_that_waits_for_its_release_keeps_its_retry_delay() -> None:
    async def body(lake: Lake) -> None:
        worker, _, claim = await claimed(lake)
        worker._claims.release_later([claim], wait_ms=60_000)

        await worker._claims.release_due()

        assert await lake.metadata.tasks.claim(lake.server, limit=1, bytes_max=1 << 30) == []

    in_virtual_time(body)


def test_the_end_of_an_old_claim_does_not_affect_a_newer_claim_of_the_task() -> None:
    async def body(lake: Lake) -> None:
        worker, task, claim = await claimed(lake)
        newer = TaskClaim(task_id=task.id, epoch=task.epoch + 1, worker=claim.worker)
        worker._claims._held[task.id] = newer

        worker._claims.done(claim)

        assert worker.held_count == 1

    in_virtual_time(body)
