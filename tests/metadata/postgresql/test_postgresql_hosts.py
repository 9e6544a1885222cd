"""A URL with several hosts leads to the primary among them, whatever the others do."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql import connection
from bearlake.metadata.postgresql.connection import Connections, hosts_of
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening
from fixtures.postgresql_pair import Pair
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=2, read_connections_max=2)


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
    parts = urlsplit(url)
    own = f"{parts.hostname}:{parts.port}"
    return parts._replace(netloc=f"{parts.username}@{','.join(host or own for host in hosts)}").geturl()


@pytest.mark.parametrize("attributes", ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"])
async def test_a_host_that_does_not_answer_leaves_time_for_the_next(
    postgresql_url: str, opened: Opening, attributes: str
) -> None:
    async with silent() as host:
        metadata = await opened(with_hosts(postgresql_url, host, "") + attributes, SETTINGS)
        created = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))

        assert await metadata.streams.get("orders") == created


async def test_a_standby_is_no_reason_to_stay_away_from_the_primary(pair: Pair, opened: Opening) -> None:
    standby = urlsplit(pair.standby.url(pair.database))
    metadata = await opened(with_hosts(pair.url, f"127.0.0.1:{standby.port}", ""), SETTINGS)

    assert await metadata.now_ms() > 0


async def test_the_host_that_was_reached_last_is_tried_first(postgresql_url: str) -> None:
    proxy = Proxy(postgresql_url)
    first = urlsplit(await proxy.start())
    made = Connections()
    tried: list[int | None] = []
    connect_to = made._connect_to

    async def noted(url: str, **options: object) -> connection.Connection:
        tried.append(urlsplit(url).port)
        return await connect_to(url, **options)

    made._connect_to = noted  # type: ignore[method-assign]
    url = with_hosts(postgresql_url, f"127.0.0.1:{first.port}", "")
    ports = [first.port, urlsplit(postgresql_url).port]
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
    standby = f"127.0.0.1:{urlsplit(pair.standby.url(pair.database)).port}"
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
    parts = urlsplit(url)

    assert [urlsplit(found) for found in hosts_of(url)] == [parts._replace(netloc=host) for host in hosts]


def test_a_list_in_a_variable_is_left_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1,2")

    assert hosts_of("postgresql://a,b/d") == ["postgresql://a,b/d"]
