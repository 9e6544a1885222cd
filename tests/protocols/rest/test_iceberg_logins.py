"""Logins on the listener of the Iceberg REST catalog, with TLS: by password, token and certificate, for PyIceberg and plain HTTP."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pyiceberg.exceptions import NoSuchTableError

from bearlake.serving.listener import ListenerSettings
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.catalog_server import CatalogNode, catalog_server
from fixtures.logins import Logins, basic
from fixtures.tables import commit_of

TABLE = "/v1/namespaces/streams/tables/orders"
TIMEOUT = aiohttp.ClientTimeout(total=60)


class ReadsOrders(Authorizer):
    """Some users may read the stream `orders`; nobody may do anything else."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        is_read = operation in (Operation.READ, Operation.DESCRIBE)
        return str(who) in self._names and is_read and (kind, name) == (Resource.STREAM, "orders")


def listening(certificates: dict[str, Path], *, asks_clients: bool) -> ListenerSettings:
    """A listener with TLS; `asks_clients`: for their certificates."""
    plain = ListenerSettings(
        tls_certificate_file=str(certificates["server"]), tls_key_file=str(certificates["server_key"])
    )
    return replace(plain, tls_client_ca_file=str(certificates["authority"])) if asks_clients else plain


@pytest.fixture
async def server(
    tmp_path: Path, logins: Logins, certificates: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CatalogNode]:
    """A catalog with TLS and logins, and the stream `orders`, which alice may read."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them to the catalog's own
        monkeypatch.delenv(name, raising=False)
    listener = listening(certificates, asks_clients=False)
    async with catalog_server(
        tmp_path, ReadsOrders("User:alice"), listening=listener, authentication=logins.settings()
    ) as node:
        stream, work = await node.stream("orders")
        await node.tables.commit(stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
        yield node


def rows(catalog: Any) -> int:
    """Count the rows of `orders`, as PyIceberg reads them."""
    return int(catalog.load_table("streams.orders").scan().to_arrow().num_rows)


async def test_pyiceberg_reads_a_table_over_tls_with_a_token_or_a_password(
    server: CatalogNode, logins: Logins, certificates: dict[str, Path]
) -> None:
    tls = {"ssl": {"cabundle": str(certificates["authority"])}}

    by_token = await server.client(rows, token=logins.token(), **tls)
    by_password = await server.client(
        rows, auth={"type": "basic", "basic": {"username": "alice", "password": "secret"}}, **tls
    )
    listed = await server.client(lambda catalog: catalog.list_tables("streams"), token=logins.token(), **tls)

    assert (by_token, by_password, listed) == (10, 10, [("streams", "orders")])


async def test_pyiceberg_does_not_see_the_table_with_the_token_of_another_user(
    server: CatalogNode, logins: Logins, certificates: dict[str, Path]
) -> None:
    tls = {"ssl": {"cabundle": str(certificates["authority"])}}

    with pytest.raises(NoSuchTableError):
        await server.client(rows, token=logins.token(sub="bob"), **tls)
    listed = await server.client(lambda catalog: catalog.list_tables("streams"), token=logins.token(sub="bob"), **tls)

    assert listed == []


async def test_wrong_logins_are_refused_in_the_form_of_the_specification(
    server: CatalogNode, certificates: dict[str, Path]
) -> None:
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    for headers in ({}, basic(password="wrong"), basic(user="ghost"), {"Authorization": "Bearer x.y.z"}):
        answer = await server.ask("GET", TABLE, headers=headers, ssl=context)
        assert (answer.status, answer.error, answer.body["error"]["code"]) == (401, "NotAuthorizedException", 401)


async def test_a_certificate_names_the_client(tmp_path: Path, logins: Logins, certificates: dict[str, Path]) -> None:
    listener = listening(certificates, asks_clients=True)
    known = ssl.create_default_context(cafile=str(certificates["authority"]))
    known.load_cert_chain(certificates["client"], certificates["client_key"])
    stranger = ssl.create_default_context(cafile=str(certificates["authority"]))
    async with catalog_server(
        tmp_path, ReadsOrders("User:CN=alice"), listening=listener, authentication=logins.settings()
    ) as server:
        await server.stream("orders")
        await server.stream("secret")
        loaded = await server.ask("GET", TABLE, headers=basic("bob", "b"), ssl=known)
        hidden = await server.ask("GET", "/v1/namespaces/streams/tables/secret", ssl=known)
        listed = await server.ask("GET", "/v1/namespaces/streams/tables", ssl=known)
        with pytest.raises(aiohttp.ClientError):
            await server.ask("GET", TABLE, ssl=stranger)

    assert (loaded.status, hidden.status) == (200, 404)
    assert [found["name"] for found in listed.body["identifiers"]] == ["orders"]


async def test_a_client_without_tls_gets_no_answer(server: CatalogNode) -> None:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(server.url.replace("https:", "http:") + TABLE)
