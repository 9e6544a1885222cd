"""However a query ends, its engine has ended when the caller hears of it: no connection waits for the garbage collector."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bearlake.errors import Invalid, Unavailable
from bearlake.metadata.model import Stream
from bearlake.table import query_session
from bearlake.table.iceberg import IcebergTables
from bearlake.table.query import LiveTable, query
from bearlake.table.query_session import QuerySession
from bearlake.table.settings import TableSettings
from fixtures.tables import a_stream, local_store, tables_in
from fixtures.waiting import WAIT_S


class Connections:
    """Connections of the engine that were opened, also after nobody else knows them."""

    def __init__(self) -> None:
        self.opened: list[Any] = []  # Any: connections of the engine
        self._connect = duckdb.connect

    def connect(self, path: str) -> Any:
        self.opened.append(self._connect(path))
        return self.opened[-1]

    @property
    def open_count(self) -> int:
        return sum(_is_open(connection) for connection in self.opened)


def _is_open(connection: Any) -> bool:
    try:
        connection.execute("select 1")
    except duckdb.ConnectionException:
        return False
    return True


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    opened = Connections()
    monkeypatch.setattr(duckdb, "connect", opened.connect)
    return opened


@pytest.fixture
async def tables(tmp_path: Path) -> AsyncIterator[IcebergTables]:
    store, url = local_store(tmp_path)
    opened = tables_in(tmp_path, store, url)
    yield opened
    await opened.close()
    await store.close()


@pytest.mark.parametrize("statement", ["select", "select 1; select 2", "select * from nothing", "select 1 as one"])
async def test_a_statement_leaves_no_connection(
    tables: IcebergTables, connections: Connections, statement: str
) -> None:
    if "one" in statement:
        await query(tables, [a_stream()], statement)
    else:
        with pytest.raises(Invalid):
            await query(tables, [a_stream()], statement)

    assert (len(connections.opened), connections.open_count) == (1, 0)


async def test_a_live_view_that_fails_leaves_no_connection(tables: IcebergTables, connections: Connections) -> None:
    async def failing(_: Stream) -> LiveTable:
        raise Unavailable("the tail cannot be read")

    with pytest.raises(Unavailable, match="tail"):
        await query(tables, [a_stream()], "select * from orders", live=failing)

    assert (len(connections.opened), connections.open_count) == (1, 0)


async def test_a_caller_who_gives_up_during_a_live_view_leaves_no_connection(
    tables: IcebergTables, connections: Connections
) -> None:
    begun = asyncio.Event()

    async def endless(_: Stream) -> LiveTable:
        begun.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing ends the wait")

    asked = asyncio.ensure_future(query(tables, [a_stream()], "select * from orders", live=endless))
    await begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert (len(connections.opened), connections.open_count) == (1, 0)


def test_settings_that_the_engine_refuses_leave_no_connection(connections: Connections) -> None:
    session = QuerySession(replace(TableSettings(), query_thread_count=-5))

    with pytest.raises(duckdb.Error):
        session.run(lambda _: None)
    session.end()

    assert (len(connections.opened), connections.open_count) == (1, 0)


def test_a_session_that_ends_while_it_opens_or_runs_is_closed_by_its_thread(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def waiting(*_: Any) -> None:
        begun.set()
        assert may_go_on.wait(WAIT_S)

    monkeypatch.setattr(query_session, "_configure", waiting)
    session = QuerySession(TableSettings())
    called = list[Any]()

    def run() -> None:
        with pytest.raises(Unavailable):
            session.run(called.append)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(WAIT_S)
    session.end()
    assert connections.open_count == 1  # its thread still uses it
    may_go_on.set()
    thread.join(WAIT_S)

    assert (connections.open_count, called) == (0, [])
    with pytest.raises(Unavailable):
        session.run(lambda _: None)
