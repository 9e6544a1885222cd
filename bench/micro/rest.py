"""Micro benchmark of the REST server: CPU time of its process per request.

    .venv/bin/python bench/micro/rest.py

The server is a separate process with stores in memory; the client's CPU time does not count. Goals (per core-second): v2 with 100 records
of 100 B per request 100,000 records; server-sent events in groups 500,000.
"""

import asyncio
import base64
import json
import multiprocessing
import socket

import aiohttp
import psutil

REQUEST_COUNT = 600
CLIENT_COUNT = 16
EVENT_COUNT = 200_000
GROUP_COUNT = 1_000


def serve(port: int) -> None:
    """The server process."""
    import gc

    import uvloop

    from bearlake.metadata.open import open_metadata
    from bearlake.objects.open import open_store
    from bearlake.protocols.rest.server import RestServer
    from bearlake.protocols.rest.settings import RestSettings
    from bearlake.serving.listener import ListenerSettings, open_listener
    from bearlake.serving.membership import RegisteredServer, ServerSettings
    from bearlake.streams.schemas.service import Schemas
    from bearlake.streams.service import Streams

    async def run() -> None:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)  # as `bearlake serve` does
        metadata, store = await open_metadata("memory:///"), open_store("memory:///")
        listener = open_listener(ListenerSettings(port=port), "rest")
        member = await RegisteredServer.join(
            metadata.servers, ServerSettings(name="bench"), dict([listener.endpoint("rest")])
        )
        streams = Streams(metadata, store, member.server)
        await streams.start()
        server = RestServer(
            streams, Schemas(metadata.schemas), member, RestSettings(unsent_bytes_max=1024 * 1024), [listener]
        )
        await server.start()
        await asyncio.gather(streams.run(), member.run(), server.run())

    uvloop.run(run())


AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]}'
JSON = '{"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}, "required": ["id"]}'
PROTOBUF = 'syntax = "proto3"; message R { int64 id = 1; string text = 2; }'


async def produce(
    url: str, process: psutil.Process, kind: str, record: object, record_count: int, schema: str | None = None
) -> None:
    """v2 requests with this many records each."""
    with_schema = {} if schema is None else {"value_schema": schema}
    body = json.dumps({**with_schema, "records": [record] * record_count}).encode()
    headers = {"Content-Type": f"application/vnd.kafka.{kind}.v2+json"}

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in range(REQUEST_COUNT // CLIENT_COUNT):
            async with session.post(f"{url}/topics/{kind}", data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                await response.read()

    async with aiohttp.ClientSession() as session:
        await client(session)
        before = used(process)
        await asyncio.gather(*(client(session) for _ in range(CLIENT_COUNT)))
        seconds = used(process) - before
    requests = REQUEST_COUNT // CLIENT_COUNT * CLIENT_COUNT
    show(f"v2 {kind}, {record_count} records of 100 B", requests * record_count / seconds, "records")


async def events(url: str, process: psutil.Process) -> None:
    """Server-sent events, read from the start."""
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as session:
        await (await session.put(f"{url}/v1/stream/events", headers=headers)).read()
        body = json.dumps([{"n": "x" * 90}] * GROUP_COUNT).encode()
        for _ in range(EVENT_COUNT // GROUP_COUNT):
            await (await session.post(f"{url}/v1/stream/events", data=body, headers=headers)).read()
        before = used(process)
        async with session.get(f"{url}/v1/stream/events?offset=-1&live=sse") as response:
            async for piece in response.content.iter_any():
                if b'"upToDate":true' in piece:
                    break
        show("server-sent events of 100 B", EVENT_COUNT / (used(process) - before), "events")


def used(process: psutil.Process) -> float:
    """CPU seconds of the process and its children, which evaluate schemas and values."""
    times = [process_.cpu_times() for process_ in (process, *process.children(recursive=True))]
    return sum(times_.user + times_.system + times_.children_user + times_.children_system for times_ in times)


def show(name: str, rate: float, unit: str) -> None:
    """Print one line."""
    print(f"{name:<40} {rate:>12,.0f} {unit} per core-second")


async def main(url: str, process: psutil.Process) -> None:
    """Run all measurements once the server answers."""
    async with asyncio.timeout(20), aiohttp.ClientSession() as session:
        while True:
            try:
                await (await session.get(f"{url}/topics")).read()
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
    value = base64.b64encode(bytes(100)).decode()
    await produce(url, process, "binary", {"value": value}, 100)
    await produce(url, process, "json", {"value": {"text": "x" * 88}}, 100)
    await produce(url, process, "json", {"value": {"text": "x" * 88}}, 1)
    value_of_fields = {"id": 1, "text": "x" * 80}
    for kind, schema in (("avro", AVRO), ("jsonschema", JSON), ("protobuf", PROTOBUF)):
        await produce(url, process, kind, {"value": value_of_fields}, 100, schema)
    await events(url, process)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    server.start()
    try:
        asyncio.run(main(f"http://127.0.0.1:{port}", psutil.Process(server.pid)))
    finally:
        server.kill()
