"""Sessions of a process: begun before a connection's first write, ended together, never by ending a backend."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from bearlake.errors import Invalid, Unavailable
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.sessions import Sessions
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql import PostgresqlServer
from fixtures.postgresql_metadata import Opening, until
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=2, poll_interval_ms=5)
CANCEL_REQUEST = (80_877_102).to_bytes(4, "big")


class Closable:
    """A connection as `Sessions` knows one."""

    session = 0
    is_gone = False

    def is_closed(self) -> bool:
        return self.is_gone


class Store:
    """Ends sessions on demand, and counts the requests."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.outcomes: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def end(self, sessions: Sequence[int]) -> None:
        self.asked.append(list(sessions))
        if (outcome := await self.outcomes.get()) is not None:
            raise outcome


async def begun(sessions: Sessions) -> Any:
    connection: Any = Closable()

    async def begin(_: int) -> None:
        return None

    await sessions.begin(connection, begin)
    return connection


async def run_pending() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_all_writers_share_one_attempt_and_its_outcome() -> None:
    store = Store()
    sessions = Sessions(store.end)
    (await begun(sessions)).is_gone = True
    writers = [asyncio.ensure_future(sessions.end_lost()) for _ in range(12)]
    await run_pending()
    store.outcomes.put_nowait(TimeoutError())
    outcomes = await asyncio.gather(*writers, return_exceptions=True)

    assert len(store.asked) == 1
    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 12
    assert sessions.lost()

    store.outcomes.put_nowait(None)
    await asyncio.gather(*(sessions.end_lost() for _ in range(3)))
    assert len(store.asked) == 2
    assert not sessions.lost()


async def test_a_writer_that_is_cancelled_does_not_end_the_attempt_of_the_others() -> None:
    store = Store()
    sessions = Sessions(store.end)
    (await begun(sessions)).is_gone = True
    first, second = [asyncio.ensure_future(sessions.end_lost()) for _ in range(2)]
    await run_pending()
    first.cancel()
    await run_pending()
    store.outcomes.put_nowait(None)
    await second

    assert first.cancelled()
    assert len(store.asked) == 1


async def test_a_session_that_is_lost_during_an_attempt_is_ended_by_another_one() -> None:
    store = Store()
    sessions = Sessions(store.end)
    first, second = [await begun(sessions) for _ in range(2)]
    first.is_gone = True
    writer = asyncio.ensure_future(sessions.end_lost())
    await run_pending()
    second.is_gone = True
    store.outcomes.put_nowait(None)
    store.outcomes.put_nowait(None)
    await writer

    assert store.asked == [[first.session], [second.session]]


async def test_a_beginning_without_an_answer_is_ended_and_a_refused_one_needs_no_end() -> None:
    sessions = Sessions(Store().end)
    unanswered: Any = Closable()
    refused: Any = Closable()

    async def fail(error: Exception) -> None:
        raise error

    with pytest.raises(TimeoutError):
        await sessions.begin(unanswered, lambda _: fail(TimeoutError()))
    with pytest.raises(asyncpg.PostgresError):
        await sessions.begin(refused, lambda _: fail(asyncpg.UniqueViolationError("no")))
    unanswered.is_gone = refused.is_gone = True

    assert len(sessions.lost()) == 1
    assert unanswered.session == refused.session == 0


async def test_an_attempt_ends_when_the_store_is_closed() -> None:
    store = Store()
    sessions = Sessions(store.end)
    (await begun(sessions)).is_gone = True
    writer = asyncio.ensure_future(sessions.end_lost())
    await run_pending()
    await sessions.close()

    with pytest.raises(Unavailable, match="closed"):
        await writer


