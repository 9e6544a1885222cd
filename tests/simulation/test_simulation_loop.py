"""The loop of the simulation: virtual time, seeded order between processes, asyncio's order within a process, paused processes."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from simulator.loop import Process, SimulationLoop, Stuck, current_process


def new_loop(seed: int = 1) -> SimulationLoop:
    return SimulationLoop(random.Random(seed))


def start(loop: SimulationLoop, process: Process, work: Coroutine[Any, Any, None]) -> None:
    loop.create_task(work, context=process.context.copy())


def test_virtual_time_passes_only_when_nothing_can_run() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        for _ in range(1_000):
            await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.sleep(3_000)
        times.append(loop.time())
        return times

    loop = new_loop()
    try:
        assert [round(at, 3) for at in loop.run(main())] == [0, 0, 3_000]
    finally:
        loop.close()


def test_a_timer_never_fires_early() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for wait in (0.1, 1e-9, 1 / 3, 0.7):
            due = loop.time() + wait
            await asyncio.sleep(wait)
            assert loop.time() >= due

    loop = new_loop()
    try:
        loop.run(main())
    finally:
        loop.close()


def interleaving(seed: int) -> list[str]:
    """The order in which two processes of three tasks each run their steps."""
    loop = new_loop(seed)
    steps: list[str] = []

    async def work(number: int) -> None:
        for step in range(3):
            steps.append(f"{current_process()}{step}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        for name in "ab":
            process = loop.process(name)
            for number in range(3):
                start(loop, process, work(number))
        await asyncio.sleep(1)

    try:
        loop.run(main())
    finally:
        loop.close()
    return steps


def test_a_process_keeps_its_order_and_the_seed_determines_how_processes_interleave() -> None:
    orders = {tuple(interleaving(seed)) for seed in range(20)}

    assert len(orders) > 10
    for order in orders:
        for name in "ab":
            assert [step[1:] for step in order if step[0] == name] == [f"{s}{n}" for s in range(3) for n in range(3)]
    assert interleaving(5) == interleaving(5)


def test_a_paused_process_does_nothing_until_it_is_resumed() -> None:
    loop = new_loop()
    steps: list[tuple[str, int]] = []

    async def work() -> None:
        while True:
            steps.append((current_process(), int(loop.time())))
            await asyncio.sleep(1)

    async def main() -> None:
        first, second = loop.process("one"), loop.process("other")
        start(loop, first, work())
        start(loop, second, work())
        await asyncio.sleep(1.5)
        loop.pause(first)
        await asyncio.sleep(3)
        loop.resume(first)
        await asyncio.sleep(1)

    try:
        loop.run(main())
    finally:
        loop.close()
    assert [at for name, at in steps if name == "other"][:5] == [0, 1, 2, 3, 4]
    assert [at for name, at in steps if name == "one"][:3] == [0, 1, 4]


def test_no_finally_block_of_a_crashed_process_runs_before_the_end() -> None:
    loop = new_loop()
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            steps.append("went on")
        finally:
            steps.append("finally")

    async def main() -> None:
        process = loop.process("crashes")
        start(loop, process, work())
        await asyncio.sleep(0.5)
        loop.pause(process)
        await asyncio.sleep(10)
        assert steps == []

    try:
        loop.run(main())
    finally:
        loop.close()
    assert "finally" in steps


def test_a_run_that_can_never_end_is_stuck() -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    loop = new_loop()
    try:
        with pytest.raises(Stuck, match="nothing can run"):
            loop.run(forever())
    finally:
        loop.close()


def test_a_run_that_takes_too_long_is_stuck() -> None:
    loop = new_loop()
    try:
        with pytest.raises(Stuck, match="virtual seconds"):
            loop.run(_tick(), time_max_s=10)
    finally:
        loop.close()


async def _tick() -> None:
    for _ in range(1_000):
        await asyncio.sleep(1)


def test_an_error_that_is_never_retrieved_is_a_failure() -> None:
    async def bad() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        asyncio.get_running_loop().create_task(bad())
        await asyncio.sleep(1)

    loop = new_loop()
    try:
        loop.run(main())
    finally:
        loop.close()
    assert "ValueError" in str(loop.failures)


def test_an_error_is_not_a_failure_until_the_owner_of_its_task_has_run() -> None:
    loop = new_loop()
    process = loop.process("a")
    seen: list[BaseException] = []

    async def fail_and_freeze() -> None:
        loop.pause(process)
        raise ValueError("lost")

    async def owner() -> None:
        try:
            await asyncio.create_task(fail_and_freeze())
        except ValueError as error:
            seen.append(error)

    async def main() -> None:
        start(loop, process, owner())
        await asyncio.sleep(1)
        many = [asyncio.sleep(0) for _ in range(2_000)]  # the loop drops tasks that are done
        await asyncio.gather(*many)

    loop.run(main())
    loop.close()

    assert len(seen) == 1
    assert not loop.failures
