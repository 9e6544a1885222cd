"""What a coordinator that releases a group in a rebalance leaves to the next one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupState, Joined
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from fixtures.groups import ref
from fixtures.server_pair import request
from simulator.loop import virtual_time

SESSION_MS = 45_000


@asynccontextmanager
async def coordinators() -> AsyncIterator[tuple[Coordinator, Coordinator, Metadata]]:
    """Two servers on one store."""
    metadata = await open_metadata("memory:///")
    found = []
    for name in ("1", "2"):
        server = (await register(metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=6_000)).server
        found.append(Coordinator(metadata, Ownership(metadata, server, GroupSettings())))
    yield found[0], found[1], metadata
    for coordinator in found:
        await coordinator.ownership.close()
    await metadata.close()


async def refused(work: Awaitable[Any]) -> Problem:
    with pytest.raises(GroupRefusal) as caught:
        await work
    return caught.value.problem


async def join(groups: Coordinator, member_id: str = "", **changes: Any) -> Joined:
    return await groups.join("g", request(member_id=member_id, session_timeout_ms=SESSION_MS, **changes))


async def two_members(groups: Coordinator, **changes: Any) -> tuple[str, str]:
    """A stable group of two members, in generation 2; returns their ids. The first one leads."""
    first = await join(groups, **changes)
    await groups.sync(ref("g", first.member_id, None, 1), (None, None), {})
    joining = asyncio.create_task(join(groups))
    await asyncio.sleep(0.1)
    await join(groups, first.member_id, **changes)
    second = await joining
    ids = first.member_id, second.member_id
    await asyncio.gather(
        groups.sync(ref("g", ids[0], None, 2), (None, None), {ids[0]: b"one half", ids[1]: b"other half"}),
        groups.sync(ref("g", ids[1], None, 2), (None, None), {}),
    )
    return ids


async def rebalanced_s(groups: Coordinator, member_id: str, generation: int) -> float:
    """Send a heartbeat each second, until one is answered with a rebalance; return how long that took."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    try:
        while True:
            await groups.heartbeat(ref("g", member_id, None, generation))
            await asyncio.sleep(1)
    except GroupRefusal as refusal:
        if refusal.problem is not Problem.REBALANCE_IN_PROGRESS:
            raise
    return loop.time() - started_s


@virtual_time
async def test_members_rebalance_at_once_after_another_has_left_a_draining_coordinator() -> None:
    async with coordinators() as (first, second, _):
        leaving, staying = await two_members(first)

        await first.leave(ref("g", leaving))
        await first.ownership.drain()
        waited_s = await rebalanced_s(second, staying, 2)
        joined = await join(second, staying)

        assert waited_s < 2
        assert [member.member_id for member in joined.members] == [staying]
        assert joined.generation == 3


@virtual_time
async def test_a_generation_that_was_not_saved_keeps_no_departed_member() -> None:
    async with coordinators() as (first, second, _):
        leaving, staying = await two_members(first)
        await first.leave(ref("g", leaving))
        assert (await join(first, staying)).generation == 3
        started_s = asyncio.get_running_loop().time()

        await first.ownership.drain()
        problem = await refused(second.sync(ref("g", staying, None, 3), (None, None), {staying: b"all"}))
        joined = await join(second, staying)
        while [member.member_id for member in joined.members] != [staying]:
            await rebalanced_s(second, staying, joined.generation)
            joined = await join(second, staying)

        assert problem is Problem.ILLEGAL_GENERATION
        assert asyncio.get_running_loop().time() - started_s < 2


@virtual_time
async def test_a_static_member_that_has_left_does_not_return_with_the_next_coordinator() -> None:
    async with coordinators() as (first, second, _):
        leaving, staying = await two_members(first, instance_id="static")

        await first.leave(ref("g", leaving, "static"))
        await first.ownership.drain()

        assert await rebalanced_s(second, staying, 2) < 2


@virtual_time
async def test_members_that_have_not_rejoined_yet_keep_their_sessions() -> None:
    async with coordinators() as (first, second, metadata):
        members = await two_members(first)
        joining = asyncio.create_task(join(first))
        await asyncio.sleep(0.1)
        stored = await metadata.groups.load("g")

        await first.ownership.drain()
        assert await refused(joining) is Problem.NOT_COORDINATOR
        for member in members:
            await second.heartbeat(ref("g", member, None, 2))
        await asyncio.sleep(SESSION_MS / 1000 - 1)

        assert await metadata.groups.load("g") == stored
        assert set((await second.describe("g")).members) == set(members)
        assert (await second.describe("g")).state is GroupState.STABLE


@virtual_time
async def test_a_lease_is_released_even_if_the_departed_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinators() as (first, second, metadata):
        leaving, staying = await two_members(first)
        await first.leave(ref("g", leaving))

        async def fail(*_: object) -> None:
            raise Unavailable("lost")

        with monkeypatch.context() as patched:
            patched.setattr(metadata.groups, "save", fail)
            await first.ownership.drain()

        assert await first.holder("g") is None
        await second.heartbeat(ref("g", staying, None, 2))