class Wire(Proxy):
    """A proxy that counts the requests to cancel a statement."""

    cancel_count = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)  # so that `stop` waits for it
        await super()._serve(reader, writer)

    async def _ask(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        try:
            while block := await reader.read(1 << 16):
                self.cancel_count += len(block) == 16 and block[4:8] == CANCEL_REQUEST
                server.write(block)
                await server.drain()
        except ConnectionError:
            return
        finally:
            server.close()


@pytest.mark.parametrize("how", ["timeout", "cancelled", "closed", "closed connection", "timeout of a script"])
async def test_no_statement_asks_the_database_to_cancel(
    how: str, postgresql_server: PostgresqlServer, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    wire = Wire(postgresql_url)
    store = await opened(await wire.start(), replace(SETTINGS, statement_timeout_ms=1_000, lock_timeout_ms=1_000))
    await store.streams.create(StreamSpec(name="orders", partition_count=1))
    apart = await store._database.connect(1_000)
    of_pool = await admin.fetchval("select pid from bearlake.session")
    of_apart = await apart.value("select pg_backend_pid()")
    is_apart = how in ("closed connection", "timeout of a script")
    pid = of_apart if is_apart else of_pool
    os.kill(pid, signal.SIGSTOP)  # so that only the client's own timer can end the wait
    try:
        asked = asyncio.ensure_future(apart.execute("select 1") if is_apart else store.streams.delete(1))
        await run_pending()
        if how == "cancelled":
            asked.cancel()
        elif how == "closed":
            store._database._writers.terminate()  # type: ignore[union-attr]
        elif how == "closed connection":
            await apart.close()
        await asyncio.wait([asked])
        await apart.close()
    finally:
        os.kill(pid, signal.SIGCONT)
    await until(admin, f"select not exists (select from pg_stat_activity where pid = {pid})")
    await store.close()
    await wire.stop()

    assert wire.cancel_count == 0


async def test_a_statement_that_was_given_up_and_waits_for_a_lock_ends_by_itself(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    patient = replace(SETTINGS, client_check_interval_ms=10, lock_timeout_ms=40_000, statement_timeout_ms=40_000)
    store = await opened(postgresql_url, patient)
    stream = await store.streams.create(StreamSpec(name="orders", partition_count=1))
    async with admin.transaction():
        await admin.execute("lock table bearlake.log_head")
        asked = asyncio.ensure_future(store.streams.delete(stream.number))
        await until(admin, "select count(*) from pg_locks where not granted")
        asked.cancel()
        await asyncio.wait([asked])
        async with asyncio.timeout(30):  # less than the limits of the statement
            await store.producers.allocate(1)

    assert [found.name for found in await store.streams.list()] == ["orders"]


async def test_a_session_that_ends_leaves_its_backend_alone(
    postgresql_server: PostgresqlServer, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    store = await opened(postgresql_url)
    await store.producers.allocate(1)
    ended = await admin.fetchrow("select id, pid from bearlake.session")
    await admin.execute("select bearlake.end_sessions($1)", [ended["id"]])

    assert await admin.fetchval("select count(*) from pg_stat_activity where pid = $1", ended["pid"]) == 1
    assert await store.producers.allocate(1)  # the process continues with another session


async def test_a_session_forgets_those_of_earlier_clients_of_its_backend(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    await opened(postgresql_url)
    for session in (-1, -2):  # as a pooler gives one backend to two clients in turn
        await admin.execute("select bearlake.begin_session($1::bigint)", session)

    assert [row["id"] for row in await admin.fetch("select id from bearlake.session where pid = pg_backend_pid()")] == [
        -2
    ]


async def test_a_session_that_is_being_begun_is_awaited_and_does_not_outlive_its_end(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    await opened(postgresql_url)
    beginner = await asyncpg.connect(postgresql_url)
    transaction = beginner.transaction()
    await transaction.start()
    await beginner.execute("select bearlake.begin_session($1::bigint)", -7)
    await admin.execute("set lock_timeout = 50")
    with pytest.raises(asyncpg.LockNotAvailableError):
        await admin.execute("select bearlake.end_sessions($1)", [-7])
    await transaction.commit()
    await admin.execute("select bearlake.end_sessions($1)", [-7])

    assert await admin.fetchval("select count(*) from bearlake.session where id = -7") == 0
    with pytest.raises(asyncpg.PostgresError) as raised:
        await beginner.execute("update bearlake.log_head set position = position")
    assert raised.value.sqlstate == "BL010"
    await beginner.close()


async def test_reads_continue_and_stores_open_while_nothing_can_be_written(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    first = await opened(postgresql_url)
    await first.streams.create(StreamSpec(name="orders", partition_count=1))
    database = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {database} set default_transaction_read_only = on")
    store = await opened(postgresql_url)

    assert [stream.name for stream in await store.streams.list()] == ["orders"]
    assert await store.cluster_id() == await first.cluster_id()
    with pytest.raises(Unavailable, match="25006"):
        await store.producers.allocate(1)
    assert [stream.name for stream in await store.streams.list()] == ["orders"]


async def test_the_database_refuses_writes_of_connections_that_read(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    store = await opened(postgresql_url)
    with pytest.raises(Unavailable, match="25006"):
        await store._database.rows("update bearlake.log_head set position = position", is_read=True)

    assert await admin.fetchval("select count(*) from bearlake.session") <= 1


@pytest.mark.parametrize("level", ["off", "local", "remote_write"])
async def test_a_level_of_commit_that_a_fail_over_would_lose_is_refused(
    level: str, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    with pytest.raises(Invalid, match="synchronous_commit"):
        await opened(f"{postgresql_url}?synchronous_commit={level}")
    store = await opened(postgresql_url)
    database = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {database} set synchronous_commit = {level}")
    store._database._writers.expire()  # type: ignore[union-attr]
    with pytest.raises(Unavailable, match=f"synchronous_commit is {level}"):
        await store.producers.allocate(1)


async def test_a_session_keeps_the_level_of_commit_that_it_began_with(
    postgresql_server: PostgresqlServer, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    store = await opened(f"{postgresql_url}", replace(SETTINGS, connections_max=1))
    shown = "select current_setting('synchronous_commit')"
    assert await store._database.value(shown) == "on"
    await admin.execute("alter system set synchronous_commit = off")
    try:
        await admin.execute("select pg_reload_conf()")
        await until(admin, f"select ({shown}) = 'off'")  # the administrator's own connection follows
        assert await store._database.value(shown) == "on"
    finally:
        await admin.execute("alter system reset synchronous_commit")
        await admin.execute("select pg_reload_conf()")


async def test_a_notifier_waits_without_the_lock_timeout(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    await opened(postgresql_url)
    functions = await admin.fetch(
        "select p.proname, p.prosrc from pg_proc p"
        " where p.pronamespace = 'bearlake'::regnamespace and p.prosrc ilike '%pg_notify%'"
    )

    assert functions
    assert not [name for name, source in functions if "set_config('lock_timeout', '0', true), pg_notify(" not in source]
