"""Bytes that calls have read and the write path does not have yet: their bound, their lines, clients' shares, and what connections keep."""

import asyncio

import pytest

from bearlake.errors import Overloaded
from bearlake.streams.relief import ReliefLine
from bearlake.streams.reservations import SMALL_BYTES, Reservation, Reservations
from simulator.loop import virtual_time

MIB = 1024 * 1024
BYTES_MAX = 100 * MIB


class Scene:
    """A write path with so many pending bytes as the test says."""

    def __init__(self, client_share: float = 1.0) -> None:
        self.pending_bytes = 0
        self.relief = ReliefLine(lambda: self.pending_bytes / self.reservations.left_bytes)
        self.reservations = Reservations(self.relief, lambda: self.pending_bytes, BYTES_MAX, client_share)

    async def call(
        self, size_bytes: int = SMALL_BYTES, wait_ms: int | None = None, client: str = "User:alice"
    ) -> Reservation:
        """A call that has had its turn and holds so many bytes."""
        reservation = await self.reservations.enter(client, wait_ms)
        await reservation.hold(size_bytes)
        return reservation

    def waiting(self, reservation: Reservation, size_bytes: int) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(reservation.hold(size_bytes))

    async def have(self, pending_bytes: int) -> None:
        self.pending_bytes = pending_bytes
        self.reservations.freed()
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@virtual_time
async def test_calls_hold_at_most_half_of_the_budget_and_one_call_more() -> None:
    scene = Scene()
    calls = [await scene.call() for _ in range(10)]
    tasks = [scene.waiting(call, 16 * MIB) for call in calls]
    await turns()

    assert [task.done() for task in tasks] == [True] * 4 + [False] * 6
    assert scene.reservations.size_bytes == 4 * 16 * MIB + 6 * SMALL_BYTES
    for task in tasks:
        task.cancel()


@virtual_time
async def test_those_who_wait_continue_in_order_as_others_give_back() -> None:
    scene = Scene()
    calls = [await scene.call() for _ in range(6)]
    tasks = [scene.waiting(call, 24 * MIB) for call in calls]
    await turns()
    assert [task.done() for task in tasks] == [True] * 3 + [False] * 3

    for call in calls:
        call.give_back()
        call.give_back()
        await turns()

    assert all(task.done() for task in tasks)
    assert scene.reservations.size_bytes == 0
    assert scene.reservations.left_bytes == BYTES_MAX


@virtual_time
async def test_calls_that_have_all_read_half_of_their_bytes_still_end() -> None:
    """Together they hold all that calls may hold, and none is complete."""
    scene = Scene()
    done: list[int] = []
    most = 0

    async def read(number: int) -> None:
        nonlocal most
        with await scene.reservations.enter("User:alice", None) as room:
            for size in range(1, 17):
                await room.hold(size * MIB)
                most = max(most, scene.reservations.size_bytes)
                await asyncio.sleep(0.001)
            done.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(read(number))

    assert sorted(done) == list(range(40))
    assert most <= BYTES_MAX // 2 + 16 * MIB + 40 * SMALL_BYTES


@virtual_time
async def test_what_calls_hold_counts_with_the_batches() -> None:
    scene = Scene()
    first, second = await scene.call(), await scene.call(10 * MIB)
    scene.pending_bytes = 85 * MIB
    over = await scene.call(20 * MIB)  # one call may exceed the bound

    task = scene.waiting(first, 10 * MIB)
    await turns()
    assert not task.done()
    await scene.have(60 * MIB)

    assert task.done()
    for call in (first, second, over):
        call.give_back()


