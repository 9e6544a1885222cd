"""Lag of consumer groups over the admin API, from both metadata stores."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import BatchCommit, CommittedOffset, ObjectCommit, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.serving.admin.lag import LagRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings

TIMEOUT = aiohttp.ClientTimeout(total=30)


class Api:
    """An admin API, and a client of it."""

    def __init__(self, http: aiohttp.ClientSession, metadata: Metadata, member: RegisteredServer) -> None:
        self.http = http
        self.metadata = metadata
        self.member = member

    async def groups(self, **query: str) -> Any:
        async with self.http.get("/v1/groups", params=query) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def write(self, name: str, index: int, count: int) -> None:
        stream = await self.metadata.streams.get(name)
        batch = BatchCommit(stream.partition(index), 0, 10, count, 0)
        token = f"wal/{name}/{index}"
        commit = ObjectCommit(token=token, server=self.member.server, size=10, batches=[batch])
        await self.metadata.log.commit(commit)

    async def read(self, group: str, name: str, offsets: dict[int, int]) -> None:
        stream = await self.metadata.streams.get(name)
        lease = await self.metadata.leases.acquire(f"group/{group}", self.member.server)
        committed = {stream.partition(index): CommittedOffset(offset=offset) for index, offset in offsets.items()}
        await self.metadata.groups.commit_offsets(group, committed, lease)


@pytest.fixture(params=["memory", "postgresql"])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    url = "memory:///" if request.param == "memory" else request.getfixturevalue("postgresql_url")
    async with AsyncExitStack() as closing:
        metadata = await open_metadata(url)
        closing.push_async_callback(metadata.close)
        for name in ("a", "b"):
            await metadata.streams.create(StreamSpec(name=name, partition_count=2))
        member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
        listener = open_listener(ListenerSettings(), "admin")
        server = AdminServer(listener, metadata.log, member, AdminSettings(), routes=[LagRoutes(metadata)])
        await server.start()
        closing.push_async_callback(server.close)
        http = aiohttp.ClientSession(f"http://{server.endpoints['admin']}", timeout=TIMEOUT)
        await closing.enter_async_context(http)
        yield Api(http, metadata, member)


async def test_the_lag_counts_readable_records_behind_the_committed_offsets(api: Api) -> None:
    await api.write("a", 0, 10)
    await api.write("a", 1, 5)
    await api.write("b", 0, 7)
    await api.read("g", "a", {0: 4, 1: 5})
    await api.read("g", "b", {0: 0})

    (group,) = (await api.groups())["groups"]

    assert (group["group"], group["lag"], group["partition_count"]) == ("g", 13, 3)
    assert group["streams"] == [{"stream": "b", "lag": 7}, {"stream": "a", "lag": 6}]


async def test_trimmed_records_and_deleted_streams_do_not_count(api: Api) -> None:
    await api.write("a", 0, 10)
    await api.write("b", 0, 10)
    await api.read("g", "a", {0: 0})
    await api.read("g", "b", {0: 0})
    stream = await api.metadata.streams.get("a")
    await api.metadata.log.trim(stream.partition(0), 8)
    await api.metadata.streams.delete((await api.metadata.streams.get("b")).number)

    (group,) = (await api.groups())["groups"]

    assert (group["lag"], group["streams"]) == (2, [{"stream": "a", "lag": 2}])


async def test_groups_are_listed_page_by_page(api: Api) -> None:
    for name in ("x", "z", "y"):
        await api.read(name, "a", {0: 0})

    first = await api.groups(limit="2")
    second = await api.groups(limit="2", after=first["next"])

    assert [row["group"] for row in first["groups"]] == ["x", "y"]
    assert ([row["group"] for row in second["groups"]], second["next"]) == (["z"], None)
    assert (await api.groups(after="z"))["groups"] == []
