"""Every route of the HTTP APIs, from their OpenAPI documents, on servers in this process: REST, schema registry, Pulsar's, admin.

No request is answered with 500, and none is a fault of the server (`faults`). `http_requests` describes inputs.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from bearlake.metadata import Metadata
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.admin.auth import AdminSettings
from bearlake.serving.admin.compaction import CompactionRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.streams import StreamRoutes
from bearlake.serving.groups.routes import GroupRoutes
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.service import Streams
from fixtures.kafka_server import open_stores
from fixtures.pulsar_server import PulsarCluster
from fixtures.rest_server import rest_world
from fixtures.schema_registry import started
from fuzz.faults import watched
from fuzz.target import Target
from fuzz.targets.http_requests import HttpApi, change_plan, plans

SHORT_MS = 20
"""Longest wait of a request that waits for records."""
LIMIT_MS = 2_000
STREAM = "known"
KNOWN = {
    "topic": STREAM,
    "stream": STREAM,
    "name": STREAM,
    "group": "group",
    "instance": "one",
    "partition": "0",
    "config": "retention.ms",
    "subject": "known-value",
    "version": "1",
    "id": "1",
    "tenant": "public",
    "namespace": "default",
    "subscription": "s",
    "schema": "1",
}
Ask = Callable[[bytes], Awaitable[object]]


def _api(url: str) -> HttpApi:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return HttpApi(parts.hostname, parts.port)


@asynccontextmanager
async def _asked(api: HttpApi) -> AsyncIterator[Ask]:
    async with watched() as check:

        async def ask(data: bytes) -> object:
            plan = json.loads(data)
            status = await api.ask(plan)
            check()
            return plan["method"], plan["path"], status

        yield ask


@asynccontextmanager
async def _rest_api() -> AsyncIterator[tuple[HttpApi, Mapping[str, str]]]:
    async with rest_world() as make:
        (node,) = await make(
            1, live_wait_ms=SHORT_MS, sse_ms=SHORT_MS, request_timeout_ms=LIMIT_MS, consumer_wait_ms=SHORT_MS
        )
        await node.create(STREAM, 2)
        await node.put("/v1/stream/closed", b"x", headers={"Content-Type": "text/plain", "Stream-Closed": "true"})
        await node.post("/consumers/group", {"name": "one"})
        yield _api(node.url), {**KNOWN, "cluster_id": node.member.cluster_id, "broker": str(node.member.node_id)}


@asynccontextmanager
async def _registry_api() -> AsyncIterator[tuple[HttpApi, Mapping[str, str]]]:
    async with AsyncExitStack() as closing:
        node = await started(closing, settings=RegistrySettings())
        await node.register("known-value", '"string"')
        yield _api(node.url), KNOWN


@asynccontextmanager
async def _pulsar_api() -> AsyncIterator[tuple[HttpApi, Mapping[str, str]]]:
    async with AsyncExitStack() as closing:
        cluster = PulsarCluster(*await open_stores(None, closing), closing)
        node = await cluster.add()
        closing.push_async_callback(node.stop)
        await node.create(STREAM, 2)
        client = await node.client()
        await client.subscribe("single", "s")
        yield _api(node.http_url), {**KNOWN, "topic": "single"}


@asynccontextmanager
async def _admin_api() -> AsyncIterator[tuple[HttpApi, Mapping[str, str]]]:
    async with AsyncExitStack() as closing:
        metadata, store = await open_stores(None, closing)
        member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {"kafka": "127.0.0.1:1"})
        streams = Streams(metadata, store, member.server)
        await streams.start()
        closing.push_async_callback(streams.close)
        work = asyncio.create_task(streams.run())
        closing.callback(work.cancel)
        await streams.catalog.create(STREAM, 1, {})
        server = AdminServer(
            open_listener(ListenerSettings(), "admin"),
            streams.metadata.log,
            member,
            AdminSettings(request_timeout_ms=LIMIT_MS),
            routes=_admin_routes(streams, metadata),
            config=lambda: [{"setting": "kafka.port"}],
        )
        await server.start()
        closing.push_async_callback(server.close)
        yield _api(f"http://{server.endpoints['admin']}"), KNOWN


def _admin_routes(streams: Streams, metadata: Metadata) -> list[Any]:
    return [StreamRoutes(streams), CompactionRoutes(metadata), GroupRoutes(streams.coordinator)]


Opened = Callable[[], Any]
"""Any: a context of an API and the parameters that it knows."""


@cache
def _seeds(opened: Opened) -> Sequence[bytes]:
    async def read() -> list[bytes]:
        async with opened() as (api, known):
            made = [*plans(await api.document(), known)]
        return [json.dumps(plan).encode() for plan in made]

    return asyncio.run(read())


def _target(name: str, opened: Opened, short_inputs: int) -> Target:
    @asynccontextmanager
    async def session() -> AsyncIterator[Ask]:
        async with opened() as (api, _), _asked(api) as ask:
            yield ask

    return Target(
        name=name,
        seeds=lambda: _seeds(opened),
        session=session,
        errors=(),
        change=change_plan,
        change_share=1.0,
        is_structured=True,
        bytes_max=1 << 20,
        processor_s=2.0,  # client and server share the process, and the server does its periodic work
        share=0.05,
        short_inputs=short_inputs,
    )


TARGETS = [
    _target("REST routes", _rest_api, 1500),
    _target("registry routes", _registry_api, 1000),
    _target("Pulsar HTTP routes", _pulsar_api, 1000),
    _target("admin routes", _admin_api, 1000),
]
