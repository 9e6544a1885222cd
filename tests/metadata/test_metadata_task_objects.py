"""Objects of compaction tasks in every store (I10): a key belongs to the task that prepared it or to the sweep, whichever was first."""

import random
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata, task_object_rules
from bearlake.metadata.compaction import OffsetRange, TaskClaim
from bearlake.metadata.model import ObjectKind
from bearlake.metadata.task_object_rules import UNKNOWN, KeyState
from fixtures import by_name
from fixtures.compaction_scene import Compaction
from fixtures.liveness import lapse

WEEKS_MS = 60 * 24 * 3_600_000


@pytest.fixture
async def three(compaction: Compaction) -> Compaction:
    """A stream with three partitions of 10 records in one slice each."""
    scene = compaction.scene
    scene.first = await scene.stream(partition_count=3)
    scene.keys = [scene.first.partition(index) for index in range(3)]
    await scene.commit(*(scene.batch(key, 10) for key in scene.keys))
    return compaction


async def heir_of(three: Compaction, peer: Metadata) -> TaskClaim:
    """Another worker claims the task, weeks after the first one's last heartbeat."""
    await three.scene.backend.advance(WEEKS_MS)
    assert await lapse(peer, three.worker)
    heir = await three.scene.register(peer, "worker-1", timeout_ms=10 * WEEKS_MS)
    (task,) = await peer.tasks.claim(heir, limit=1, bytes_max=1 << 40)
    return TaskClaim(task_id=task.id, epoch=task.epoch, worker=heir)


async def test_prepared_objects_are_not_forbidden_however_long_their_task_stays_open(
    three: Compaction, peer: Metadata
) -> None:
    key = three.scene.keys[0]
    claim = await three.claimed((key, 0, 10))
    file = three.file(await three.segments((key, 0, 10)))
    await three.metadata.tasks.prepare(claim, b"result", [file.object.key, "kept/1"])
    heir = await heir_of(three, peer)
    forbidden = await peer.objects.forbid([file.object.key, "kept/1", "kept/nobodys"])
    by_token = await peer.log.forbid([file.object.key, "kept/1"])

    assert forbidden == {"kept/nobodys"}
    assert by_token == set()
    await peer.log.swap(three.swap(heir, file))
    assert [located_slice.object_key for located_slice in await three.slices((key, 0, 10))] == [file.object.key]


async def test_an_object_that_was_forbidden_is_never_prepared_by_the_claim_that_wrote_it(
    three: Compaction, peer: Metadata
) -> None:
    """The worker is paused for weeks between put and prepare, and no other worker claims its task."""
    key = three.scene.keys[0]
    claim = await three.claimed((key, 0, 10))
    file = three.file(await three.segments((key, 0, 10)))
    assert await peer.objects.forbid([file.object.key]) == {file.object.key}
    for _ in range(3):
        await three.scene.backend.advance(WEEKS_MS)
        await three.scene.maintain(entry_count_min=0)
        await peer.objects.forbid(["data/another"])

    with pytest.raises(Conflict):
        await three.metadata.tasks.prepare(claim, b"result", ["data/fine", file.object.key])
    with pytest.raises(Conflict):
        await three.metadata.log.swap(three.swap(claim, file))
    assert (await three.slices((key, 0, 10)))[0].object.kind is ObjectKind.WAL
    assert await peer.objects.forbid(["data/fine"]) == {"data/fine"}, "the refused call registered nothing"


async def test_a_worker_whose_objects_were_forbidden_writes_new_ones(three: Compaction, peer: Metadata) -> None:
    key = three.scene.keys[0]
    claim = await three.claimed((key, 0, 10))
    await peer.objects.forbid(["data/first"])
    with pytest.raises(Conflict):
        await three.metadata.tasks.prepare(claim, b"result", ["data/first"])
    await three.swapped(claim, three.file(await three.segments((key, 0, 10)), key="data/second"))

    assert [located_slice.object_key for located_slice in await three.slices((key, 0, 10))] == ["data/second"]


async def test_bans_are_dropped_once_the_claims_of_their_time_have_ended(three: Compaction, peer: Metadata) -> None:
    """A key is unique to an attempt, so only the store's answer shows: a forgotten key can be registered again."""
    claim = await three.claimed((three.scene.keys[0], 0, 10))
    await peer.objects.forbid(["data/old"])
    await three.metadata.tasks.release([claim])
    again = await three.claim()
    await peer.objects.forbid([])

    await three.metadata.tasks.prepare(again, None, ["data/old"])


