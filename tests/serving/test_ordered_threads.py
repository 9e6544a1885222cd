"""Threads for steps of two parts: what runs at the same time, what in order, and in which thread."""

import asyncio
import itertools
import random
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.ordered_threads import OrderedThreads
from fixtures.waiting import WAIT_S, until

Open = Callable[[int], OrderedThreads]


class Steps:
    """Starts numbered steps whose first parts wait for the test, and records what happens."""

    def __init__(self, threads: OrderedThreads) -> None:
        self._threads = threads
        self._gates: list[threading.Event] = []
        self.reached: set[int] = set()
        self.happened: list[str] = []
        self.thread_names: list[str] = []
        """Of second parts."""
        self.errors: list[BaseException | None] = []

    def start(self, first: Exception | None = None, second: Exception | None = None) -> None:
        """Start the next step, whose parts raise these errors."""
        number, gate = len(self._gates), threading.Event()
        self._gates.append(gate)

        def run_first() -> None:
            self.reached.add(number)
            assert gate.wait(WAIT_S)
            self.happened.append(f"first {number}")
            if first is not None:
                raise first

        def run_second() -> None:
            self.happened.append(f"second {number}")
            self.thread_names.append(threading.current_thread().name)
            if second is not None:
                raise second

        def ended(error: BaseException | None) -> None:
            self.happened.append(f"ended {number}")
            self.errors.append(error)

        self._threads.start(run_first, run_second, ended)

    async def release(self, number: int) -> None:
        """End the first part of a step; returns once it is over."""
        self._gates[number].set()
        await until(lambda: f"first {number}" in self.happened)

    async def ended(self, count: int) -> None:
        """Wait until `count` steps have ended."""
        await until(lambda: len(self.errors) == count)


@pytest.fixture
async def open_threads() -> AsyncIterator[Open]:
    opened: list[OrderedThreads] = []

    def start(count: int) -> OrderedThreads:
        opened.append(OrderedThreads("test", count))
        return opened[-1]

    yield start
    for threads in opened:
        threads.close()
    await until(lambda: not named())


def named() -> list[threading.Thread]:
    """The threads of the test."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("test_")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_second_parts_and_ends_follow_the_order_of_the_steps(open_threads: Open, order: tuple[int, ...]) -> None:
    steps = Steps(open_threads(3))
    for _ in order:
        steps.start()
    await until(lambda: len(steps.reached) == 3)
    for number in order:
        await steps.release(number)
    await steps.ended(3)

    for part in ("first", "second", "ended"):
        numbers = [int(event.split()[1]) for event in steps.happened if event.startswith(part)]
        assert numbers == (list(order) if part == "first" else [0, 1, 2])


async def test_no_thread_waits_for_the_turn_of_its_step(open_threads: Open) -> None:
    steps = Steps(open_threads(2))
    for _ in range(4):
        steps.start()
    for number in (1, 2, 3):
        await steps.release(number)

    assert steps.happened == ["first 1", "first 2", "first 3"]  # by one thread
    await steps.release(0)
    await steps.ended(4)


async def test_steps_one_after_the_other_use_one_thread(open_threads: Open) -> None:
    steps = Steps(open_threads(4))
    steps.start()
    steps.start()
    await steps.release(1)
    await steps.release(0)
    await steps.ended(2)
    for number in range(2, 50):
        steps.start()
        await steps.release(number)
        await steps.ended(number + 1)

    assert len(set(steps.thread_names[2:])) == 1
    assert len(named()) == 2


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_parts_and_ends_of_many_steps_keep_their_order(
    open_threads: Open, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    soon = loop.call_soon_threadsafe

    def slowly(*arguments: Any) -> asyncio.Handle:
        for _ in range(draw.randrange(4)):
            time.sleep(0)  # lets other threads run
        return soon(*arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", slowly)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = open_threads(count)
        seconds: list[int] = []
        ends: list[int] = []
        is_busy = threading.Lock()
        draw = random.Random(count)

        def start(number: int) -> None:
            work = draw.randrange(200)

            def second() -> None:
                assert is_busy.acquire(blocking=False)
                seconds.append(number)
                is_busy.release()

            def ended(error: BaseException | None) -> None:
                assert error is None
                ends.append(number)

            threads.start(lambda: sum(range(work)), second, ended)

        for number in range(2_000):
            if number - len(ends) > draw.randrange(6):
                await asyncio.sleep(0)
            start(number)
        await until(lambda: len(ends) == 2_000)

        assert seconds == ends == list(range(2_000))
        assert len(named()) <= count
    finally:
        sys.setswitchinterval(interval_s)


async def test_an_error_is_told_and_does_not_stop_the_steps_behind(open_threads: Open) -> None:
    steps = Steps(open_threads(2))
    first, second = ValueError("first"), ValueError("second")
    steps.start(first, second)
    steps.start(second=second)
    steps.start()
    for number in range(3):
        await steps.release(number)
    await steps.ended(3)

    assert steps.errors == [first, second, None]
    assert [event for event in steps.happened if event.startswith("second")] == ["second 0", "second 1", "second 2"]


async def test_closing_ends_the_threads_after_the_steps_that_were_started(open_threads: Open) -> None:
    threads = open_threads(1)
    steps = Steps(threads)
    steps.start()
    steps.start()
    threads.close()
    with pytest.raises(Unavailable):
        steps.start()
    await steps.release(0)
    await steps.release(1)
    await steps.ended(2)

    await until(lambda: not named())


async def test_a_system_without_threads_refuses_a_step_and_uses_the_threads_that_it_has(
    open_threads: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = open_threads(2)
    steps = Steps(threads)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable):
            threads.start(lambda: None, lambda: None, lambda error: None)
    steps.start()
    await until(lambda: bool(steps.reached))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        steps.start()
    await steps.release(0)
    await steps.release(1)
    await steps.ended(2)

    assert steps.thread_names == ["test_0"] * 2


async def test_nothing_holds_a_step_or_its_error_after_its_end(open_threads: Open) -> None:
    class Buffers:
        def __call__(self) -> None:
            raise ZeroDivisionError

    threads = open_threads(2)
    ends: list[None] = []
    for number in range(1, 3):
        buffers = Buffers()
        held = weakref.ref(buffers)
        threads.start(buffers, lambda: None, lambda error: ends.append(None))
        del buffers
        await until(lambda number=number: len(ends) == number)  # type: ignore[misc]

        await until(lambda held=held: held() is None)  # type: ignore[misc]  # the thread may still be on its way
