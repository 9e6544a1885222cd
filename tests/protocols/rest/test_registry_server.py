"""The registry as a service: endpoints, drain under load, and close."""

import asyncio
import json
from contextlib import AsyncExitStack

import aiohttp

from bearlake.metadata.open import open_metadata
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.streams.schemas.service import Schemas
from fixtures.waiting import WAIT_S


async def served(closing: AsyncExitStack) -> tuple[RegistryServer, str]:
    metadata = await open_metadata("memory:///")
    closing.push_async_callback(metadata.close)
    listener = open_listener(ListenerSettings(), "registry")
    schemas = Schemas(metadata.schemas)
    closing.callback(schemas.close)
    server = RegistryServer(schemas, RegistrySettings(drain_idle_ms=200), [listener])
    closing.push_async_callback(server.close)
    await server.start()
    return server, f"http://{server.endpoints['registry']}"


async def test_no_request_fails_while_the_server_drains() -> None:
    async with AsyncExitStack() as closing:
        server, url = await served(closing)
        session = await closing.enter_async_context(aiohttp.ClientSession())
        statuses: list[int] = []
        closed: list[bool] = []
        begun, drained = asyncio.Event(), asyncio.Event()

        async def load(at: int) -> None:
            count = 0
            while not drained.is_set() and count < 2000:
                body = json.dumps({"schema": json.dumps({"type": "fixed", "name": f"F{at}_{count}", "size": 4})})
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{url}/subjects/s{at}-{count}/versions", data=body, headers=headers) as answer:
                    statuses.append(answer.status)
                    closed.append(answer.headers.get("Connection", "").lower() == "close")
                    await answer.read()
                count += 1
                if count == 5:
                    begun.set()
                if closed[-1]:
                    return  # a client would go to another server now

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            for at in range(4):
                group.create_task(load(at))
            await begun.wait()
            await server.drain(5_000)
            drained.set()

        assert set(statuses) == {200}
        assert closed.count(True) == 4


async def test_closing_is_safe_to_repeat_and_without_a_start() -> None:
    async with AsyncExitStack() as closing:
        server, _ = await served(closing)
        await server.close()
        await server.close()
        metadata = await open_metadata("memory:///")
        closing.push_async_callback(metadata.close)
        listener = open_listener(ListenerSettings(), "registry")
        schemas = Schemas(metadata.schemas)
        closing.callback(schemas.close)
        unstarted = RegistryServer(schemas, RegistrySettings(), [listener])
        await unstarted.close()

        assert listener.socket.fileno() == -1
