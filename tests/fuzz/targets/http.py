"""Every route of the HTTP APIs, from their OpenAPI documents, on servers in this process: REST, schema registry, Iceberg REST catalog,
Pulsar's, admin.

No request is answered with 500, and none is a fault of the server (`faults`). `http_requests` describes inputs.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from bearlake.metadata import Metadata
from bearlake.metadata.model import stream_number
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.admin.compaction import CompactionRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.streams import StreamRoutes
from bearlake.serving.groups import packing
from bearlake.serving.groups.routes import GroupRoutes
from bearlake.serving.http.openapi.document import routes_of
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.serving.shares.routes import ShareRoutes
from bearlake.streams.groups.model import JoinRequest
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas.model import Draft
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.service import Streams
from fixtures.catalog_server import catalog_server
from fixtures.kafka_server import open_stores
from fixtures.pulsar_server import PulsarCluster, PulsarNode
from fixtures.rest_server import rest_world
from fixtures.tables import commit_of
from fuzz.faults import watched
from fuzz.target import Target
from fuzz.targets.http_requests import HttpApi, change_plan, plan_of, plans

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
Opened = tuple[HttpApi, list[dict[str, Any]]]
"""A server's API, and a plan of each operation."""
Open = Callable[[], AbstractAsyncContextManager[Opened]]


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


async def _described(api: HttpApi, known: Mapping[str, str]) -> Opened:
    return api, [*plans(await api.document(), known)]


@asynccontextmanager
async def _rest_api() -> AsyncIterator[Opened]:
    async with rest_world() as make:
        (node,) = await make(
            1, live_wait_ms=SHORT_MS, sse_ms=SHORT_MS, request_timeout_ms=LIMIT_MS, consumer_wait_ms=SHORT_MS
        )
        await node.create(STREAM, 2)
        await node.put("/v1/stream/closed", b"x", headers={"Content-Type": "text/plain", "Stream-Closed": "true"})
        await node.post("/consumers/group", {"name": "one"})
        known = {**KNOWN, "cluster_id": node.member.cluster_id, "broker": str(node.member.node_id)}
        yield await _described(_api(node.url), known)


@asynccontextmanager
async def _registry_api() -> AsyncIterator[Opened]:
    async with AsyncExitStack() as closing:
        metadata, _ = await open_stores(None, closing)
        schemas = Schemas(metadata.schemas)
        closing.callback(schemas.close)
        await schemas.register(ANONYMOUS, "known-value", Draft(text='"string"'))
        server = RegistryServer(schemas, RegistrySettings(), [open_listener(ListenerSettings(), "registry")])
        await server.start()
        closing.push_async_callback(server.close)
        yield await _described(_api(f"http://{server.endpoints['registry']}"), KNOWN)


