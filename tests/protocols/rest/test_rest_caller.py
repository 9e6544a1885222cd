"""The caller: the name in a client's certificate, which the registry and REST pass to the authorizer."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from bearlake.metadata.open import open_metadata
from bearlake.objects.open import open_store
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.server import RestServer
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.listener import Listener, ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.service import Streams
from fixtures.logins import http_login_of

TIMEOUT = aiohttp.ClientTimeout(total=30)


class OnlyAlice(Authorizer):
    """Alice may do everything except with resources called `secret`; all others may do nothing."""

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return who == Principal("User", "alice") and "secret" not in name


class Servers(NamedTuple):
    """Base addresses, and a session with alice's certificate."""

    rest: str
    registry: str
    session: aiohttp.ClientSession

    async def post(self, url: str, body: Any, kind: str = "application/json") -> tuple[int, Any]:
        headers = {"Content-Type": kind}
        async with self.session.post(url, json=body, headers=headers, timeout=TIMEOUT) as response:
            return response.status, await response.json(content_type=None)


def client_context(certificates: dict[str, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    return context


@pytest.fixture
async def servers(certificates: dict[str, Path]) -> AsyncIterator[Servers]:
    tls = {
        "tls_certificate_file": str(certificates["server"]),
        "tls_key_file": str(certificates["server_key"]),
        "tls_client_ca_file": str(certificates["authority"]),
    }

    def listener(what: str) -> Listener:
        return open_listener(ListenerSettings(**tls), what)

    async with AsyncExitStack() as closing:
        metadata = await open_metadata("memory:///")
        closing.push_async_callback(metadata.close)
        store = open_store("memory:///")
        closing.push_async_callback(store.close)
        rest_listener, registry_listener = listener("rest"), listener("registry")
        member = await RegisteredServer.join(
            metadata.servers, ServerSettings(name="server"), dict([rest_listener.endpoint("rest")])
        )
        streams = Streams(metadata, store, member.server, authorizer=OnlyAlice())
        await streams.start()
        closing.push_async_callback(streams.close)
        running = asyncio.create_task(streams.run())
        closing.callback(running.cancel)
        by_name = AuthenticationSettings(certificate_rules=["RULE:^CN=([^,]*).*$/$1/"])
        login = http_login_of(metadata, by_name, closing, listener=ListenerSettings(**tls))
        schemas = Schemas(metadata.schemas, authorizer=OnlyAlice())
        closing.callback(schemas.close)
        rest = RestServer(streams, schemas, member, RestSettings(), [rest_listener], login)
        registry = RegistryServer(schemas, RegistrySettings(), [registry_listener], login=login)
        for server in (rest, registry):
            await server.start()
            closing.push_async_callback(server.close)
        connector = aiohttp.TCPConnector(ssl=client_context(certificates))
        session = await closing.enter_async_context(aiohttp.ClientSession(connector=connector))
        addresses = [f"https://localhost:{listener.advertised_port}" for listener in (rest_listener, registry_listener)]
        yield Servers(*addresses, session)


async def test_the_registry_knows_a_client_by_its_certificate(servers: Servers) -> None:
    made = await servers.post(f"{servers.registry}/subjects/open/versions", {"schema": '"int"'})
    status, refused = await servers.post(f"{servers.registry}/subjects/secret/versions", {"schema": '"int"'})

    assert made[0] == 200
    assert (status, refused["error_code"]) == (403, 40301)
    assert all(word in refused["message"] for word in ("User:alice", "Write", "'secret'"))


async def test_rest_knows_a_client_by_its_certificate(servers: Servers) -> None:
    kind = "application/vnd.kafka.avro.v2+json"
    body = {"value_schema": '"int"', "records": [{"value": 1}]}
    made = await servers.post(f"{servers.rest}/topics/open", body, kind)
    status, refused = await servers.post(f"{servers.rest}/topics/secret", body, kind)

    assert made[0] == 200, made
    assert (status, refused["error_code"]) == (403, 40301)
    assert "User:alice" in refused["message"]


async def test_consumers_read_what_their_owner_may(servers: Servers) -> None:
    for topic in ("open", "opener"):
        body = {"value_schema": '"int"', "records": [{"value": 1}]}
        assert (await servers.post(f"{servers.rest}/topics/{topic}", body, "application/vnd.kafka.avro.v2+json"))[
            0
        ] == 200
    kind = "application/vnd.kafka.v2+json"
    config = {"name": "one", "auto.offset.reset": "earliest"}
    base = (await servers.post(f"{servers.rest}/consumers/open", config, kind))[1]["base_uri"].replace(
        "127.0.0.1", "localhost"
    )
    by_name, refused = await servers.post(f"{base}/subscription", {"topics": ["open", "secret"]}, kind)
    by_pattern, _ = await servers.post(f"{base}/subscription", {"topic_pattern": "open.*|secret"}, kind)
    async with servers.session.get(f"{base}/subscription", timeout=TIMEOUT) as response:
        subscribed = (await response.json(content_type=None))["topics"]
    group, _ = await servers.post(f"{servers.rest}/consumers/secret", config, kind)

    assert (by_name, refused["error_code"]) == (403, 40301)
    assert by_pattern == 204
    assert subscribed == ["open", "opener"]
    assert group == 403


async def test_clients_without_a_certificate_are_rejected(servers: Servers, certificates: dict[str, Path]) -> None:
    anonymous = ssl.create_default_context(cafile=str(certificates["authority"]))
    connector = aiohttp.TCPConnector(ssl=anonymous)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{servers.registry}/subjects")
