"""A URL with several hosts leads to the primary among them, whatever the others do."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from typing_extensions import override

from bearlake.errors import Unavailable
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql import connection
from bearlake.metadata.postgresql.connection import Connections, hosts_of
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.urls import split_store_url
from fixtures.postgresql_metadata import Opening
from fixtures.postgresql_pair import Pair
from fixtures.postgresql_proxy import Proxy
from simulator.loop import virtual_time

SETTINGS = PostgresqlSettings(
    connections_max=2,
    read_connections_max=2,
    connect_timeout_ms=100_000,
    acquire_timeout_ms=100_000,
    statement_timeout_ms=100_000,
)
"""A host that answers has time, however busy the machine is."""


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """A host that takes connections and never answers; yields its address."""
    clients: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: clients.append(writer), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in clients:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


def with_hosts(url: str, *hosts: str) -> str:
    """The URL with these hosts; the empty one is its own."""
    parts = split_store_url(url)
    own = f"{parts.hostname}:{parts.port}"
    return parts._replace(netloc=f"{parts.username}@{','.join(host or own for host in hosts)}").geturl()


@pytest.mark.parametrize("attributes", ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"])
async def test_a_host_that_does_not_answer_leaves_time_for_the_next(
    postgresql_url: str, opened: Opening, attributes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to = Connections._connect_to

    async def with_part(self: Connections, url: str, *, timeout: float, **options: object) -> connection.Connection:
        """Only the part of the silent host is short."""
        part = 0.1 if split_store_url(url).port == split_store_url(f"//{host}").port else timeout
        return await connect_to(self, url, timeout=part, **options)

    monkeypatch.setattr(Connections, "_connect_to", with_part)
    async with silent() as host:
        metadata = await opened(with_hosts(postgresql_url, host, "") + attributes, SETTINGS)
        created = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))

        assert await metadata.streams.get("orders") == created


async def test_a_standby_is_no_reason_to_stay_away_from_the_primary(pair: Pair, opened: Opening) -> None:
    standby = split_store_url(pair.standby.url(pair.database))
    metadata = await opened(with_hosts(pair.url, f"127.0.0.1:{standby.port}", ""), SETTINGS)

    assert await metadata.now_ms() > 0


async def test_the_host_that_was_reached_last_is_tried_first(postgresql_url: str) -> None:
    proxy = Proxy(postgresql_url)
    first = split_store_url(await proxy.start())
    made = Connections()
    tried: list[int | None] = []
    connect_to = made._connect_to

    async def noted(url: str, **options: object) -> connection.Connection:
        tried.append(split_store_url(url).port)
        return await connect_to(url, **options)

    made._connect_to = noted  # type: ignore[method-assign]
    url = with_hosts(postgresql_url, f"127.0.0.1:{first.port}", "")
    ports = [first.port, split_store_url(postgresql_url).port]
    try:
        (await made.connect(url)).terminate()
        assert tried == ports[:1]
    finally:
        await proxy.break_all()
        await proxy.stop()
    for _ in range(2):
        (await made.connect(url)).terminate()

    assert tried == [ports[0], *ports, ports[1]]


async def test_without_a_primary_the_last_host_says_why(pair: Pair, opened: Opening) -> None:
    standby = f"127.0.0.1:{split_store_url(pair.standby.url(pair.database)).port}"
    with pytest.raises(Unavailable, match="leads to a standby"):
        await opened(with_hosts(pair.url, "127.0.0.1:1", standby), SETTINGS)


async def test_a_refused_login_is_final(postgresql_url: str) -> None:
    tried = itertools.count()
    made = Connections()

    async def refused(url: str, **_: object) -> connection.Connection:
        next(tried)
        raise asyncpg.InvalidPasswordError

    made._connect_to = refused  # type: ignore[method-assign]
    with pytest.raises(asyncpg.InvalidPasswordError):
        await made.connect(with_hosts(postgresql_url, "", ""))

    assert next(tried) == 1


@asynccontextmanager
async def closing() -> AsyncIterator[str]:
    """A host that takes connections and closes them; yields its address."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("attributes", ["?sslmode=disable", "?sslmode=prefer"])
