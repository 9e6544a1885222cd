"""Threads for blocking calls: who owns a call, what the queue holds, and how it ends."""

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from bearlake.errors import Unavailable
from bearlake.threads import Borrowed, Threads
from fixtures.waiting import WAIT_S, until

Open = Callable[..., Threads]


class Gate:
    """A step that waits on its thread until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.reached.set()
        assert self.go_on.wait(WAIT_S)
        return threading.current_thread().name


@pytest.fixture
async def open_threads() -> AsyncIterator[Open]:
    opened: list[Threads] = []

    def start(count: int = 1, pending_count_max: int | None = None, deadline_ms: int | None = None) -> Threads:
        threads = Threads("test", count, pending_count_max=pending_count_max, deadline_ms=deadline_ms)
        opened.append(threads)
        return threads

    yield start
    for threads in opened:
        threads.close()
        await asyncio.to_thread(threads.join)


async def running(threads: Threads, step: Callable[[], object]) -> "asyncio.Task[object]":
    """Start a call; returns once it has been submitted."""
    task = asyncio.ensure_future(threads.run(step))
    await asyncio.sleep(0)
    return task


async def occupied(threads: Threads, gate: Gate) -> "asyncio.Task[object]":
    """Occupy one thread until the gate opens; again if a busy machine let the deadline pass first."""
    task = await running(threads, gate)
    while not gate.reached.is_set():
        if task.done():
            task = await running(threads, gate)
        await asyncio.sleep(0.001)
    return task


def named() -> list[threading.Thread]:
    """The threads of the test."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("test_")]


async def cancelled(task: "asyncio.Task[object]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_returns_its_result_or_raises_its_error_from_a_named_thread(open_threads: Open) -> None:
    threads = open_threads(2)

    assert await threads.run(lambda: threading.current_thread().name) == "test_0"
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: 7) == 7


async def test_calls_at_the_same_time_run_on_as_many_threads_as_allowed(open_threads: Open) -> None:
    threads = open_threads(2)
    gates = [Gate(), Gate()]
    tasks = [await occupied(threads, gate) for gate in gates]
    late = await running(threads, lambda: threading.current_thread().name)
    for gate in gates:
        gate.go_on.set()

    assert {await task for task in tasks} == {"test_0", "test_1"}
    assert await late in {"test_0", "test_1"}


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_withdrawn_call_never_runs_and_the_queue_does_not_hold_it(
    open_threads: Open, is_cancelled: bool
) -> None:
    threads = open_threads(deadline_ms=None if is_cancelled else 20)
    gate, ran = Gate(), list[str]()
    holder = await occupied(threads, gate)
    step = lambda: ran.append("withdrawn")  # noqa: E731 - an object of its own, which the test watches
    held = weakref.ref(step)
    queued = await running(threads, step)
    if is_cancelled:
        queued.cancel()
    await asyncio.wait([holder, queued] if not is_cancelled else [queued])
    assert queued.cancelled() or isinstance(queued.exception(), TimeoutError)
    del step, queued
    await asyncio.sleep(0)
    held_before = held()
    gate.go_on.set()
    await asyncio.wait([holder])

    assert held_before is None  # although its place in the queue was still taken
    while True:
        try:
            await threads.run(lambda: ran.append("later"))
            break
        except TimeoutError:  # a busy machine
            continue
    assert set(ran) == {"later"}


async def test_a_cancelled_caller_leaves_a_running_call_to_its_end(open_threads: Open) -> None:
    threads = open_threads()
    gate = Gate()
    task = await occupied(threads, gate)
    await cancelled(task)
    gate.go_on.set()

    assert await threads.run(lambda: "next") == "next"


async def test_borrowed_buffers_return_only_when_the_thread_has_released_them(open_threads: Open) -> None:
    threads = open_threads()
    gate, borrowed = Gate(), Borrowed()

    def step() -> None:
        gate()
        borrowed.release()

    task = asyncio.ensure_future(threads.run(step, borrowed))
    assert await asyncio.to_thread(gate.reached.wait, WAIT_S)
    for _ in range(3):  # repeated cancellation does not help either
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert not task.done()
    gate.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_while_buffers_are_awaited_takes_effect_once_they_are_free() -> None:
    borrowed = Borrowed()  # as after the deadline of a call, whose caller would try again
    task = asyncio.ensure_future(borrowed.wait())
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    borrowed.release()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_withdrawn_call_does_not_wait_for_its_buffers(open_threads: Open) -> None:
    threads = open_threads()
    gate = Gate()
    holder = await occupied(threads, gate)
    queued = asyncio.ensure_future(threads.run(lambda: None, Borrowed()))
    await asyncio.sleep(0)
    await cancelled(queued)
    gate.go_on.set()
    await holder


