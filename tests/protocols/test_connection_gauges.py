"""Every protocol that clients connect to has a gauge of its open connections. `test_grpc_connections.py` has that of gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.streams.schemas.service import Schemas
from bearlake.telemetry.exposition import REGISTRY
from fixtures.catalog_server import CatalogNode, catalog_server
from fixtures.waiting import WAIT_S, until

ADDRESSES = {"kafka": "address", "pulsar": "url", "pulsar_http": "http_url", "rest": "url"}
"""The attributes of the fixtures that name a server's address."""


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[CatalogNode]:
    async with catalog_server(tmp_path) as node:
        yield node


@pytest.fixture
async def registry() -> AsyncIterator[RegistryServer]:
    async with AsyncExitStack() as closing:
        metadata = await open_metadata("memory:///")
        closing.push_async_callback(metadata.close)
        schemas = Schemas(metadata.schemas)
        closing.callback(schemas.close)
        server = RegistryServer(schemas, RegistrySettings(), [open_listener(ListenerSettings(), "registry")])
        closing.push_async_callback(server.close)
        await server.start()
        yield server


@pytest.fixture(params=[*ADDRESSES, "registry", "catalog"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(protocol: str, request: pytest.FixtureRequest) -> int:
    """The port of a server of the protocol."""
    node: Any = request.getfixturevalue("pulsar" if protocol == "pulsar_http" else protocol)
    url = node.endpoints["registry"] if protocol == "registry" else getattr(node, ADDRESSES.get(protocol, "url"))
    port = urlsplit(url if "//" in url else f"//{url}").port
    assert port
    return port


async def test_connections_are_counted_until_they_close(protocol: str, port: int) -> None:
    gauge = f"bearlake_{protocol}_open_connections"
    assert REGISTRY.get_sample_value(gauge) == 0
    async with asyncio.timeout(WAIT_S):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(3)]

    await until(lambda: REGISTRY.get_sample_value(gauge) == 3)
    for writer in writers:
        writer.close()
    await until(lambda: REGISTRY.get_sample_value(gauge) == 0)