@virtual_time
async def test_calls_leave_connections_half_of_the_budget_whatever_they_hold() -> None:
    scene = Scene()
    calls = [await scene.call(16 * MIB) for _ in range(4)]
    scene.pending_bytes = BYTES_MAX // 2
    assert not scene.relief.is_closed
    scene.pending_bytes += 1
    assert scene.relief.is_closed
    relieved: list[None] = []
    scene.relief.join(lambda: relieved.append(None))

    await scene.have(BYTES_MAX // 4 - 1)

    assert relieved
    assert scene.reservations.left_bytes == BYTES_MAX // 2
    assert len(calls) == 4


@virtual_time
async def test_calls_count_a_small_part_at_their_turn_and_connections_keep_half_beside_any_number_of_them() -> None:
    """A thousand calls continued in a few turns of the event loop, before any of them had read a byte that counts."""
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(scene.reservations.enter("User:alice", None)) for _ in range(1_000)]
    await turns()
    assert scene.reservations.size_bytes == 0

    scene.pending_bytes = 0
    scene.reservations.freed()
    calls = [await task for task in tasks]

    assert scene.reservations.size_bytes == 1_000 * SMALL_BYTES
    assert scene.reservations.left_bytes == BYTES_MAX // 2
    growing = [scene.waiting(call, MIB) for call in calls]
    await turns()
    assert sum(task.done() for task in growing) == 1
    for call in calls[:300]:
        await call.hold(100)
    await turns()
    assert scene.reservations.size_bytes <= BYTES_MAX // 2 + MIB
    for task in growing:
        task.cancel()


@virtual_time
async def test_a_call_that_waits_too_long_is_refused_and_leaves_the_line() -> None:
    scene = Scene()
    first = await scene.call(60 * MIB)
    second, third = await scene.call(wait_ms=1_000), await scene.call(wait_ms=3_000)
    asked = scene.waiting(second, 50 * MIB), scene.waiting(third, MIB)

    with pytest.raises(Overloaded):
        await asked[0]
    assert len(scene.reservations) == 1
    scene.pending_bytes = BYTES_MAX + 1
    with pytest.raises(Overloaded):
        await scene.reservations.enter("User:alice", 500)
    assert len(scene.relief) == 0
    scene.pending_bytes = 0
    first.give_back()
    await asked[1]

    assert third.size_bytes == MIB
    assert len(scene.reservations) == 0


@virtual_time
async def test_a_call_that_is_cancelled_at_its_turn_gives_its_bytes_back() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    task = asyncio.get_running_loop().create_task(scene.reservations.enter("User:alice", None))
    await turns()
    scene.relief.join(task.cancel)  # behind it in line, in the same turn of the event loop
    await scene.have(0)

    assert task.cancelled()
    assert scene.reservations.size_bytes == 0


@virtual_time
async def test_a_call_that_is_cancelled_in_line_lets_the_next_one_continue() -> None:
    scene = Scene()
    fitting, over = await scene.call(45 * MIB), await scene.call(20 * MIB)
    first, second = await scene.call(), await scene.call()
    tasks = scene.waiting(first, 40 * MIB), scene.waiting(second, MIB)
    await turns()
    fitting.give_back()
    await turns()
    assert [task.done() for task in tasks] == [False, False]

    tasks[0].cancel()
    await turns()

    assert tasks[0].cancelled()
    assert second.size_bytes == MIB
    assert over.size_bytes == 20 * MIB


@virtual_time
async def test_bytes_move_to_work_that_continues_without_its_caller() -> None:
    scene = Scene()
    with await scene.call(60 * MIB) as call:
        moved = call.moved()
    waiting = scene.waiting(await scene.call(), MIB)
    await turns()

    assert scene.reservations.size_bytes == 60 * MIB + SMALL_BYTES
    assert not waiting.done()
    moved.give_back()
    await waiting
    assert scene.reservations.size_bytes == MIB


@virtual_time
async def test_a_call_with_few_bytes_never_waits_for_those_with_many() -> None:
    scene = Scene()
    stalled = [await scene.call() for _ in range(8)]
    tasks = [scene.waiting(call, 16 * MIB) for call in stalled]
    await turns()

    small = await scene.call(SMALL_BYTES, wait_ms=1)

    assert small.size_bytes == SMALL_BYTES
    for task in tasks:
        task.cancel()


