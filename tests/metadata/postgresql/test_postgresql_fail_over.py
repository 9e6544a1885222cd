"""A fail-over at each step of a session's life: the synchronous standby becomes the primary, and the address leads to it.

A client was promised: a write that was answered is there, once. A write that was given up does not appear after the process's next write.
A process that was answered by the new primary reads nothing of the old one. A fail-over costs a process at most one write that it gives up.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, OutcomeKind, StreamSpec
from bearlake.metadata.postgresql.store import PostgresqlMetadata, open_postgresql
from fixtures.postgresql import PostgresqlServer, execute
from fixtures.postgresql_metadata import outcome_of, until
from fixtures.postgresql_pair import HELD_BACK, Pair
from fixtures.postgresql_pair import SETTINGS as QUICK
from fixtures.postgresql_switch import At, Switch
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

SETTINGS = replace(QUICK, statement_timeout_ms=1_000, lock_timeout_ms=200, connections_max=3, read_connections_max=3)
PATIENT = replace(SETTINGS, acquire_timeout_ms=30_000, statement_timeout_ms=30_000, lock_timeout_ms=20_000)
"""For what the test itself asks: on a busy machine, a statement may take seconds."""
PARTITION_COUNT = 5
BACKENDS = "from pg_stat_activity where application_name = 'bearlake'"
OLD_IS_DONE = f"select not exists (select {BACKENDS} and wait_event is distinct from 'SyncRep')"


class Old(Enum):
    """What becomes of the old primary."""

    CRASHED = "crashed"
    ISOLATED = "isolated"
    """It runs on and keeps its connections. Its standby has left it, so it commits nothing."""
    SILENT = "silent"
    """As isolated; and its connections forward nothing until the end of the test."""


class World:
    """A pair of servers, the address of the primary, and a process that writes one batch to each partition."""

    def __init__(self, pair: Pair, switch: Switch) -> None:
        self.pair = pair
        self.switch = switch
        self.process: PostgresqlMetadata

    async def start(self, url: str) -> None:
        """An earlier process has made the stream, and has left its session behind."""
        self.url = url
        earlier = await open_postgresql(self.pair.url, SETTINGS)
        self.stream = await earlier.streams.create(StreamSpec(name="orders", partition_count=PARTITION_COUNT))
        registration = await registering.register(
            earlier.servers, "a", zone=None, endpoints={}, version="", timeout_ms=600_000
        )
        self.server = registration.server
        await earlier.close()
        self.process = await open_postgresql(url, SETTINGS)

    async def write(self, partition: int) -> int:
        """The offset of the partition's batch."""
        batch = BatchCommit(self.stream.partition(partition), 0, 10, 1, 0)
        commit = ObjectCommit(token=f"wal/{partition}", server=self.server, size=10, batches=[batch])
        (outcome,) = (await self.process.log.commit(commit)).outcomes
        assert outcome.kind is OutcomeKind.ACCEPTED
        return outcome.base_offset

    async def ends(self, metadata: PostgresqlMetadata) -> list[int]:
        keys = [self.stream.partition(i) for i in range(PARTITION_COUNT)]
        bounds = await metadata.log.bounds(keys)
        return [bounds[key].end for key in keys]

    async def truth(self) -> list[int]:
        """What a process that starts now reads from the new primary."""
        other = await open_postgresql(self.pair.url, PATIENT)
        try:
            return await self.ends(other)
        finally:
            await other.close()

    async def give_up_a_write(self, partition: int) -> None:
        """Leave a session behind that must end before the process's next write."""
        self.switch.hold("commit_object", At.STATEMENT)
        writing = asyncio.ensure_future(self.write(partition))
        await self.switch.held.wait()
        writing.cancel()
        await asyncio.wait([writing])

    async def fail_over(self, old: Old) -> None:
        if old is Old.CRASHED:
            await asyncio.to_thread(self.pair.fail_over)
        else:
            await asyncio.to_thread(self.pair.take_over)
        self.switch.lead_to(self.pair.url)
        if old is Old.CRASHED:
            self.switch.reset()
        elif old is Old.SILENT:
            self.switch.silence()

    async def deliver_late(self, old: Old) -> None:
        """Deliver to the old primary what was sent to it, and wait until it has handled this."""
        self.switch.deliver()
        if old is not Old.CRASHED:
            assert self.pair.former is not None
            admin = await asyncpg.connect(self.pair.former.url(self.pair.database))
            try:
                async with asyncio.timeout(WAIT_S):
                    await until(admin, OLD_IS_DONE)
            finally:
                await admin.close()


@pytest.fixture
async def world(pair: Pair) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        switch = Switch(pair.url)
        url = await switch.start()
        stack.push_async_callback(switch.stop)
        world = World(pair, switch)
        await world.start(url)
        try:
            yield world
        finally:
            await world.process.close()


Step = Callable[[World], Awaitable["asyncio.Future[int] | None"]]
"""Brings a process to a step; returns the write to partition 0 that is held there, if any."""


def held(statement: str, at: At) -> Step:
    async def step(world: World) -> "asyncio.Future[int]":
        if statement == "end_sessions":
            await world.give_up_a_write(1)
        elif statement == "commit_object":
            await world.write(1)  # the session has begun
        world.switch.hold(statement, at)
        writing = asyncio.ensure_future(world.write(0))
        await world.switch.held.wait()
        return writing

    return step