@pytest.mark.parametrize("pending_count_max", [1, 2, 3])
async def test_the_deadline_ends_calls_that_run_are_queued_or_wait_for_a_place(
    open_threads: Open, pending_count_max: int
) -> None:
    threads = open_threads(pending_count_max=pending_count_max, deadline_ms=20)
    gate, ran = Gate(), list[int]()
    running_call = await occupied(threads, gate)
    others = [await running(threads, lambda at=at: ran.append(at)) for at in range(2)]  # type: ignore[misc]
    for call in (running_call, *others):
        with pytest.raises(TimeoutError):
            await call
    gate.go_on.set()
    while True:
        try:
            await threads.run(lambda: ran.append(9))
            break
        except TimeoutError:  # the thread has not passed over the withdrawn calls yet
            continue

    assert ran[-1] == 9
    assert not {0, 1} & set(ran)


async def test_the_queue_is_bounded_while_every_thread_hangs(open_threads: Open) -> None:
    threads = open_threads(pending_count_max=3)
    gate, ran = Gate(), list[int]()
    holder = await occupied(threads, gate)
    for _ in range(20):
        await cancelled(await running(threads, lambda: None))
    last = [await running(threads, lambda at=at: ran.append(at)) for at in range(5)]  # type: ignore[misc]

    assert threads.pending_count == 3
    gate.go_on.set()
    await asyncio.gather(holder, *last)
    assert ran == [0, 1, 2, 3, 4]


async def test_close_ends_the_threads_after_the_queued_calls(open_threads: Open) -> None:
    threads = open_threads(pending_count_max=2)
    gate = Gate()
    holder, queued, waiting = (
        await occupied(threads, gate),
        await running(threads, lambda: "queued"),
        await running(threads, lambda: "waiting"),
    )
    threads.close()
    gate.go_on.set()
    await holder

    assert await queued == "queued"
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await threads.run(lambda: None)
    await asyncio.to_thread(threads.join)
    await until(lambda: not named())  # `join` may return just before a thread's last instructions


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_died_is_replaced(open_threads: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = open_threads()
    loop = asyncio.get_running_loop()
    died = threading.Event()

    def fail(*_: object) -> None:
        died.set()
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_soon_threadsafe", fail, raising=True)
        lost = await running(threads, lambda: None)
        assert died.wait(WAIT_S)
        for thread in named():
            thread.join(WAIT_S)

    assert await threads.run(lambda: "alive") == "alive"
    await cancelled(lost)


def no_thread(thread: threading.Thread) -> None:
    """As `Thread.start` when the system refuses more threads."""
    raise RuntimeError("can't start new thread")


async def test_a_system_without_threads_refuses_calls_and_leaves_no_place_taken(
    open_threads: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = open_threads(pending_count_max=2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        for _ in range(3):
            with pytest.raises(Unavailable, match="no thread"):
                await threads.run(lambda: None)

    assert threads.pending_count == 0
    assert await threads.run(lambda: "later") == "later"


async def test_a_thread_that_is_refused_leaves_its_call_to_the_others(
    open_threads: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = open_threads(2)
    gate = Gate()
    holder = await occupied(threads, gate)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        queued = await running(threads, lambda: "done")
    gate.go_on.set()

    assert await queued == "done"
    assert await holder == "test_0"


@pytest.mark.parametrize("deadline_ms", [None, 3_600_000])
async def test_nothing_holds_a_call_its_result_or_its_error_after_its_end(
    open_threads: Open, deadline_ms: int | None
) -> None:
    class Buffers:
        def __call__(self) -> "Buffers":
            return self

        def fail(self) -> None:
            raise ZeroDivisionError

    threads = open_threads(deadline_ms=deadline_ms)
    for is_failing in (False, True):
        buffers = Buffers()
        held = weakref.ref(buffers)
        if is_failing:
            with pytest.raises(ZeroDivisionError):
                await threads.run(buffers.fail)
        else:
            assert await threads.run(buffers) is buffers
        del buffers

        await until(lambda held=held: held() is None)  # type: ignore[misc]  # the thread may still be on its way to the queue


async def test_many_idle_threads_end_at_close(open_threads: Open) -> None:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads end while `close` wakes the others
    try:
        for _ in range(20):
            threads = open_threads(8)
            gates = [Gate() for _ in range(8)]
            tasks = [await running(threads, gate) for gate in gates]
            for gate in gates:
                gate.go_on.set()
            await asyncio.gather(*tasks)
            threads.close()
            threads.join()
    finally:
        sys.setswitchinterval(interval_s)

    await until(lambda: not named())  # `join` may return just before a thread's last instructions
