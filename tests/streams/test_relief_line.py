"""The line for room in the write path: order, turns, and who does not starve."""

import asyncio
from collections.abc import Callable
from functools import partial

from bearlake.streams.append import AppendCall, Verdict
from bearlake.streams.relief import RESUMED_AT_ONCE, ReliefLine
from fixtures.deployment import append_of, batch_of, create, deployment
from fixtures.failing_stores import SlowStore, settings
from simulator.loop import virtual_time

BYTES_MAX = 100


class Scene:
    """A line, and the bytes that wait as the test says."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.resumed: list[object] = []
        self.line = ReliefLine(lambda: self.pending_bytes / BYTES_MAX)

    def waiter(self, name: object, size_bytes: int = 0) -> Callable[[], None]:
        """A caller that adds so many bytes when its turn has come."""
        return partial(self._resume, name, size_bytes)

    def _resume(self, name: object, size_bytes: int) -> None:
        assert not self.line.is_closed
        self.resumed.append(name)
        self.pending_bytes += size_bytes

    async def have(self, pending_bytes: int) -> None:
        self.pending_bytes = pending_bytes
        self.line.relieve()
        for _ in range(3):
            await asyncio.sleep(0)


@virtual_time
async def test_the_line_moves_in_order_once_less_than_half_of_the_budget_is_used() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    for name in "abc":
        scene.line.join(scene.waiter(name))

    await scene.have(BYTES_MAX // 2)
    assert scene.resumed == []
    await scene.have(BYTES_MAX // 2 - 1)

    assert scene.resumed == ["a", "b", "c"]
    assert not scene.line.is_closed


@virtual_time
async def test_while_one_waits_nobody_passes() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    scene.line.join(scene.waiter("a"))

    await scene.have(BYTES_MAX - 1)

    assert scene.line.is_closed


@virtual_time
async def test_nobody_passes_between_the_relief_and_the_first_call() -> None:
    """Callers that were just answered send again in this time. If they could use up the budget, nobody in line would be called."""
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    scene.line.join(scene.waiter("a"))

    scene.pending_bytes = 0
    scene.line.relieve()

    assert scene.line.is_closed
    await asyncio.sleep(0)
    assert scene.resumed == ["a"]
    assert not scene.line.is_closed


@virtual_time
async def test_who_comes_while_the_line_moves_goes_to_its_end() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    for number in range(RESUMED_AT_ONCE + 1):
        scene.line.join(scene.waiter(number))
    scene.pending_bytes = 0
    scene.line.relieve()
    await asyncio.sleep(0)

    assert scene.line.is_closed
    scene.line.join(scene.waiter("late"))
    await asyncio.sleep(0)

    assert scene.resumed == [*range(RESUMED_AT_ONCE + 1), "late"]


@virtual_time
async def test_callers_for_whom_there_is_no_more_room_keep_their_places() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    for name in "abc":
        scene.line.join(scene.waiter(name, 60))
    await scene.have(0)
    scene.line.join(scene.waiter("d"))

    assert scene.resumed == ["a", "b"]
    assert scene.line.is_closed
    await scene.have(0)
    assert scene.resumed == ["a", "b", "c", "d"]


@virtual_time
async def test_callers_continue_in_turns_of_the_event_loop() -> None:
    scene = Scene()
    scene.pending_bytes = BYTES_MAX + 1
    for number in range(2 * RESUMED_AT_ONCE + 1):
        scene.line.join(scene.waiter(number))
    counts = []
    scene.pending_bytes = 0
    scene.line.relieve()
    for _ in range(4):
        counts.append(len(scene.resumed))
        await asyncio.sleep(0)

    assert counts == [0, RESUMED_AT_ONCE, 2 * RESUMED_AT_ONCE, 2 * RESUMED_AT_ONCE + 1]


@virtual_time
async def test_a_caller_that_leaves_is_not_called_and_opens_the_line_for_others() -> None:
    scene = Scene()
    waiter = scene.waiter("a")
    scene.pending_bytes = BYTES_MAX + 1
    scene.line.join(waiter)
    scene.line.join(waiter)
    assert len(scene.line) == 1
    scene.pending_bytes = BYTES_MAX

    scene.line.leave(waiter)
    scene.line.leave(waiter)

    assert not scene.line.is_closed
    await scene.have(0)
    assert scene.resumed == []


@virtual_time
async def test_a_caller_that_joins_while_there_is_room_continues() -> None:
    """No write ends then that could let the line move."""
    scene = Scene()

    scene.line.join(scene.waiter("a"))
    await asyncio.sleep(0)

    assert scene.resumed == ["a"]


@virtual_time
async def test_a_small_producer_that_waits_gets_its_turn_beside_big_ones_that_use_most_of_the_budget() -> None:
    """Ten big producers send again at once, so that more than half of the budget would be used all the time."""
    async with deployment(SlowStore(0.1)) as stores:
        streams = await stores.serve(
            settings(bytes_max=20_000, object_bytes_max=1_500, flush_bytes=1_000, puts_in_flight_max=4)
        )
        view = await create(streams)
        loop = asyncio.get_running_loop()
        turns: list[float] = []
        verdicts: list[int] = []
        is_over = False

        def send(call: AppendCall | None = None) -> None:
            verdicts.extend(result.verdict for result in (call.results if call is not None else ()))
            if is_over:
                return
            if streams.is_over_budget:
                streams.on_relief(partial(send))
            else:
                streams.submit(AppendCall([append_of(view, batch_of(b"a" * 1_000))], send, 0))

        for _ in range(15):
            send()
        for _ in range(10):
            send()
        start = loop.time()
        streams.on_relief(lambda: turns.append(loop.time() - start))
        await asyncio.sleep(20)
        is_over = True
        await streams.drain()

        assert turns
        assert turns[0] < 1
        assert len(verdicts) > 500
        assert set(verdicts) == {Verdict.ACCEPTED}


@virtual_time
async def test_a_producer_that_waits_gets_its_turn_beside_calls_that_send_again_as_soon_as_they_are_answered() -> None:
    """Each answer continues a task, which runs before the line moves. Two tasks together use up the budget."""
    async with deployment(SlowStore(0.1)) as stores:
        streams = await stores.serve(
            settings(bytes_max=20_000, object_bytes_max=30_000, flush_bytes=24_000, puts_in_flight_max=1)
        )
        view = await create(streams)
        loop = asyncio.get_running_loop()
        turns: list[float] = []
        is_over = False

        async def send() -> None:
            while not is_over:
                if streams.is_over_budget:
                    relieved = asyncio.Event()
                    streams.on_relief(relieved.set)
                    await relieved.wait()
                await streams.append([append_of(view, batch_of(b"a" * 12_000))], 0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            tasks.create_task(send())
            await asyncio.sleep(0.01)
            start = loop.time()
            streams.on_relief(lambda: turns.append(loop.time() - start))
            await asyncio.sleep(20)
            is_over = True

        assert turns
        assert turns[0] < 1


@virtual_time
async def test_many_small_batches_use_up_the_budget_as_large_ones_do() -> None:
    """A batch takes up to 2 KiB beside its bytes: the bytes alone would allow thirty times the memory."""
    async with deployment(SlowStore(1.0)) as stores:
        streams = await stores.serve(settings(batch_count_max=10, object_batch_count_max=4))
        view = await create(streams)
        relieved: list[float] = []
        loop = asyncio.get_running_loop()
        done: list[AppendCall] = []
        for count in range(11):
            assert not streams.is_over_budget, count
            streams.submit(AppendCall([append_of(view, batch_of(b"a"))], done.append, 0))

        is_over = streams.is_over_budget
        streams.on_relief(lambda: relieved.append(loop.time()))
        await streams.drain()

        assert is_over
        assert len(done) == 11
        assert len(relieved) == 1
        assert not streams.is_over_budget
