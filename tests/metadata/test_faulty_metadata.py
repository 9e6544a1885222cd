"""The fault-injecting wrapper of the metadata store, and the effect of its faults on commits."""

import asyncio
import contextlib
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import NotFound, Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, Task, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.faulty import READS, FaultyMetadata, FaultyNoun, MetadataFaults
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    OutcomeKind,
    Slice,
    StreamSpec,
)
from bearlake.metadata.open import open_metadata
from bearlake.metadata.transactions import Put, Transaction


@pytest.fixture
async def inner() -> Any:
    store = await open_metadata("memory:///", clock=ManualClock())
    yield store
    await store.close()


def wrapped(inner: Metadata, seed: int = 1, **faults: float) -> FaultyMetadata:
    return FaultyMetadata(inner, MetadataFaults(**faults), random.Random(seed))


WRITES = {
    *("create", "alter", "add_partitions", "terminate", "delete", "register", "heartbeat", "lapse", "drain", "leave"),
    *("commit", "trim", "forbid", "swap", "retain", "maintain", "allocate", "named", "raise_epoch", "share_epoch"),
    *("advance_clock", "expire", "save", "commit_offsets", "delete_offsets", "acquire", "release", "offer", "claim"),
    *("prepare", "fail", "cancel", "retry", "deleted", "set_config", "set_mode", "set", "change", "put", "put_offsets"),
    *("end", "forget", "decoy_key"),
}
"""Methods with an effect: what was given up before one of them has happened by then, or never happens."""


def test_each_method_of_the_store_is_known_as_a_read_or_a_write(inner: Metadata) -> None:
    nouns = [noun for noun in vars(wrapped(inner)).values() if isinstance(noun, FaultyNoun)]
    methods = {
        name
        for noun in nouns
        for name in dir(noun._inner)  # noqa: SLF001 - the store's own noun
        if not name.startswith("_") and inspect.iscoroutinefunction(getattr(noun._inner, name))  # noqa: SLF001
    }

    assert len(nouns) == 16
    assert methods - READS == WRITES


async def test_without_faults_calls_and_errors_pass_through(inner: Metadata) -> None:
    store = wrapped(inner)
    stream = await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert await inner.streams.get("orders") == stream
    assert await store.cluster_id() == await inner.cluster_id()
    with pytest.raises(NotFound):
        await store.streams.get("none")


async def test_an_error_before_the_effect_changes_nothing(inner: Metadata) -> None:
    store = wrapped(inner, error_rate=1.0)
    with pytest.raises(Unavailable):
        await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert await inner.streams.list() == []


@pytest.mark.parametrize("seed", range(8))
async def test_a_change_that_comes_late_was_decided_before(inner: Metadata, seed: int) -> None:
    """By then, another server has changed the row."""
    row = await inner.transactions.put(Transaction(transactional_id="t", producer_id=7, epoch=0), 0)
    store = wrapped(inner, seed, late_rate=1.0)
    seen: list[Transaction | None] = []

    def next_epoch(held: Transaction | None) -> Put:
        seen.append(held)
        assert held is not None
        return Put(replace(held, epoch=held.epoch + 1))

    with pytest.raises(Unavailable):
        await store.transactions.change("t", next_epoch)
    newer = await inner.transactions.put(replace(row, timeout_ms=1), row.version)
    store.misbehave(MetadataFaults())
    await store.transactions.forget("nobody", 1)  # a write: the late effect comes now or never

    assert seen == [row]
    assert await inner.transactions.get("t") == newer


async def test_a_lost_reply_has_had_its_effect(inner: Metadata) -> None:
    store = wrapped(inner, lost_reply_rate=1.0)
    with pytest.raises(Unavailable):
        await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert len(await inner.streams.list()) == 1


@pytest.mark.parametrize("seed", range(8))
async def test_a_write_that_was_given_up_happens_before_the_next_write_or_never(inner: Metadata, seed: int) -> None:
    store = wrapped(inner, seed, late_rate=1.0)
    with pytest.raises(Unavailable):
        await store.streams.create(StreamSpec(name="given-up", partition_count=1))
    store.misbehave(MetadataFaults())
    assert len(await store.streams.list()) in (0, 1)
    await store.streams.create(StreamSpec(name="next", partition_count=1))
    listed = await inner.streams.list()
    for _ in range(20):
        await store.streams.list()
        await store.producers.allocate(1)

    assert await inner.streams.list() == listed
    assert listed[-1].name == "next"


