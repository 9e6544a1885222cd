"""A server gets SIGTERM under load: no client sees a failed request."""

import asyncio

import aiohttp

from fixtures.rest_server import MakeServers

BODY = b'{"records": [{"value": "YQ=="}]}'
HEADERS = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
CLIENT_COUNT = 8


async def test_no_request_fails_while_one_of_two_servers_drains(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.create("t")
    sent = 0
    told = asyncio.Event()
    busy = asyncio.Event()

    async def client() -> None:
        """Goes to the other server when its own closes the connection, as a balancer makes it do."""
        nonlocal sent
        node = first
        async with aiohttp.ClientSession() as session:
            while not (told.is_set() and node is second):
                async with session.post(f"{node.url}/topics/t", data=BODY, headers=HEADERS) as response:
                    assert response.status == 200, await response.text()
                    await response.read()
                    sent += 1
                    if response.headers.get("Connection") == "close":
                        node = second
                if sent > 10 * CLIENT_COUNT:
                    busy.set()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENT_COUNT):
            group.create_task(client())
        await busy.wait()
        await first.server.drain(10_000)
        told.set()
    view = await second.streams.catalog.find("t")
    bounds = await second.streams.bounds(view.partitions())

    assert first.server.open_count == 0
    assert sum(bound.end for bound in bounds.values()) == sent