@pytest.mark.parametrize("ending", ["swapped", "cancelled", "dropped with its stream"])
async def test_objects_that_a_closed_task_left_behind_may_be_swept(
    three: Compaction, peer: Metadata, ending: str
) -> None:
    key = three.scene.keys[0]
    claim = await three.claimed((key, 0, 10))
    file = three.file(await three.segments((key, 0, 10)), key="data/winner")
    await three.metadata.tasks.prepare(claim, b"result", ["data/winner", "data/loser"])
    assert await peer.objects.forbid(["data/winner", "data/loser"]) == set()
    if ending == "swapped":
        await three.metadata.log.swap(three.swap(claim, file))
    elif ending == "cancelled":
        await three.metadata.tasks.cancel(claim)
    else:
        await three.metadata.tasks.release([claim])
        await by_name.delete(peer, "orders")
        assert await three.metadata.tasks.claim(three.worker, limit=1, bytes_max=1) == []

    expected = {"data/loser"} if ending == "swapped" else {"data/winner", "data/loser"}
    assert await peer.objects.forbid(["data/winner", "data/loser"]) == expected


async def test_a_swap_accepts_only_objects_that_its_own_task_has_prepared(three: Compaction, peer: Metadata) -> None:
    first, second = three.scene.keys[:2]
    first_claim, second_claim = await three.claimed((first, 0, 10)), await three.claimed((second, 0, 10))
    await three.metadata.tasks.prepare(second_claim, b"result", ["data/other"])
    segments = await three.segments((first, 0, 10))

    for key in ("data/nobodys", "data/other"):
        with pytest.raises(Conflict):
            await three.metadata.log.swap(three.swap(first_claim, three.file(segments, key=key)))
    with pytest.raises(Conflict):
        await peer.tasks.prepare(first_claim, b"result", ["data/other"])
    await three.swapped(first_claim, three.file(segments, key="data/own"))


async def test_an_object_that_is_in_the_index_is_neither_prepared_nor_forbidden_again(
    three: Compaction, peer: Metadata
) -> None:
    file = await three.compacted((three.scene.keys[0], 0, 10))
    claim = await three.claimed((three.scene.keys[1], 0, 10))

    assert await peer.objects.forbid([file.object.key, "wal/00000001"]) == set()
    for key in (file.object.key, "wal/00000001"):
        with pytest.raises(Conflict):
            await three.metadata.tasks.prepare(claim, None, [key])


async def test_only_the_newest_claim_prepares(three: Compaction, peer: Metadata) -> None:
    claim = await three.claimed((three.scene.keys[0], 0, 10))
    heir = await heir_of(three, peer)

    with pytest.raises(Fenced):
        await three.metadata.tasks.prepare(claim, b"late", ["data/late"])
    assert await peer.objects.forbid(["data/late"]) == {"data/late"}
    await peer.tasks.prepare(heir, b"result", ["data/heir"])
    await peer.tasks.prepare(heir, b"result", ["data/heir"])


async def test_the_next_claimant_swaps_in_the_objects_of_an_earlier_epoch(three: Compaction, peer: Metadata) -> None:
    key = three.scene.keys[0]
    claim = await three.claimed((key, 0, 10))
    file = three.file(await three.segments((key, 0, 10)))
    await three.metadata.tasks.prepare(claim, b"result", [file.object.key])
    heir = await heir_of(three, peer)

    position = await peer.log.swap(three.swap(heir, file))

    found = await peer.log.slices([OffsetRange(key, 0, 10)])
    assert {located.object_key for located in found} == {file.object.key}
    assert [(located.slice.base_offset, located.slice.end_offset) for located in found] == [(0, 10)]
    assert position == await peer.log.head()
    assert await three.metadata.tasks.list() == []


