"""The places in which clients' statements run: how many at once, fair between clients, and bounded."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from bearlake.errors import Invalid, Overloaded
from bearlake.protocols.rest.iceberg.sql import SqlPlaces
from bearlake.protocols.rest.iceberg.sql_settings import SqlSettings
from fixtures.waiting import WAIT_S, until


def settings(**changes: int) -> SqlSettings:
    return SqlSettings(**{"wait_ms": int(1000 * WAIT_S), **changes})


class Statement:
    """A statement that runs until it may end."""

    def __init__(self, places: SqlPlaces, client: str) -> None:
        self.is_running = False
        self._may_end = asyncio.Event()
        self.task = asyncio.create_task(self._run(places, client))

    async def _run(self, places: SqlPlaces, client: str) -> None:
        async with places.taken(client):
            self.is_running = True
            await self._may_end.wait()
        self.is_running = False

    async def end(self) -> None:
        self._may_end.set()
        await self.task


async def test_a_client_with_many_statements_leaves_a_place_to_another_one() -> None:
    places = SqlPlaces(settings(concurrent_count_max=2, client_concurrent_count_max=1, client_waiting_count_max=2))
    greedy = [Statement(places, "greedy") for _ in range(3)]
    await until(lambda: greedy[0].is_running)
    modest = Statement(places, "modest")
    await until(lambda: modest.is_running)

    assert [statement.is_running for statement in greedy] == [True, False, False]
    await modest.end()
    for statement in greedy:
        await until(lambda running=statement: running.is_running)
        await statement.end()


async def test_a_statement_gets_the_place_of_one_that_ends() -> None:
    places = SqlPlaces(settings(concurrent_count_max=1))
    first, second = Statement(places, "a"), Statement(places, "b")
    await until(lambda: first.is_running)
    assert not second.is_running
    await first.end()
    await until(lambda: second.is_running)
    await second.end()


async def test_no_more_statements_wait_than_the_settings_allow() -> None:
    places = SqlPlaces(settings(concurrent_count_max=1, waiting_count_max=2, client_waiting_count_max=1))
    running = [Statement(places, name) for name in ("a", "b", "c")]
    await until(lambda: running[0].is_running)
    with pytest.raises(Overloaded, match="too many statements wait"):
        async with places.taken("d"):
            pass
    for name in ("a", "b"):
        with pytest.raises(Overloaded):
            async with places.taken(name):
                pass
    for statement in running:
        await statement.end()


async def test_a_statement_that_waits_for_too_long_is_refused() -> None:
    places = SqlPlaces(settings(concurrent_count_max=1, wait_ms=1))
    async with AsyncExitStack() as closing:
        await closing.enter_async_context(places.taken("a"))
        with pytest.raises(Overloaded, match="within 1 ms"):
            await closing.enter_async_context(places.taken("b"))


async def test_a_statement_that_is_given_up_leaves_its_place() -> None:
    places = SqlPlaces(settings(concurrent_count_max=1))
    first, second = Statement(places, "a"), Statement(places, "b")
    await until(lambda: first.is_running)
    second.task.cancel()
    first.task.cancel()
    await asyncio.gather(first.task, second.task, return_exceptions=True)

    third = Statement(places, "c")
    await until(lambda: third.is_running)
    await third.end()

    assert (first.task.cancelled(), second.task.cancelled()) == (True, True)


def test_limits_are_at_least_one() -> None:
    with pytest.raises(Invalid):
        SqlSettings(concurrent_count_max=0)
