"""A crash of the primary may show the end of a transaction that the synchronous standby does not have: it is not acknowledged yet.

Promise to clients: an acknowledged commit survives a fail-over to the synchronous standby.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TypeVar

import pytest

from bearlake.errors import Unavailable
from bearlake.streams.transactions import TransactionService, TransactionSettings
from fixtures.postgresql_pair import HELD_BACK, Client, Pair

pytestmark = pytest.mark.integration

T = TypeVar("T")


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def in_the_end(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until it is answered."""
    while True:
        with suppress(Unavailable):
            return await ask()


async def test_an_end_that_a_crash_of_the_primary_exposes_is_not_acknowledged_before_the_standby_has_it(
    pair: Pair, stack: AsyncExitStack
) -> None:
    client = await Client.on(pair)
    stack.push_async_callback(client.metadata.close)
    transactions = TransactionService(client.metadata, TransactionSettings())
    producer_id, epoch = who = await in_the_end(partial(transactions.initialize, "copier", 60_000))
    await in_the_end(partial(transactions.add, "copier", who, group="g"))
    end = partial(transactions.end, "copier", who, is_commit=True, bumps=True)
    pair.standby.kill()
    ended = asyncio.ensure_future(end())
    while not (await asyncio.to_thread(pair.execute, HELD_BACK))[0][0]:
        if ended.done():  # it was too slow to come to its commit
            ended = asyncio.ensure_future(end())
    (outcome,) = await asyncio.gather(ended, return_exceptions=True)
    pair.primary.restart(crash=True)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await end()
    pair.bring_standby_back()

    assert isinstance(outcome, Unavailable)
    assert await in_the_end(end) == (producer_id, epoch + 1)
