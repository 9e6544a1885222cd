"""Access rules for waiting readers: a revoked right ends a long poll and an event stream before the next record."""

import asyncio
from base64 import b64encode
from typing import Any

import aiohttp
import pytest

from bearlake.streams.access.rights import Right
from bearlake.streams.principal import Operation, Resource
from bearlake.telemetry import metrics
from fixtures.rest_consumer import Client, produce, values
from fixtures.rest_server import RestNode
from fixtures.rights import EVERY, OnlyRights
from fixtures.waiting import until

WRITES = OnlyRights([Right(Operation.WRITE, Resource.STREAM)])
SECRET = b64encode(b"secret")
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
async def node(rest: RestNode) -> RestNode:
    rest.streams.authorizer = OnlyRights(EVERY)
    assert (await rest.put("/v1/stream/t", b"first", headers=OCTETS)).status == 201
    return rest


async def revoke_and_append(node: RestNode) -> None:
    await until(lambda: metrics.REST_FOLLOWERS.value)
    node.streams.authorizer = WRITES
    assert (await node.post("/v1/stream/t", b"secret", headers=OCTETS)).status == 204


async def test_a_long_poll_is_refused_after_its_right_is_revoked(node: RestNode) -> None:
    offset = (await node.ask("HEAD", "/v1/stream/t")).headers["Stream-Next-Offset"]
    polling = asyncio.create_task(node.get(f"/v1/stream/t?live=long-poll&offset={offset}"))
    await revoke_and_append(node)
    assert (await polling).status == 403


async def test_events_end_after_their_right_is_revoked(node: RestNode) -> None:
    offset = (await node.ask("HEAD", "/v1/stream/t")).headers["Stream-Next-Offset"]
    url = f"{node.url}/v1/stream/t?live=sse&offset={offset}"
    async with node.session.get(url, timeout=aiohttp.ClientTimeout(total=60)) as response:
        assert response.status == 200
        await revoke_and_append(node)
        assert SECRET not in await response.read()


async def test_a_consumers_poll_is_refused_after_its_right_is_revoked_and_skips_nothing(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.streams.authorizer = OnlyRights(EVERY)
    await rest.create("t")
    client = await Client.create(rest)
    await client.subscribe("t")
    await client.poll(0)
    fetch, waits = rest.streams.fetch, asyncio.Event()

    def begun(*arguments: Any, **options: Any) -> Any:
        waits.set()
        return fetch(*arguments, **options)

    monkeypatch.setattr(rest.streams, "fetch", begun)
    polling = asyncio.create_task(client.poll(60_000))
    await waits.wait()
    rest.streams.authorizer = WRITES
    await produce(rest, "t", b"secret")
    answer = await polling
    rest.streams.authorizer = OnlyRights(EVERY)

    assert answer.status == 403
    assert SECRET.decode() not in str(answer.body)
    assert values(await client.poll()) == [b"secret"]
