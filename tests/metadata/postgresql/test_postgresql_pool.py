"""The pool of connections to PostgreSQL: loans, limits, and what is closed. No database is needed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import asyncpg
import pytest

from bearlake.metadata.postgresql.pool import STATEMENTS_MAX, Pool

FAR_S = 3_600.0


class Lent:
    """A connection as `Pool` knows one."""

    def __init__(self) -> None:
        self.statement_count = 0
        self.is_gone = False
        self.is_closed_well = False

    def is_closed(self) -> bool:
        return self.is_gone

    def terminate(self) -> None:
        self.is_gone = True

    async def close(self) -> None:
        self.is_gone = self.is_closed_well = True


class Server:
    """Makes connections, or refuses to."""

    def __init__(self) -> None:
        self.made: list[Lent] = []
        self.refusal: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def connect(self) -> Any:
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal
        self.made.append(Lent())
        return self.made[-1]


def pool_of(server: Server, size_max: int = 2, *, wait_s: float = FAR_S, idle_s: float = FAR_S) -> Pool:
    return Pool(server.connect, size_max, wait_s=wait_s, idle_s=idle_s)


async def run_pending() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def result_at_once(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that must not wait for anything."""
    with pytest.raises(StopIteration) as ended:
        step.send(None)
    return ended.value.value


async def test_an_idle_connection_is_lent_without_a_wait() -> None:
    server = Server()
    pool = pool_of(server)
    await pool.open()
    first = result_at_once(pool.take())
    second = await pool.take()
    pool.give_back(first)
    pool.give_back(second)

    assert result_at_once(pool.take()) is second, "the connection that was used last"
    assert server.made == [first, second]


async def test_a_caller_waits_for_a_connection_that_is_given_back() -> None:
    pool = pool_of(Server(), 1)
    lent = await pool.take()
    waiting = [asyncio.ensure_future(pool.take()) for _ in range(2)]
    await run_pending()
    assert not any(waiter.done() for waiter in waiting)
    pool.give_back(lent)
    await run_pending()

    assert waiting[0].result() is lent
    pool.give_back(lent)
    assert await waiting[1] is lent


async def test_a_caller_that_is_cancelled_leaves_its_place_to_the_next() -> None:
    pool = pool_of(Server(), 1)
    lent = await pool.take()
    first, second = [asyncio.ensure_future(pool.take()) for _ in range(2)]
    await run_pending()
    pool.give_back(lent)
    first.cancel()

    assert await second is lent


async def test_a_wait_for_a_connection_has_a_time_limit() -> None:
    server = Server()
    pool = pool_of(server, 1, wait_s=0.001)
    lent = await pool.take()
    with pytest.raises(TimeoutError):
        await pool.take()
    pool.give_back(lent)
    pool.expire()
    server.may_answer.clear()
    with pytest.raises(TimeoutError):
        await pool.take()
    server.may_answer.set()

    assert await pool.take() is server.made[-1]


async def test_a_connection_that_cannot_be_made_takes_no_place() -> None:
    server = Server()
    pool = pool_of(server, 1)
    server.refusal = ConnectionRefusedError()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await pool.take()
    with pytest.raises(ConnectionRefusedError):
        await pool.open()
    server.refusal = None

    assert await pool.take() is server.made[0]


@pytest.mark.parametrize("when", ["lent", "idle"])
async def test_a_closed_connection_is_not_lent(when: str) -> None:
    server = Server()
    pool = pool_of(server, 1)
    lent: Any = await pool.take()
    if when == "lent":
        lent.is_gone = True
    pool.give_back(lent)
    lent.is_gone = True

    assert await pool.take() is server.made[1]


async def test_a_connection_that_has_run_many_statements_is_closed() -> None:
    server = Server()
    pool = pool_of(server, 1)
    lent: Any = await pool.take()
    lent.statement_count = STATEMENTS_MAX
    pool.give_back(lent)

    assert lent.is_gone
    assert await pool.take() is server.made[1]


async def test_expired_connections_are_not_lent_again() -> None:
    server = Server()
    pool = pool_of(server)
    lent, idle = [await pool.take() for _ in range(2)]
    pool.give_back(idle)
    pool.expire()

    assert idle.is_closed()
    assert not lent.is_closed(), "its caller still uses it"
    pool.give_back(lent)
    assert lent.is_closed()
    assert await pool.take() is server.made[2]


async def test_connections_that_nobody_needs_are_closed_except_for_the_last() -> None:
    server = Server()
    pool = pool_of(server, 3, idle_s=0)
    lent = [await pool.take() for _ in range(3)]
    for connection in lent:
        pool.give_back(connection)
    await run_pending()

    assert [connection.is_closed() for connection in lent] == [True, True, False]
    assert await pool.take() is lent[2]


async def test_a_pool_closes_when_all_connections_are_given_back() -> None:
    server = Server()
    pool = pool_of(server, 1)
    lent: Any = await pool.take()
    waiting, closing = asyncio.ensure_future(pool.take()), asyncio.ensure_future(pool.close())
    await run_pending()
    assert not closing.done()
    pool.give_back(lent)
    await closing

    with pytest.raises(asyncpg.InterfaceError):
        await waiting
    with pytest.raises(asyncpg.InterfaceError):
        await pool.take()
    assert lent.is_closed_well


async def test_a_connection_made_while_the_pool_closes_is_closed() -> None:
    server = Server()
    pool = pool_of(server, 1)
    server.may_answer.clear()
    waiting = asyncio.ensure_future(pool.take())
    await run_pending()
    closing = asyncio.ensure_future(pool.close())
    await run_pending()
    server.may_answer.set()

    with pytest.raises(asyncpg.InterfaceError):
        await waiting
    await closing
    assert server.made[0].is_gone


async def test_a_close_that_is_given_up_can_be_followed_by_a_cut() -> None:
    server = Server()
    pool = pool_of(server, 2)
    await pool.open()
    lent = await pool.take()
    closing = asyncio.ensure_future(pool.close())
    await run_pending()
    closing.cancel()
    await asyncio.wait([closing])
    pool.terminate()

    assert lent.is_closed()
    pool.give_back(lent)
    with pytest.raises(asyncpg.InterfaceError):
        await pool.take()
    await pool.close()


async def test_two_may_close_a_pool_at_once() -> None:
    pool = pool_of(Server(), 3)
    lent = [await pool.take() for _ in range(3)]
    pool.give_back(lent[0])
    closing = [asyncio.ensure_future(pool.close()) for _ in range(2)]
    for connection in lent[1:]:
        await run_pending()
        pool.give_back(connection)
    await run_pending()

    assert all(close.done() for close in closing)
    assert all(connection.is_closed() for connection in lent)


async def test_a_connection_that_does_not_close_is_cut() -> None:
    pool = pool_of(Server(), 2)
    lent: list[Any] = [await pool.take() for _ in range(2)]
    for connection in lent:
        pool.give_back(connection)
    waits = asyncio.Event()
    lent[1].close = waits.wait
    closing = asyncio.ensure_future(pool.close())
    await run_pending()
    closing.cancel()
    await asyncio.wait([closing])

    assert [connection.is_gone for connection in lent] == [False, True]
    await pool.close()
    assert lent[0].is_closed_well


async def test_a_closed_pool_looks_for_idle_connections_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(Server(), 3)
    lent = [await pool.take() for _ in range(3)]
    closing = asyncio.ensure_future(pool.close())
    await run_pending()
    later: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *given: later.append(given))
    for connection in lent:
        pool.give_back(connection)
    await closing

    assert later == []