@asynccontextmanager
async def _catalog_api() -> AsyncIterator[Opened]:
    with TemporaryDirectory() as folder:
        async with catalog_server(Path(folder)) as server:
            stream, work = await server.stream(STREAM)
            await server.tables.commit(stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
            known = {**KNOWN, "namespace": "streams", "table": STREAM}
            yield await _described(_api(server.url), known)


@asynccontextmanager
async def _pulsar_api() -> AsyncIterator[Opened]:
    async with AsyncExitStack() as closing:
        cluster = PulsarCluster(*await open_stores(None, closing), closing)
        node = await cluster.add()
        closing.push_async_callback(node.stop)
        await node.create(STREAM, 2)
        client = await node.client()
        await client.subscribe("single", "s")
        yield _api(node.http_url), [*_pulsar_plans(node)]


PULSAR_BODIES: tuple[Any, ...] = (
    None,
    5,
    {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5},
    {"type": "AVRO", "schema": '"int"', "properties": {"a": "b"}},
    {"ledgerId": 1, "entryId": 2, "partitionIndex": -1, "batchIndex": 0},
    "BACKWARD",
)
"""Bodies of Pulsar's API, which has no document."""


def _pulsar_plans(node: PulsarNode) -> Iterator[dict[str, Any]]:
    """Yield requests of every route, with every body if it may have one."""
    app = web.Application()
    for routes in node.http._routes:  # noqa: SLF001 - the table of routes
        routes.add_to(app.router)
    known = {**KNOWN, "topic": "single", "domain": "persistent"}
    for route in routes_of(app):
        in_path = {name: known.get(name, "1") for name in re.findall(r"\{(\w+)", route.path)}
        for body in PULSAR_BODIES[:1] if route.method in ("GET", "HEAD") else PULSAR_BODIES:
            yield plan_of(route.method, route.path, in_path, {"Content-Type": "application/json"}, body)


@asynccontextmanager
async def _admin_api() -> AsyncIterator[Opened]:
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
        api, made = await _described(_api(f"http://{server.endpoints['admin']}"), {})
        key = streams.catalog.peek(STREAM).partition(0)  # type: ignore[union-attr]  # it exists
        await ShareCoordinator(metadata, streams.coordinator.ownership).note_streams("g", {stream_number(key): 1})
        yield api, [*made, *_group_plans(key), *_share_plans(key)]


def _group_plans(partition: int) -> Iterator[dict[str, Any]]:
    """Yield requests of other servers for members of a group, which the document does not describe."""
    join = JoinRequest(
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="h",
        protocol_type="consumer",
        protocols=(("range", b"x"),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=SHORT_MS,
        requires_known_id=False,
        can_skip_assignment=False,
    )
    member = {"group": "g", "member_id": "m", "instance_id": None, "generation": 1, "revision": ""}
    bodies: dict[str, Any] = {
        "join": {"group": "g", "request": packing.pack_request(join), "revision": ""},
        "sync": {**member, "protocol": ["consumer", "range"], "assignments": {"m": "AA=="}},
        "heartbeat": {"beats": [["g", "m", None, 1]]},
        "leave": member,
        "commit": {**member, "generation": -1, "member_id": "", "offsets": [[partition, 5, -1, "text"]]},
        "delete": {"group": "g"},
        "describe": {"group": "g"},
    }
    for name, body in bodies.items():
        yield plan_of("POST", f"/v1/groups/{name}", {}, {"Content-Type": "application/json"}, body)


def _share_plans(partition: int) -> Iterator[dict[str, Any]]:
    """Yield requests of other servers for members of a share group."""
    limits = {"bytes_max": 1_000, "record_count_max": 5, "is_strict": True, "wait_ms": 0, "via": "1/1"}
    held = {"group": "g", "partition": partition, "member": "m"}
    bodies: dict[str, Any] = {
        "acquire": {"group": "g", "member": "m", "partitions": [partition], **limits},
        "acknowledge": {**held, "acks": [[0, 2, [1, 2]], [3, 4, [1]]]},
        "release": {**held, "via": None},
        "give_back": {**held, "ranges": [[0, 2], [3, 4]]},
        "reset": {"group": "g", "partition": partition, "offset": 0},
        "forget": {"group": "g", "partition": partition},
    }
    for name, body in bodies.items():
        yield plan_of("POST", f"/v1/shares/{name}", {}, {"Content-Type": "application/json"}, body)


def _admin_routes(streams: Streams, metadata: Metadata) -> list[Any]:
    return [
        StreamRoutes(streams),
        CompactionRoutes(metadata),
        GroupRoutes(streams.coordinating),
        ShareRoutes(streams.dispatching),
    ]


@cache
def _seeds(opened: Open) -> Sequence[bytes]:
    async def read() -> list[bytes]:
        async with opened() as (_, made):
            return [json.dumps(plan).encode() for plan in made]

    return asyncio.run(read())


def _target(name: str, opened: Open, short_inputs: int) -> Target:
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
        is_timed=True,
        bytes_max=1 << 20,
        processor_s=2.0,  # client and server share the process, and the server does its periodic work
        share=0.02,
        short_inputs=short_inputs,
    )


TARGETS = [
    _target("REST routes", _rest_api, 1500),
    _target("registry routes", _registry_api, 1000),
    _target("catalog routes", _catalog_api, 500),
    _target("Pulsar HTTP routes", _pulsar_api, 1000),
    _target("admin routes", _admin_api, 1000),
]