@virtual_time
async def test_callers_that_have_read_already_are_refused_once_those_who_wait_have_half_of_the_budget() -> None:
    """Their bytes are in memory, whether they wait or not."""
    scene = Scene()
    calls = [await scene.call() for _ in range(10)]
    scene.pending_bytes = BYTES_MAX + 1
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(call.read(16 * MIB)) for call in calls]
    await turns()

    assert [task.done() for task in tasks] == [True] + [False] * 3 + [True] * 6  # the first one may exceed the bound
    assert tasks[0].exception() is None
    assert {type(task.exception()) for task in tasks[4:]} == {Overloaded}
    calls[0].give_back()
    await scene.have(0)
    for call in calls[1:4]:
        assert call.size_bytes == 16 * MIB
        call.give_back()
    await calls[4].read(60 * MIB)
    assert calls[4].size_bytes == 60 * MIB


@virtual_time
async def test_messages_of_streams_that_wait_are_refused_once_they_have_the_whole_budget() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(scene.reservations.admit("User:alice", None, 16 * MIB)) for _ in range(10)]
    await turns()

    assert [task.done() for task in tasks] == [False] * 6 + [True] * 4
    assert {type(task.exception()) for task in tasks[6:]} == {Overloaded}
    await scene.have(0)
    for task in tasks[:6]:
        (await task).give_back()
    assert scene.reservations.size_bytes == 0


@virtual_time
async def test_a_client_whose_calls_stall_takes_its_share_and_one_call_more_and_others_read_on() -> None:
    scene = Scene(client_share=0.5)
    stalled = [await scene.call() for _ in range(20)]
    tasks = [scene.waiting(call, 16 * MIB) for call in stalled]
    await turns()
    assert sum(task.done() for task in tasks) == 2  # 32 of 50 MiB: one within the share of 25 MiB, and one more

    other = await scene.call(16 * MIB, wait_ms=1, client="User:bob")

    assert other.size_bytes == 16 * MIB
    for task in tasks:
        task.cancel()
    await turns()
    assert len(scene.reservations) == 0


@virtual_time
async def test_a_clients_calls_that_have_all_read_half_of_its_share_still_end() -> None:
    scene = Scene(client_share=0.5)
    done: list[int] = []

    async def read(number: int) -> None:
        with await scene.reservations.enter("User:alice", None) as room:
            for size in range(1, 17):
                await room.hold(size * MIB)
                await asyncio.sleep(0.001)
            done.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(read(number))

    assert sorted(done) == list(range(20))
    assert scene.reservations.size_bytes == 0


@virtual_time
async def test_clients_that_wait_for_the_common_bound_continue_by_turns() -> None:
    """A client with many calls in line holds up the calls of others by one call each time."""
    scene = Scene(client_share=0.5)
    holding = await scene.call(49 * MIB, client="User:carol")
    alice = [await scene.call() for _ in range(4)]
    bob = await scene.call(client="User:bob")
    order: list[str] = []

    async def wait(who: str, call: Reservation) -> None:
        await call.hold(24 * MIB)
        order.append(who)
        await asyncio.sleep(1)
        call.give_back()

    loop = asyncio.get_running_loop()
    over = await scene.call(24 * MIB, client="User:dave")  # the one that may exceed the bound
    tasks = [loop.create_task(wait("alice", call)) for call in alice]
    await turns()
    tasks.append(loop.create_task(wait("bob", bob)))
    await turns()
    assert order == []
    holding.give_back()
    over.give_back()
    await asyncio.gather(*tasks)

    assert order.index("bob") < 3
    assert order.count("alice") == 4


@virtual_time
async def test_messages_of_one_client_that_wait_leave_room_for_those_of_others() -> None:
    scene = Scene(client_share=0.5)
    scene.pending_bytes = BYTES_MAX + 1
    loop = asyncio.get_running_loop()
    names = ["User:alice"] * 5 + ["User:bob"] * 2
    tasks = [loop.create_task(scene.reservations.admit(name, None, 16 * MIB)) for name in names]
    await turns()

    assert [task.done() for task in tasks] == [False] * 3 + [True] * 2 + [False] * 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_nothing_is_remembered_of_clients_whose_calls_have_ended() -> None:
    scene = Scene(client_share=0.5)
    for number in range(100):
        (await scene.call(16 * MIB, client=f"User:{number}")).give_back()
    waiting = scene.waiting(await scene.call(client="User:x"), 200 * MIB)
    await turns()
    assert waiting.done()

    assert list(scene.reservations._clients) == ["User:x"]  # noqa: SLF001