async def test_a_released_task_can_be_delayed(three: Compaction) -> None:
    tasks = three.metadata.tasks
    claim = await three.claimed((three.scene.keys[0], 0, 10))
    await tasks.release([claim], wait_ms=5_000)

    assert await tasks.claim(three.worker, limit=1, bytes_max=1) == []
    (listed,) = await tasks.list()
    assert (listed.wait_ms, listed.attempt_count) == (5_000, 0)
    await three.scene.backend.advance(5_000)
    assert len(await tasks.claim(three.worker, limit=1, bytes_max=1)) == 1


class Keys:
    """The rules (`metadata/task_object_rules.py`) in the form of a store."""

    def __init__(self) -> None:
        self.states: dict[str, KeyState] = {}
        self.held: dict[int, int] = {}
        """Number of the newest claim by task, while it has not ended."""
        self.claim_count = 0

    def state(self, key: str) -> KeyState:
        return self.states.get(key, UNKNOWN)

    def claimed(self, task_id: int) -> None:
        self.claim_count += 1
        self.held[task_id] = self.claim_count

    def prepare(self, task_id: int, keys: list[str]) -> bool:
        if not all(task_object_rules.may_prepare(self.state(key), task_id) for key in keys):
            return False
        for key in keys:
            self.states[key] = self.state(key)._replace(task_id=task_id)
        return True

    def forbid(self, keys: list[str]) -> set[str]:
        self.forget()
        found = {key for key in keys if task_object_rules.may_forbid(self.state(key))}
        for key in found:
            if self.state(key) == UNKNOWN:
                self.states[key] = KeyState(forbidden_at=self.claim_count)
        return found

    def swap(self, task_id: int, key: str) -> bool:
        if not task_object_rules.may_swap_in(self.state(key), task_id):
            return False
        self.states[key] = KeyState(is_indexed=True)
        self.close(task_id)
        return True

    def close(self, task_id: int) -> None:
        self.held.pop(task_id, None)
        for key, state in self.states.items():
            if state.task_id == task_id:
                self.states[key] = state._replace(task_id=0)

    def forget(self) -> None:
        for key, state in list(self.states.items()):
            if state.forbidden_at >= 0 and task_object_rules.may_forget_ban(state.forbidden_at, self.held.values()):
                del self.states[key]


@pytest.mark.parametrize("seed", range(4))
async def test_every_store_decides_as_the_rules_do(three: Compaction, peer: Metadata, seed: int) -> None:
    draw = random.Random(seed)
    rules, claims = Keys(), dict[int, Any]()
    names = [f"data/{number}" for number in range(8)]
    offsets = dict.fromkeys(three.scene.keys, 0)
    partition_of: dict[int, Any] = {}
    for _ in range(80):
        step = draw.choice(["offer", "prepare", "prepare", "forbid", "forbid", "swap", "release", "cancel"])
        keys = draw.sample(names, 2)
        task_id = draw.choice(sorted(claims)) if claims else 0
        if step == "forbid":
            assert await peer.objects.forbid(keys) == rules.forbid(keys)
        elif step == "offer":
            free = [key for key in three.scene.keys if key not in partition_of.values()]
            for key in free[:1]:
                await three.scene.commit(three.scene.batch(key, 10))
                end = (await peer.log.bounds([key]))[key].end
                claim = await three.claimed((key, offsets[key], end))
                claims[claim.task_id], partition_of[claim.task_id] = claim, key
                rules.claimed(claim.task_id)
        elif not claims:
            continue
        elif step == "prepare":
            try:
                await peer.tasks.prepare(claims[task_id], None, keys)
                is_done = True
            except Conflict:
                is_done = False
            assert is_done == rules.prepare(task_id, keys)
        elif step == "release":
            await peer.tasks.release([claims[task_id]])
            claims[task_id] = await three.claim()
            rules.claimed(task_id)
        elif step == "cancel":
            await peer.tasks.cancel(claims.pop(task_id))
            del partition_of[task_id]
            rules.close(task_id)
        else:
            key = partition_of[task_id]
            (task,) = [task for task in await peer.tasks.list() if task.id == task_id]
            file = three.file(await three.segments(*map(tuple, task.ranges)), key=keys[0])  # type: ignore[arg-type]
            try:
                await peer.log.swap(three.swap(claims[task_id], file))
                is_done = True
            except Conflict:
                is_done = False
            assert is_done == rules.swap(task_id, keys[0])
            if is_done:
                offsets[key] = task.ranges[0].end
                del claims[task_id], partition_of[task_id]