async def nothing_written(_: World) -> None:
    return None


async def all_connections_used(world: World) -> None:
    await asyncio.gather(*(world.write(i) for i in (1, 2, 4)), *(world.ends(world.process) for _ in range(6)))


async def waiting_for_a_standby_that_lacks_it(world: World) -> "asyncio.Future[int]":
    await world.write(1)
    await asyncio.to_thread(world.pair.cut)
    return await _held_back(world)


async def waiting_for_a_standby_that_has_it(world: World) -> "asyncio.Future[int]":
    await world.process.close()
    world.process = await open_postgresql(f"{world.url}?synchronous_commit=remote_apply", SETTINGS)
    await world.write(1)
    standby = await asyncpg.connect(world.pair.standby.url())
    await standby.execute("select pg_wal_replay_pause()")
    await until(standby, "select pg_get_wal_replay_pause_state() = 'paused'")
    writing = await _held_back(world)
    primary = await asyncpg.connect(world.pair.url)
    await until(primary, "select flush_lsn >= pg_current_wal_flush_lsn() from pg_stat_replication")
    await primary.close()
    await standby.close()
    return writing


async def _held_back(world: World) -> "asyncio.Future[int]":
    writing = asyncio.ensure_future(world.write(0))
    admin = await asyncpg.connect(world.pair.url)
    await until(admin, HELD_BACK)
    await admin.close()
    return writing


STEPS: dict[str, Step] = {
    "before a session begins": nothing_written,
    "with idle connections": all_connections_used,
    "while a session begins": held("begin_session", At.STATEMENT),
    "while a session ends another's": held("begin_session", At.COMMIT),
    "between a session and its answer": held("begin_session", At.ANSWER),
    "between a session and its first write": held("commit_object", At.STATEMENT),
    "between a write and its commit": held("commit_object", At.COMMIT),
    "in a commit that the standby lacks": waiting_for_a_standby_that_lacks_it,
    "in a commit that the standby has": waiting_for_a_standby_that_has_it,
    "between a commit and its answer": held("commit_object", At.ANSWER),
    "before a session is ended": held("end_sessions", At.STATEMENT),
    "while a session is ended": held("end_sessions", At.COMMIT),
    "between the end of a session and its answer": held("end_sessions", At.ANSWER),
}


CASES = [(step, old) for step in STEPS for old in (Old.CRASHED, Old.ISOLATED)] + [
    ("with idle connections", Old.SILENT),
    ("between a write and its commit", Old.SILENT),
    ("between a commit and its answer", Old.SILENT),
    ("while a session is ended", Old.SILENT),
]


@pytest.mark.parametrize(("step", "old"), CASES, ids=[f"{step}, {old.value}" for step, old in CASES])
async def test_a_fail_over_keeps_every_promise(step: str, old: Old, world: World) -> None:
    writing = await STEPS[step](world)
    before = await world.truth()
    await world.fail_over(old)
    outcome = None if writing is None else await outcome_of(writing)
    assert outcome is None or outcome == 0 or isinstance(outcome, Unavailable)
    given_up_count = 0
    while isinstance(written := await outcome_of(world.write(3)), Unavailable):
        given_up_count += 1
        assert given_up_count < 10, written
    after = await world.truth()

    assert written == 0
    assert after[3] == 1
    assert after[0] == 1 or outcome != 0  # what was answered is there
    assert all(new >= old for new, old in zip(after, before, strict=True))
    assert await asyncio.gather(*(world.ends(world.process) for _ in range(6))) == [after] * 6

    await world.deliver_late(old)
    assert await world.truth() == after  # what was given up does not appear
    assert await world.ends(world.process) == after
    assert await world.write(0) == 0
    assert (await world.truth())[0] == 1


async def test_an_address_that_leads_back_to_the_former_primary_serves_nothing(world: World) -> None:
    await world.write(0)
    await world.fail_over(Old.ISOLATED)
    assert world.pair.former is not None
    while isinstance(await outcome_of(world.write(1)), Unavailable):
        pass
    world.switch.lead_to(world.pair.former.url(world.pair.database))
    world.switch.reset()
    for _ in range(4):
        with pytest.raises(Unavailable, match="former primary"):
            await world.ends(world.process)
        with pytest.raises(Unavailable, match="former primary"):
            await world.write(2)
    world.switch.lead_to(world.pair.url)

    assert await world.write(2) == 0
    assert await world.ends(world.process) == await world.truth() == [1, 1, 1, 0, 0]


async def test_a_process_follows_its_store_to_another_system_whose_timeline_is_earlier(world: World) -> None:
    await world.write(0)
    await world.fail_over(Old.CRASHED)
    assert await world.ends(world.process) == [1, 0, 0, 0, 0]  # of a timeline after the first
    moved = PostgresqlServer()
    try:
        moved.start()
        database = world.pair.database
        await execute(moved.url(), f"create database {database}")
        await (await open_postgresql(moved.url(database), SETTINGS)).close()
        world.switch.lead_to(moved.url(database))
        world.switch.reset()

        assert await world.process.streams.list() == []
        await world.process.streams.create(StreamSpec(name="bills", partition_count=1))
        assert [stream.name for stream in await world.process.streams.list()] == ["bills"]
        await world.process.close()
    finally:
        moved.remove()
