"""While the synchronous standby is away, PostgreSQL holds commits back. Giving such a commit up must not publish it.

A client was promised: what it was told is stored, or what it has read, survives a fail-over to the synchronous standby.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit

import asyncpg
import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectCommitted,
    OutcomeKind,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql import ABSENT, PostgresqlServer, execute, find_program, in_thread
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(
    connections_max=2, lock_timeout_ms=100, statement_timeout_ms=500, acquire_timeout_ms=2_000, poll_interval_ms=5
)
HELD_BACK = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"


class Pair:
    """A primary and its synchronous standby, and a database of them for one test."""

    def __init__(self) -> None:
        self.primary = PostgresqlServer()
        self.primary.start()
        self.standby = PostgresqlServer(copy_of=self.primary)
        self.standby.start()
        self.database = "postgres"
        self.is_spent = False
        """Whether the primary was given up, so that the next test needs a new pair."""
        self.execute("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
        self.wait_for_standby()

    def begin(self) -> None:
        """Both run, and the database is a new one."""
        if self.standby.pid is None:
            self.bring_standby_back()
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"create database {name}")
        self.database = name

    @property
    def url(self) -> str:
        """Of the database, on the server that is the primary now."""
        return self.primary.url(self.database)

    def execute(self, *statements: str) -> list[asyncpg.Record]:
        return list(in_thread(execute(self.primary.url(), *statements)))

    def wait_for_standby(self) -> None:
        while not self.execute("select from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"):
            pass

    def bring_standby_back(self) -> None:
        self.standby.start()
        self.wait_for_standby()

    def fail_over(self) -> None:
        """The primary is lost; the standby, if it is away, comes back as the primary."""
        self.is_spent = True
        self.primary.remove()
        if self.standby.pid is None:
            self.standby.start()
        in_thread(execute(self.standby.url(), "select pg_promote(true, 20)"))
        self.primary = self.standby

    def remove(self) -> None:
        self.primary.remove()
        self.standby.remove()


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    """The pair that the tests use, the last one of all that were made."""
    if find_program("postgres") is None:
        pytest.skip(ABSENT)
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.remove()


@pytest.fixture
def pair(pairs: list[Pair]) -> Pair:
    if not pairs or pairs[-1].is_spent:
        pairs.append(Pair())
    pairs[-1].begin()
    return pairs[-1]


class Client:
    """A process with a store of its own, that appends to one partition."""

    def __init__(self, metadata: Metadata, stream: Stream, server: ServerRef) -> None:
        self.metadata = metadata
        self.stream = stream
        self.server = server

    @classmethod
    async def on(cls, pair: Pair) -> "Client":
        metadata = await open_postgresql(pair.url, SETTINGS)
        stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
        registered = await registering.register(
            metadata.servers, "a", zone=None, endpoints={}, version="", timeout_ms=600_000
        )
        return cls(metadata, stream, registered.server)

    async def elsewhere(self, pair: Pair) -> "Client":
        """Another process, on the server that is the primary now."""
        return Client(await open_postgresql(pair.url, SETTINGS), self.stream, self.server)

    async def append(self, token: str) -> ObjectCommitted:
        batch = BatchCommit(self.stream.partition(0), 0, 10, 1, 0)
        return await self.metadata.log.commit(
            ObjectCommit(token=f"wal/{token}", server=self.server, size=10, batches=[batch])
        )

    async def append_in_the_end(self, token: str) -> ObjectCommitted:
        """Ask until there is an answer."""
        while True:
            with suppress(Unavailable):
                return await self.append(token)

    async def end(self) -> int:
        key = self.stream.partition(0)
        return (await self.metadata.log.bounds([key]))[key].end


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def opened(stack: AsyncExitStack, client: Awaitable[Client]) -> Client:
    made = await client
    stack.push_async_callback(made.metadata.close)
    return made


async def held_back_count(pair: Pair) -> int:
    admin = await asyncpg.connect(pair.url)
    count: int = await admin.fetchval(HELD_BACK)
    await admin.close()
    return count


async def give_up(client: Client, pair: Pair, token: str, how: str) -> None:
    """Append, and give the commit up while the database holds it back."""
    asked = asyncio.ensure_future(client.append(token))
    while not await held_back_count(pair):
        pass
    if how == "cancelled":
        asked.cancel()
    (outcome,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(outcome, Unavailable | asyncio.CancelledError)


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_commit_that_was_given_up_stays_hidden_until_the_standby_has_it(
    how: str, pair: Pair, stack: AsyncExitStack
) -> None:
    client = await opened(stack, Client.on(pair))
    await client.append_in_the_end("0")
    pair.standby.kill()
    await give_up(client, pair, "1", how)
    for _ in range(4):
        with pytest.raises(Unavailable):
            await client.append("1")
        assert await client.end() == 1
    other = await opened(stack, client.elsewhere(pair))
    assert await other.end() == 1  # reads go on, also on new connections and in new processes
    assert await held_back_count(pair) == 1  # repeats do not pile up
    pair.bring_standby_back()
    again = await client.append_in_the_end("1")

    assert again.outcomes[0].kind is OutcomeKind.ACCEPTED
    assert again.outcomes[0].base_offset == 1
    assert await other.end() == 2


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_nothing_that_was_readable_is_lost_when_the_standby_takes_over(
    how: str, pair: Pair, stack: AsyncExitStack
) -> None:
    client = await opened(stack, Client.on(pair))
    await client.append_in_the_end("0")
    pair.standby.kill()
    await give_up(client, pair, "1", how)
    with pytest.raises(Unavailable):
        await client.append("1")
    readable = await client.end()
    await client.metadata.close()
    pair.fail_over()
    after = await opened(stack, client.elsewhere(pair))

    assert await after.end() == readable == 1
    assert (await after.append_in_the_end("1")).outcomes[0].base_offset == 1


async def test_a_commit_that_a_crash_of_the_primary_shows_is_no_answer_before_the_standby_has_it(
    pair: Pair, stack: AsyncExitStack
) -> None:
    client = await opened(stack, Client.on(pair))
    await client.append_in_the_end("0")
    pair.standby.kill()
    await give_up(client, pair, "1", "cancelled")
    pair.primary.restart(crash=True)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await client.append("1")
    pair.bring_standby_back()

    assert (await client.append_in_the_end("1")).outcomes[0].base_offset == 1


async def test_a_process_that_starts_while_the_standby_is_away_reads_and_leaves_few_backends_behind(
    pair: Pair, stack: AsyncExitStack
) -> None:
    first = await opened(stack, Client.on(pair))
    await first.append_in_the_end("0")
    await first.metadata.close()
    pair.standby.kill()
    client = await opened(stack, first.elsewhere(pair))
    for turn in range(4):
        outcomes = await asyncio.gather(*(client.append(f"{turn}/{i}") for i in range(4)), return_exceptions=True)
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        assert await client.end() == 1

    assert await held_back_count(pair) <= SETTINGS.connections_max
    pair.bring_standby_back()
    assert (await client.append_in_the_end("1")).position
    assert await client.end() == 2


async def test_reads_do_not_wait_behind_writes_that_hang(pair: Pair, stack: AsyncExitStack) -> None:
    client = await opened(stack, Client.on(pair))
    pair.standby.kill()
    hanging = [asyncio.ensure_future(client.append(str(i))) for i in range(10)]
    while not await held_back_count(pair):
        pass
    assert await client.end() == 0
    with pytest.raises(NotFound):
        await client.metadata.streams.get("absent")
    outcomes = await asyncio.gather(*hanging, return_exceptions=True)

    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)


async def test_an_address_that_leads_to_a_standby_for_a_moment_serves_nothing_stale_and_writes_again(
    pair: Pair, stack: AsyncExitStack
) -> None:
    proxy = Proxy(pair.url)
    url = await proxy.start()
    stack.push_async_callback(proxy.stop)
    client = await opened(stack, Client.on(pair))
    proxy.target = urlsplit(pair.standby.url(pair.database))
    with pytest.raises(Unavailable):
        await open_postgresql(url, SETTINGS)

    proxy.target = urlsplit(pair.url)
    moved = Client(await open_postgresql(url, SETTINGS), client.stream, client.server)
    stack.push_async_callback(moved.metadata.close)
    proxy.target = urlsplit(pair.standby.url(pair.database))
    await proxy.break_all()
    for turn in range(4):
        with pytest.raises(Unavailable):
            await moved.append(str(turn))
        with pytest.raises(Unavailable):
            await moved.end()
    proxy.target = urlsplit(pair.url)

    assert (await moved.append("back")).outcomes[0].base_offset == 0
    assert await moved.end() == 1


@pytest.mark.parametrize("attributes", ["any", "primary", "read-write", "prefer-standby"])
async def test_a_url_may_say_what_kind_of_server_it_wants(pair: Pair, stack: AsyncExitStack, attributes: str) -> None:
    separator = "&" if "?" in pair.url else "?"
    metadata = await open_postgresql(f"{pair.url}{separator}target_session_attrs={attributes}", SETTINGS)
    stack.push_async_callback(metadata.close)

    assert (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).name == "orders"
