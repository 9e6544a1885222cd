"""While the synchronous standby is away, PostgreSQL holds commits back. Giving such a commit up must not publish it.

Promise to clients: an acknowledged or read record survives a fail-over to the synchronous standby.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import asyncpg
import pytest

from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.model import OutcomeKind, StreamSpec
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql_pair import HELD_BACK, SETTINGS, Client, Pair
from fixtures.postgresql_proxy import Proxy

pytestmark = pytest.mark.integration


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
    assert await other.end() == 1  # reads continue, also on new connections and in new processes
    assert await held_back_count(pair) == 1  # repeats leave no further backends waiting
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


async def test_a_commit_that_a_crash_of_the_primary_exposes_is_not_acknowledged_before_the_standby_has_it(
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


async def test_a_process_that_starts_while_the_standby_is_away_reads_and_leaves_few_backends_waiting(
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


async def test_reads_do_not_wait_for_writes_that_hang(pair: Pair, stack: AsyncExitStack) -> None:
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


async def test_an_address_that_briefly_leads_to_a_standby_serves_nothing_stale_and_writes_again(
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


async def test_an_open_store_does_not_take_a_server_that_lacks_the_database_for_an_absent_stream(
    pair: Pair, stack: AsyncExitStack
) -> None:
    proxy = Proxy(pair.url)
    url = await proxy.start()
    stack.push_async_callback(proxy.stop)
    metadata = await open_postgresql(url, SETTINGS)
    stack.push_async_callback(metadata.close)
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    elsewhere = f"{pair.database}_elsewhere"
    await proxy.break_all()
    pair.execute(f"alter database {pair.database} rename to {elsewhere}")
    for _ in range(4):
        with pytest.raises(Unavailable):
            await metadata.streams.get("orders")
    pair.execute(f"alter database {elsewhere} rename to {pair.database}")

    assert await metadata.streams.get("orders") == stream


@pytest.mark.parametrize("attributes", ["any", "primary", "read-write", "prefer-standby"])
async def test_a_url_may_name_the_kind_of_server_that_it_needs(
    pair: Pair, stack: AsyncExitStack, attributes: str
) -> None:
    separator = "&" if "?" in pair.url else "?"
    metadata = await open_postgresql(f"{pair.url}{separator}target_session_attrs={attributes}", SETTINGS)
    stack.push_async_callback(metadata.close)

    assert (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).name == "orders"
