"""Access rules for waiting readers of Durable Streams: a revoked right ends a long poll and an event stream before the next record."""

import asyncio
from base64 import b64encode

import aiohttp
import pytest

from bearlake.streams.access.rights import Right
from bearlake.streams.principal import Operation, Resource
from bearlake.telemetry import metrics
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