async def test_a_write_that_was_given_up_may_happen_or_not(inner: Metadata) -> None:
    store = wrapped(inner, late_rate=1.0)
    for number in range(30):
        with pytest.raises(Unavailable):
            await store.streams.create(StreamSpec(name=f"s{number}", partition_count=1))

    assert 0 < len(await inner.streams.list()) < 29


async def test_faults_can_end(inner: Metadata) -> None:
    store = wrapped(inner, error_rate=1.0)
    store.misbehave(MetadataFaults())

    assert await store.streams.list() == []


async def test_a_seed_replays_exactly(inner: Metadata) -> None:
    async def run(seed: int) -> list[bool]:
        store = wrapped(inner, seed, error_rate=0.3, lost_reply_rate=0.3)
        results = [await asyncio.gather(store.streams.list(), return_exceptions=True) for _ in range(50)]
        return [isinstance(result[0], Unavailable) for result in results]

    assert await run(5) == await run(5)
    assert await run(5) != await run(6)


@pytest.mark.parametrize("seed", range(5))
async def test_commits_that_are_repeated_until_answered_happen_once(inner: Metadata, seed: int) -> None:
    store = wrapped(inner, seed, delay_ms_max=0.3, error_rate=0.2, lost_reply_rate=0.3)
    stream = await inner.streams.create(StreamSpec(name="orders", partition_count=1))
    server = (
        await registering.register(inner.servers, "a", zone=None, endpoints={}, version="1", timeout_ms=1_000)
    ).server

    async def commit(number: int) -> int:
        batch = BatchCommit(stream.partition(0), 0, 10, 1 + number % 3, 0, number, 0, 0)
        while True:
            try:
                commit = ObjectCommit(token=f"wal/{number}", server=server, size=10, batches=[batch])
                committed = await store.log.commit(commit)
            except Unavailable:
                continue
            assert committed.outcomes[0].kind is OutcomeKind.ACCEPTED
            return committed.outcomes[0].base_offset

    await commit(0)
    bases = [0, *await asyncio.gather(*(commit(3 * number) for number in range(1, 30)))]

    assert sorted(bases) == list(range(30))
    assert (await inner.log.bounds([stream.partition(0)]))[stream.partition(0)].end == 30


@pytest.mark.parametrize("seed", range(5))
async def test_tasks_that_are_repeated_until_answered_are_done_once(inner: Metadata, seed: int) -> None:
    """Planner and worker retry when they get no reply: every task is offered, done and swapped once."""
    store = wrapped(inner, seed, error_rate=0.2, lost_reply_rate=0.3)
    key = (await inner.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    server = (
        await registering.register(inner.servers, "a", zone=None, endpoints={}, version="1", timeout_ms=1_000)
    ).server
    for number in range(10):
        batch = BatchCommit(key, 0, 10, 5, 0)
        await inner.log.commit(ObjectCommit(token=f"wal/{number}", server=server, size=10, batches=[batch]))
    lease = await inner.leases.acquire("compaction/planner", server)
    head = await inner.log.head()

    async def answered(call: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            with contextlib.suppress(Unavailable):
                return await call()

    async def compact(start: int) -> None:
        ranges = [OffsetRange(key, start, start + 10)]
        offer = TaskOffer(
            kind=TaskKind.COMPACT, stream_number=key >> 20, ranges=ranges, size_bytes=20, record_count=10, age_ms=0
        )
        await answered(lambda: store.tasks.offer([offer], lease))
        tasks: list[Task] = []
        while not tasks:
            try:
                tasks = await store.tasks.claim(server, limit=1, bytes_max=1_000)
            except Unavailable:  # no caller knows the result of a lost reply: undo it
                mine = [task for task in await answered(lambda: store.tasks.list()) if task.holder == server]
                claims = [TaskClaim(task_id=task.id, epoch=task.epoch, worker=server) for task in mine]
                await answered(lambda: store.tasks.release(claims))  # noqa: B023 (called at once)
        (task,) = tasks
        claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=server)
        await answered(lambda: store.tasks.prepare(claim, b"result", [f"data/{start}"]))
        segment = Slice(key, start, 10, 0, 20, 0)
        file = SwapObject(object=ObjectRef(f"data/{start}", 9, ObjectKind.PARQUET), slices=[segment])
        await answered(lambda: store.log.swap(Swap(claim=claim, objects=[file])))

    for start in range(0, 50, 10):
        await compact(start)

    assert await inner.log.head() == head + 5
    assert await inner.tasks.compacted([key]) == {key: 50}
    assert await inner.tasks.list() == []
    located = await inner.log.slices([OffsetRange(key, 0, 50)])
    assert [located_slice.object_key for located_slice in located] == [f"data/{start}" for start in range(0, 50, 10)]