async def test_a_host_that_closes_connections_is_no_reason_to_stay_away_from_the_next(
    postgresql_url: str, attributes: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, connection.__name__)
    async with closing() as host:
        url = with_hosts(postgresql_url, host, "").replace("@", ":secret@", 1)
        (await Connections().connect(url + attributes)).terminate()

        (record,) = [record for record in caplog.records if record.name == connection.__name__]
        assert record.__dict__["host"] == host
        assert "secret" not in str(record.__dict__)


class Hosts(Connections):
    """Connections to hosts of which only some answer. `tried`: the host, its part of the time and when it was tried."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        """`seconds`: how long a host takes."""
        super().__init__()
        self._seconds = seconds
        self.tried: list[tuple[str, float, float]] = []

    @override
    async def _connect_to(self, url: str, **options: Any) -> Any:
        host = split_store_url(url).hostname or ""
        self.tried.append((host, round(options["timeout"], 3), round(asyncio.get_running_loop().time(), 3)))
        await asyncio.sleep(abs(self._seconds[host]))
        if self._seconds[host] < 0:
            raise ConnectionRefusedError(host)
        return host

    def names(self) -> str:
        return "".join(host for host, _, _ in self.tried)


@virtual_time
async def test_a_caller_that_waits_less_than_a_part_leaves_the_next_host_to_the_next_caller() -> None:
    made = Hosts({"a": 900, "b": 900, "c": 0.1})
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await made.connect("postgresql://a,b,c/d", timeout=1)
    async with asyncio.timeout(0.2):
        assert str(await made.connect("postgresql://a,b,c/d", timeout=1)) == "c"

    assert made.names() == "abc"


@virtual_time
async def test_a_caller_that_gives_up_does_not_lead_away_from_a_host_that_another_has_reached() -> None:
    made = Hosts({"a": 900, "b": 0.01})
    found = asyncio.create_task(made.connect("postgresql://a,b/d", timeout=1))
    await asyncio.sleep(0.4)
    given_up = asyncio.create_task(made.connect("postgresql://a,b/d", timeout=10))
    await found
    given_up.cancel()
    await asyncio.wait([given_up])
    await made.connect("postgresql://a,b/d", timeout=1)

    assert made.names() == "aabb"


@virtual_time
async def test_what_a_host_leaves_of_its_part_is_left_to_the_others() -> None:
    made = Hosts({"a": -0.1, "b": 900, "c": 900})
    with pytest.raises(TimeoutError):
        await made.connect("postgresql://a,b,c/d", timeout=1.1)

    assert [(host, round(part, 2), round(at, 2)) for host, part, at in made.tried] == [
        ("a", 0.37, 0.0),
        ("b", 0.5, 0.1),
        ("c", 0.5, 0.6),
    ]


@virtual_time
async def test_a_host_that_connects_and_then_says_nothing_has_its_part_only() -> None:
    made = Hosts({"a": 900, "b": 0})

    assert str(await made.connect("postgresql://a,b/d", timeout=1, command_timeout=60)) == "b"
    assert round(asyncio.get_running_loop().time(), 2) == 0.5


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p%2C@a:1,b,[::1]:3/d?x=1", ["u:p%2C@a:1", "u:p%2C@b", "u:p%2C@[::1]:3"]),
        ("postgresql://a,b/d", ["a", "b"]),
        ("postgresql:///d", [""]),
        ("postgresql:///d?host=a,b", [""]),
        ("postgresql://u@a,b/d?port=1,2", ["u@a,b"]),
    ],
)
def test_hosts_are_those_of_the_address(url: str, hosts: list[str]) -> None:
    parts = split_store_url(url)

    assert [split_store_url(found) for found in hosts_of(url)] == [parts._replace(netloc=host) for host in hosts]


def test_a_list_in_a_variable_is_left_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1,2")

    assert hosts_of("postgresql://a,b/d") == ["postgresql://a,b/d"]
