"""The byte gate: bounded, in order, and a cancelled waiter leaves nothing behind."""

import asyncio
import random

from bearlake.cache.gate import ByteGate
from simulator.loop import virtual_time


async def pass_through(gate: ByteGate, size: int, passed: list[int] | None = None) -> None:
    async with gate.hold(size):
        if passed is not None:
            passed.append(size)
        await asyncio.sleep(1)


@virtual_time
async def test_bytes_pass_in_order_and_bounded() -> None:
    gate = ByteGate(10)
    passed: list[int] = []
    sizes = [4, 6, 9, 1, 20, 3]
    tasks = [asyncio.create_task(pass_through(gate, size, passed)) for size in sizes]

    held = []
    for _ in range(5):
        await asyncio.sleep(0.5)
        held.append(gate.held_bytes)
        await asyncio.sleep(0.5)
    await asyncio.gather(*tasks)

    assert passed == sizes
    assert held == [10, 10, 20, 3, 0]


@virtual_time
async def test_a_waiter_that_gives_up_when_its_turn_arrives_holds_nothing() -> None:
    gate = ByteGate(10)
    first, second, third = (asyncio.create_task(pass_through(gate, 8)) for _ in range(3))
    await asyncio.sleep(0.5)

    first.cancel()
    second.cancel()
    await asyncio.wait([third])

    assert gate.held_bytes == 0
    assert third.exception() is None
    assert asyncio.get_running_loop().time() < 2


@virtual_time
async def test_a_caller_that_gives_up_at_any_time_leaves_nothing_held() -> None:
    draw = random.Random(1)
    gate = ByteGate(10)
    tasks = [asyncio.create_task(pass_through(gate, draw.randint(1, 12))) for _ in range(200)]
    for task in draw.sample(tasks, 100):
        await asyncio.sleep(draw.random())
        task.cancel()

    await asyncio.wait(tasks)

    assert gate.held_bytes == 0
    await asyncio.wait_for(pass_through(gate, 12), 2)
