"""I12: a write that was given up cannot happen later.

A client gives up a statement while a proxy holds it, or while its backend is paused (SIGSTOP). Other writes of the client succeed. Then
the database gets the old statement.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg
import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import (
    BatchCommit,
    CommittedOffset,
    GroupSnapshot,
    Lease,
    ObjectCommit,
    OutcomeKind,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql import PostgresqlServer
from fixtures.postgresql_metadata import Opening, outcome_of, until
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=1, lock_timeout_ms=100, poll_interval_ms=5)
EVERY_CHANGE = 2 + 4 + 8 + 16 + 32
"""Before insert, delete, update and truncate, as encoded in pg_trigger.tgtype."""
UNGUARDED = {"session": 0, "migration": 0, "log": EVERY_CHANGE - 4}
"""Unguarded: the table of sessions, the table that migrations lock, and insertions into the log (an insertion first changes log_head)."""


class Given(NamedTuple):
    """A store with a stream, a server, and a group's lease."""

    metadata: Metadata
    stream: Stream
    server: ServerRef
    lease: Lease

    @classmethod
    async def on(cls, metadata: Metadata) -> "Given":
        stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
        registered = await registering.register(
            metadata.servers, "a", zone=None, endpoints={}, version="1", timeout_ms=600_000
        )
        lease = await metadata.leases.acquire("group/g", registered.server)
        return cls(metadata, stream, registered.server, lease)

    async def commit_offset(self, offset: int) -> None:
        offsets = {self.stream.partition(0): CommittedOffset(offset=offset)}
        await self.metadata.groups.commit_offsets("g", offsets, self.lease)

    async def offset(self) -> int:
        return (await self.metadata.groups.offsets("g"))[self.stream.partition(0)].offset

    async def save(self, state: bytes) -> None:
        await self.metadata.groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=state), self.lease)

    async def state(self) -> bytes:
        found = await self.metadata.groups.load("g")
        return b"" if found is None else found.state

    async def alter(self, value: str) -> None:
        await self.metadata.streams.alter(
            self.stream.number, set_configs={"a": value}, unset_configs=(), version=self.stream.version
        )

    async def configs(self) -> Any:
        return (await self.metadata.streams.get("orders")).configs

    async def names(self) -> list[str]:
        return [stream.name for stream in await self.metadata.streams.list()]

    async def append(self, token: str, expected: int) -> OutcomeKind:
        batch = BatchCommit(self.stream.partition(0), 0, 10, 1, 0, expected_offset=expected)
        committed = await self.metadata.log.commit(
            ObjectCommit(token=token, server=self.server, size=10, batches=[batch])
        )
        return committed.outcomes[0].kind

    async def end(self) -> int:
        key = self.stream.partition(0)
        return (await self.metadata.log.bounds([key]))[key].end


Step = Callable[[Given], Awaitable[object]]


class Case(NamedTuple):
    """Give up `first`, then execute `second`; `read` must show no effect of `first`, however late it arrives."""

    warm: Step
    """The statement of `first` with a harmless effect, so that the connection has prepared it."""
    first: Step
    second: Step
    read: Step


CASES = {
    "offsets": Case(
        lambda g: g.commit_offset(5), lambda g: g.commit_offset(10), lambda g: g.commit_offset(20), lambda g: g.offset()
    ),
    "snapshot": Case(lambda g: g.save(b"0"), lambda g: g.save(b"old"), lambda g: g.save(b"new"), lambda g: g.state()),
    "group": Case(
        lambda g: g.metadata.groups.delete("g", g.lease),
        lambda g: g.metadata.groups.delete("g", g.lease),
        lambda g: g.commit_offset(20),
        lambda g: g.metadata.groups.offsets("g"),
    ),
    "delete": Case(
        lambda g: g.metadata.streams.delete(99),
        lambda g: g.metadata.streams.delete(g.stream.number),
        lambda g: g.alter("new"),
        lambda g: g.names(),
    ),
    "alter": Case(
        lambda g: g.metadata.streams.alter(99, set_configs={}, unset_configs=(), version=1),
        lambda g: g.alter("old"),
        lambda g: g.commit_offset(20),
        lambda g: g.configs(),
    ),
    "expected": Case(  # the first statement expects the end offset that the second one creates
        lambda g: g.append("wal/0", 7),
        lambda g: g.append("wal/1", 1),
        lambda g: g.append("wal/2", 0),
        lambda g: g.end(),
    ),
    "create": Case(
        lambda g: g.metadata.streams.create(StreamSpec(name="orders", partition_count=1)),
        lambda g: g.metadata.streams.create(StreamSpec(name="bills", partition_count=1)),
        lambda g: g.commit_offset(20),
        lambda g: g.names(),
    ),
}


