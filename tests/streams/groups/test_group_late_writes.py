"""Abandoned writes of a coordinator: what members read afterwards, and the state of the group in the meantime (I12)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import CommittedOffset, PartitionKey, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import GroupState, JoinRequest
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from fixtures.groups import RANGE, ref
from simulator.loop import virtual_time

WRITES = ("save", "commit_offsets", "delete_offsets", "delete")


class Groups:
    """The store's groups. While the store is `cut_off`, reads succeed and writes fail.

    The newest failed write takes effect later, at the latest when the next write that reaches the store begins.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.cut_off = False
        self.lost_count = 0
        """Further writes that fail as if the store were cut off."""
        self.error: Exception = Unavailable("cut off")
        self.hangs = False
        self.late: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in WRITES:
            return method

        async def write(*arguments: Any) -> None:
            if self.hangs:
                await asyncio.Event().wait()
            if self.cut_off or self.lost_count > 0:
                self.lost_count -= 1
                if name == "commit_offsets" and arguments[1]:
                    self.late = lambda: method(*arguments)
                raise self.error
            await self.happen()
            await method(*arguments)

        return write

    async def happen(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            await late()


class Store:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.groups = Groups(inner.groups)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Scene:
    """A coordinator, and its store."""

    async def open(self) -> "Scene":
        self.metadata = await open_metadata("memory:///")
        self.store = Store(self.metadata)
        self.groups = self.store.groups
        self.partition = (await self.metadata.streams.create(StreamSpec(name="t", partition_count=1))).partition(0)
        found = await register(self.metadata.servers, "1", zone=None, endpoints={}, version="", timeout_ms=6_000)
        self.one = Coordinator(self.store, Ownership(self.store, found.server, GroupSettings()))  # type: ignore[arg-type]
        return self

    async def commit(self, offset: int) -> Problem | None:
        value = CommittedOffset(offset=offset, leader_epoch=-1, metadata="")
        try:
            await self.one.commit(ref("g", "", None, -1), {self.partition: value})
        except GroupRefusal as refusal:
            return refusal.problem
        return None

    async def read(self) -> int | Problem:
        try:
            found = await self.one.offsets("g")
        except GroupRefusal as refusal:
            return refusal.problem
        return found[self.partition].offset

    async def close(self) -> None:
        await self.one.ownership.close()
        await self.metadata.close()


def request(member_id: str = "") -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=RANGE,
        requires_known_id=False,
        can_skip_assignment=False,
    )


@virtual_time
async def test_an_offset_that_was_read_after_a_failed_commit_does_not_change_without_another_commit():
    scene = await Scene().open()
    await scene.commit(1)
    scene.groups.cut_off = True
    failed = await scene.commit(2)
    while_cut_off = await scene.read()
    scene.groups.cut_off = False
    read = await scene.read()
    await scene.groups.happen()  # takes effect now, if it has not before

    assert failed is Problem.COORDINATOR_UNAVAILABLE
    assert while_cut_off in (Problem.COORDINATOR_UNAVAILABLE, 2)
    assert await scene.read() == read
    await scene.close()


@virtual_time
async def test_a_failed_commit_is_final_when_its_error_is_answered_if_the_store_answers():
    scene = await Scene().open()
    await scene.commit(1)
    scene.groups.lost_count = 1
    failed = await scene.commit(2)
    elsewhere = (await scene.metadata.groups.offsets("g"))[scene.partition].offset
    await scene.groups.happen()

    assert failed is Problem.COORDINATOR_UNAVAILABLE
    assert (await scene.metadata.groups.offsets("g"))[scene.partition].offset == elsewhere
    await scene.close()


@virtual_time
async def test_an_offset_that_was_read_after_a_commit_ended_by_a_bug_does_not_change_without_another_commit():
    scene = await Scene().open()
    await scene.commit(1)
    scene.groups.lost_count, scene.groups.error = 1, RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        await scene.commit(2)
    read = await scene.read()
    await scene.groups.happen()  # takes effect now, if it has not before

    assert await scene.read() == read
    await scene.close()


@virtual_time
async def test_the_answer_to_a_failed_commit_does_not_wait_for_a_store_that_is_silent():
    scene = await Scene().open()
    await scene.commit(1)
    scene.groups.cut_off = True
    await scene.commit(2)
    scene.groups.hangs = True

    async with asyncio.timeout(2):
        assert await scene.read() is Problem.COORDINATOR_UNAVAILABLE
    await scene.close()


class Member:
    """A client that repeats join and sync until both succeed, with the pause that clients make when a coordinator is away."""

    def __init__(self, coordinator: Coordinator, member_id: str) -> None:
        self._coordinator = coordinator
        self._id = member_id
        self.generations: set[int] = set()
        self.is_assigned = False

    async def run(self) -> None:
        while True:
            try:
                joined = await self._coordinator.join("g", request(self._id))
                self.generations.add(joined.generation)
                shares = {member.member_id: b"share" for member in joined.members}
                synced = await self._coordinator.sync(ref("g", self._id, None, joined.generation), (None, None), shares)
                self.is_assigned = synced.assignment == b"share"
                return
            except GroupRefusal as refusal:
                if refusal.problem is not Problem.REBALANCE_IN_PROGRESS:
                    await asyncio.sleep(0.1)


@virtual_time
async def test_no_further_generations_begin_while_the_store_accepts_no_writes():
    scene = await Scene().open()
    first = asyncio.create_task(scene.one.join("g", request()))
    first_id = (await first).member_id
    second = asyncio.create_task(scene.one.join("g", request()))
    await asyncio.sleep(0)
    scene.groups.cut_off = True
    await scene.one.join("g", request(first_id))
    second_id = (await second).member_id
    before = scene.one.owned()["g"].generation
    members = [Member(scene.one, first_id), Member(scene.one, second_id)]
    running = [asyncio.create_task(member.run()) for member in members]
    await asyncio.sleep(5)
    during = scene.one.owned()["g"].generation
    scene.groups.cut_off = False
    await asyncio.gather(*running)

    assert during == before
    assert all(member.is_assigned and member.generations == {before} for member in members)
    assert scene.one.owned()["g"].state is GroupState.STABLE
    await scene.close()


@virtual_time
async def test_no_member_joins_a_round_while_the_store_accepts_no_writes():
    scene = await Scene().open()
    member_id = (await scene.one.join("g", request())).member_id
    await scene.one.sync(ref("g", member_id, None, 1), (None, None), {member_id: b"all"})
    scene.groups.cut_off = True
    await scene.commit(1)  # fails: the coordinator knows now
    value = CommittedOffset(offset=1, leader_epoch=-1, metadata="")
    offsets: dict[PartitionKey, CommittedOffset] = {scene.partition: value}
    problems = []
    for work in (
        scene.one.commit(ref("g", member_id, None, 1), offsets),
        scene.one.join("g", request(member_id)),
        scene.one.join("g", request()),
    ):
        try:
            await work
        except GroupRefusal as refusal:
            problems.append(refusal.problem)
    await scene.one.heartbeat(ref("g", member_id, None, 1))

    assert problems == [Problem.COORDINATOR_UNAVAILABLE] * 3
    assert scene.one.owned()["g"].generation == 1
    await scene.close()
