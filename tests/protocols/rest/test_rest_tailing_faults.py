"""Exactly once at /v1/stream: servers crash, the metadata store fails or loses replies, and each acknowledged record is stored once."""

import asyncio
import random

import aiohttp
import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from fixtures.rest_server import Answer, MakeServers, RestNode
from fixtures.waiting import until

JSON = {"Content-Type": "application/json"}
TRY_COUNT = 200
COUNT = 30


async def until_done(servers: list[RestNode], path: str, value: int, headers: dict[str, str]) -> Answer:
    """Post to one server after the other until one succeeds."""
    for turn in range(TRY_COUNT):
        try:
            answer = await servers[turn % len(servers)].post(path, b"[%d]" % value, headers=JSON | headers)
        except aiohttp.ClientError:
            continue  # the server has gone
        if answer.status in (200, 204):
            return answer
        assert answer.status == 503, answer
    raise AssertionError("no server did it")


def producer(name: str, sequence: int) -> dict[str, str]:
    return {"Producer-Id": name, "Producer-Epoch": "0", "Producer-Seq": str(sequence)}


async def test_appends_to_servers_that_die_are_there_once(rest_servers: MakeServers) -> None:
    survivor, victim = await rest_servers(2)
    await survivor.put("/v1/stream/t", b"", headers=JSON)
    for n in range(COUNT):
        task = asyncio.create_task(until_done([victim, survivor], "/v1/stream/t", n, producer("p", n)))
        if n % 10 == 5:
            for _ in range(n):  # somewhere on its way
                await asyncio.sleep(0)
            await victim.stop()
        await task
        if n % 10 == 5:
            (victim,) = await rest_servers(1)

    assert (await survivor.get("/v1/stream/t")).body == list(range(COUNT))


@pytest.mark.parametrize("seed", range(4))
async def test_appends_are_there_once_whatever_the_store_loses(rest_servers: MakeServers, seed: int) -> None:
    faulty: list[FaultyMetadata] = []

    def stores(metadata: Metadata) -> Metadata:
        faulty.append(FaultyMetadata(metadata, MetadataFaults(), random.Random(10 * seed + len(faulty))))
        return faulty[-1]

    first, second = await rest_servers(2, stores=stores)
    await first.put("/v1/stream/t", b"", headers=JSON)
    for store in faulty:
        store.misbehave(MetadataFaults(error_rate=0.1, lost_reply_rate=0.1))
    randomness = random.Random(seed)
    for n in range(COUNT):
        servers = [first, second] if randomness.random() < 0.5 else [second, first]
        await until_done(servers, "/v1/stream/t", n, producer("p", n))
    closing = {**producer("p", COUNT), "Stream-Closed": "true"}
    closed = await until_done([second, first], "/v1/stream/t", COUNT, closing)
    for store in faulty:
        store.misbehave(MetadataFaults())
    head = await first.metadata.log.head()
    await until(lambda: first.streams.seen.position >= head)
    seen = await first.get("/v1/stream/t")

    assert closed.headers["Stream-Closed"] == "true"
    assert (seen.body, seen.headers["Stream-Closed"]) == (list(range(COUNT + 1)), "true")
