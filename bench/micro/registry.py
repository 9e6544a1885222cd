"""Micro benchmark of the schema registry: its start with many subjects, and the latency of calls that a client measures.

    .venv/bin/python bench/micro/registry.py

SQLite in a temporary folder; the server is a process of its own, the client sends one request after the other over one connection.
Goals: a registry of 10,000 subjects starts in seconds; a cached look-up takes less than 2 ms.
"""

import asyncio
import json
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

SUBJECT_COUNT = 10_000
CALL_COUNT = 2_000
WRITER_COUNT = 8


def schema(at: int) -> str:
    """One schema for each subject."""
    fields = [{"name": f"field_{at % 7}_{n}", "type": "long"} for n in range(10)]
    return json.dumps({"type": "record", "name": f"Order{at}", "fields": fields})


async def filled(url: str) -> float:
    """Register one version for each subject; return the seconds."""
    from bearlake.metadata.open import open_metadata
    from bearlake.streams.principal import ANONYMOUS
    from bearlake.streams.schemas.model import Draft
    from bearlake.streams.schemas.service import Schemas

    metadata = await open_metadata(url)
    schemas = Schemas(metadata.schemas)
    start = time.perf_counter()

    async def register_from(first: int) -> None:
        for at in range(first, SUBJECT_COUNT, WRITER_COUNT):
            await schemas.register(ANONYMOUS, f"topic-{at}-value", Draft(text=schema(at)))

    await asyncio.gather(*(register_from(first) for first in range(WRITER_COUNT)))
    seconds = time.perf_counter() - start
    schemas.close()
    await metadata.close()
    return seconds


def serve(url: str, port: int) -> None:
    """The server process."""
    import uvloop

    from bearlake.metadata.open import open_metadata
    from bearlake.protocols.rest.registry.server import RegistryServer
    from bearlake.protocols.rest.registry.settings import RegistrySettings
    from bearlake.serving.listener import ListenerSettings, open_listener
    from bearlake.streams.schemas.service import Schemas

    async def run() -> None:
        metadata = await open_metadata(url)
        listener = open_listener(ListenerSettings(port=port), "registry")
        await RegistryServer(Schemas(metadata.schemas), RegistrySettings(), [listener]).start()
        await asyncio.Event().wait()

    uvloop.run(run())


async def answered(session: aiohttp.ClientSession, url: str) -> None:
    """Wait for the first answer."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get(url) as response:
                    await response.read()
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


async def timed(name: str, call: Callable[[int], Awaitable[object]]) -> None:
    """Make the call many times; show its median and 99th percentile."""
    taken = []
    for at in range(CALL_COUNT):
        start = time.perf_counter()
        await call(at)
        taken.append(time.perf_counter() - start)
    taken.sort()
    median, late = taken[CALL_COUNT // 2] * 1000, taken[CALL_COUNT * 99 // 100] * 1000
    print(f"{name:<44} {median:>8.2f} ms median {late:>8.2f} ms 99 %")


async def measured(url: str, started: float) -> None:
    """Measure all calls on a server that has just started."""
    async with aiohttp.ClientSession() as session:
        await answered(session, f"{url}/subjects/topic-0-value/versions/latest")
        print(f"{'process start to first look-up':<44} {time.perf_counter() - started:>8.2f} s")

        async def get(path: str) -> bytes:
            async with session.get(url + path) as response:
                assert response.status == 200, await response.text()
                return await response.read()

        async def post(path: str, at: int) -> bytes:
            body = json.dumps({"schema": schema(at)}).encode()
            async with session.post(url + path, data=body, headers={"Content-Type": "application/json"}) as response:
                assert response.status == 200, await response.text()
                return await response.read()

        start = time.perf_counter()
        count = len(json.loads(await get("/subjects")))
        print(f"{f'list of {count} subjects':<44} {(time.perf_counter() - start) * 1000:>8.2f} ms")
        await timed("schema by id, cached", lambda at: get(f"/schemas/ids/{1 + at % 100}"))
        await timed("schema by id, each for the first time", lambda at: get(f"/schemas/ids/{200 + at}"))
        await timed("latest version of a subject", lambda at: get(f"/subjects/topic-{at}-value/versions/latest"))
        await timed("look up a schema, parsed before", lambda at: post(f"/subjects/topic-{at % 10}-value", at % 10))
        await timed(
            "register a schema that is there", lambda at: post(f"/subjects/topic-{at % 10}-value/versions", at % 10)
        )


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder, 'metadata.db')}"
        seconds = asyncio.run(filled(store))
        print(
            f"{f'register {SUBJECT_COUNT} subjects, {WRITER_COUNT} at once':<44} {SUBJECT_COUNT / seconds:>8,.0f} per second"
        )
        started = time.perf_counter()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(store, port), daemon=True)
        server.start()
        try:
            asyncio.run(measured(f"http://127.0.0.1:{port}", started))
        finally:
            server.kill()
            server.join()