class Detained(Proxy):
    """A proxy that can hold the bytes of clients, and the end of their connections, until `deliver` is set."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.keeps_next_question = False
        """Hold the next execution of a statement, and all later bytes of its connection, until `deliver` is set. The proxy resets this to
        False when it holds an execution."""
        self.kept = asyncio.Event()
        self.deliver = asyncio.Event()
        self.delivered = asyncio.Event()

    async def _ask(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        is_kept = False
        try:
            while block := await reader.read(1 << 16):
                if self.keeps_next_question and block.startswith(b"B"):  # Bind, followed by Execute
                    self.keeps_next_question, is_kept = False, True
                    self.kept.set()
                if is_kept:
                    await self.deliver.wait()
                server.write(block)
                await server.drain()
        except ConnectionError:
            return
        finally:
            if is_kept:
                server.write_eof()
                await self.delivered.wait()
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            while block := await reader.read(1 << 16):
                client.write(block)
        except ConnectionError:
            return
        finally:
            if self.deliver.is_set():
                self.delivered.set()  # the database has read all bytes and closed the connection
            client.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_statement_that_the_network_delivers_late_has_no_effect(
    case: Case, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    proxy = Detained(postgresql_url)
    given = await Given.on(await opened(await proxy.start()))
    await outcome_of(case.warm(given))
    proxy.keeps_next_question = True
    given_up = asyncio.ensure_future(outcome_of(case.first(given)))
    await proxy.kept.wait()
    given_up.cancel()
    await asyncio.wait([given_up])
    await case.second(given)
    before = await case.read(given)
    proxy.deliver.set()
    await proxy.delivered.wait()

    assert await case.read(given) == before
    await given.metadata.close()
    await proxy.stop()


async def test_a_statement_that_a_paused_backend_finds_when_it_continues_has_no_effect(
    postgresql_server: PostgresqlServer, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    metadata = await opened(postgresql_url, replace(SETTINGS, statement_timeout_ms=100))
    given = await Given.on(metadata)
    await given.commit_offset(5)  # so that the statement is prepared on the connection
    pid = await admin.fetchval("select pid from bearlake.session")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable):
            await given.commit_offset(10)
        await given.commit_offset(20)
        assert await given.offset() == 20
    finally:
        os.kill(pid, signal.SIGCONT)
    await until(admin, f"select not exists (select from pg_stat_activity where pid = {pid})")

    assert await given.offset() == 20


@asynccontextmanager
async def stuck_append(given: Given, admin: asyncpg.Connection) -> AsyncIterator[None]:
    """An append that was given up in the middle of its transaction, and stays there inside this block."""
    async with admin.transaction():
        await admin.execute("select from bearlake.log_head for update")
        given_up = asyncio.ensure_future(outcome_of(given.append("wal/1", 0)))
        await until(admin, "select count(*) from pg_locks where not granted")
        given_up.cancel()
        await asyncio.wait([given_up])
        yield


async def test_writes_wait_for_an_unfinished_transaction_and_reads_do_not(
    postgresql_server: PostgresqlServer, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    given = await Given.on(await opened(postgresql_url))
    pid = await admin.fetchval("select pid from bearlake.session")
    try:
        async with stuck_append(given, admin):
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(Unavailable, match="55P03"):
                await given.commit_offset(20)
            assert await given.end() == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    while isinstance(await outcome_of(given.commit_offset(20)), Unavailable):
        pass
    end = await given.end()
    await until(admin, f"select not exists (select from pg_stat_activity where pid = {pid})")

    assert await given.end() == end  # the outcome was final before another write began
    assert await given.offset() == 20


async def test_a_backend_that_waits_for_a_lock_is_ended(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    metadata = await opened(postgresql_url)
    given = await Given.on(metadata)
    async with stuck_append(given, admin):
        await given.commit_offset(20)

    assert await given.end() == 0
    assert await given.append("wal/1", 0) is OutcomeKind.ACCEPTED


async def test_an_answered_write_keeps_its_session(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    metadata = await opened(postgresql_url)
    given = await Given.on(metadata)
    before = await admin.fetch("select id from bearlake.session")
    with pytest.raises(NotFound):
        await metadata.streams.delete(99)
    await given.commit_offset(1)

    assert await admin.fetch("select id from bearlake.session") == before


async def test_a_live_process_continues_after_its_sessions_were_deleted(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    metadata = await opened(postgresql_url, replace(SETTINGS, connections_max=4))
    given = await Given.on(metadata)
    await asyncio.gather(*(given.commit_offset(1) for _ in range(4)))
    await admin.execute("delete from bearlake.session")
    await given.commit_offset(2)
    await asyncio.gather(*(given.save(b"s") for _ in range(4)))

    assert await given.offset() == 2


async def test_a_new_session_deletes_the_sessions_of_ended_backends(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    crashed, living, other = [await opened(postgresql_url) for _ in range(3)]
    of_crashed, of_living = [await store._database.value("select pg_backend_pid()") for store in (crashed, living)]
    await crashed.close()
    await until(admin, f"select not exists (select from pg_stat_activity where pid = {of_crashed})")
    of_other = await other._database.value("select pg_backend_pid()")

    assert {row[0] for row in await admin.fetch("select pid from bearlake.session")} == {of_living, of_other}


async def test_every_table_is_guarded(postgresql_url: str, opened: Opening, admin: asyncpg.Connection) -> None:
    store = await opened(postgresql_url)
    await store.close()
    tables = await admin.fetch(
        "select c.relname, coalesce(t.tgtype, 0), array(select a.attname::text from pg_attribute a where a.attrelid = c.oid"
        "   and a.attnum > 0 and not a.attisdropped and t.tgattr::text <> '' and a.attnum <> all (t.tgattr)) as free"
        " from pg_class c left join pg_trigger t on t.tgrelid = c.oid and t.tgname = 'fence' and t.tgenabled = 'O'"
        " where c.relnamespace = 'bearlake'::regnamespace and c.relkind in ('r', 'p')"
    )

    assert len(tables) > 20
    assert {name: events for name, events, _ in tables if events != EVERY_CHANGE} == UNGUARDED
    assert {name: set(free) for name, _, free in tables if free} == {"partition_group": {"ends", "sizes"}}
