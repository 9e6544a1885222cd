"""A PostgreSQL catalog whose URL names several hosts, IPv6 addresses among them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.errors import Invalid, Unavailable
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import open_tables
from bearlake.table.postgresql_hosts import hosts_of
from bearlake.table.settings import TableSettings
from bearlake.urls import split_store_url
from fixtures.postgresql_pair import Pair
from fixtures.tables import a_stream, local_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


def with_hosts(url: str, *hosts: str) -> str:
    """The URL with these hosts; the empty one is its own."""
    parts = split_store_url(url)
    own = f"{parts.hostname}:{parts.port}"
    return parts._replace(netloc=f"{parts.username}@{','.join(host or own for host in hosts)}").geturl()


@pytest.mark.parametrize("hosts", [("127.0.0.1:1", "[::1]:1", ""), ("[::1]:1", ""), ("", "[::1]:1")])
async def test_a_host_that_refuses_connections_leaves_the_catalog_to_the_next(
    postgresql_url: str, store: tuple[ObjectStore, str], hosts: tuple[str, ...]
) -> None:
    tables = open_tables(TableSettings(catalog_url=with_hosts(postgresql_url, *hosts)), *store)

    made = await tables.ensure(a_stream())

    assert made.identifier == ("streams", "orders")
    await tables.close()


async def test_a_standby_is_no_catalog(pair: Pair, store: tuple[ObjectStore, str]) -> None:
    standby = f"127.0.0.1:{split_store_url(pair.standby.url(pair.database)).port}"
    tables = open_tables(TableSettings(catalog_url=with_hosts(pair.url, standby, "")), *store)
    await tables.ensure(a_stream())
    await tables.close()

    tables = open_tables(TableSettings(catalog_url=with_hosts(pair.url, "127.0.0.1:1", standby)), *store)
    with pytest.raises(Unavailable, match="leads to a standby"):
        await tables.ensure(a_stream())
    await tables.close()


async def test_a_refused_login_is_final(postgresql_url: str, store: tuple[ObjectStore, str]) -> None:
    url = with_hosts(postgresql_url, "", "127.0.0.1:1")
    tables = open_tables(TableSettings(catalog_url=url.rpartition("/")[0] + "/absent"), *store)

    with pytest.raises(Exception, match="absent"):
        await tables.ensure(a_stream())
    await tables.close()


def test_each_host_has_the_login_the_port_and_the_database() -> None:
    first, second, third = hosts_of("postgresql://u:p%2C@a:1,[::1]:3,b/d?sslmode=disable")

    assert [(found.host, found.port) for found in (first, second, third)] == [("a", 1), ("::1", 3), ("b", None)]
    for found in (first, second, third):
        assert (found.username, found.password, found.database) == ("u", "p,", "d")
        assert found.query == {"sslmode": "disable"}


@pytest.mark.parametrize("hosts", ["a:port", "[::1", "a,[::1", "a:1:2"])
def test_malformed_hosts_are_refused_without_the_url(hosts: str) -> None:
    with pytest.raises(Invalid, match="malformed") as caught:
        hosts_of(f"postgresql://u:secret@{hosts}/d")
    assert "secret" not in str(caught.value)
