"""Lines: who continues when a client owes nothing any more, and when. The clock is the test's; passes of the event loop are real."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.metadata.quotas import Entity, QuotaChange, QuotaKey
from bearlake.streams.principal import ANONYMOUS, Principal
from bearlake.streams.quotas.buckets import QuotaSettings
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.lines import Waiter
from fixtures.quotas import ManualTimers

BYTES = QuotaKey.PRODUCER_BYTE_RATE


async def one_pass() -> None:
    """Let everything run that is ready now."""
    await asyncio.sleep(0)


class Scene:
    """A client that may use 100 bytes in a second, with a burst of 100; and what its waiters began."""

    def __init__(self, control: QuotaControl, timers: ManualTimers) -> None:
        self.control = control
        self.timers = timers
        self.begun: list[str] = []
        self.cost = 50
        self.waiters: dict[str, Waiter] = {}

    def ask(self, name: str, who: Principal = ANONYMOUS) -> bool:
        """Begin a request if it is admitted; its first step runs, and is charged, in the next pass."""
        waiter = self.waiters.setdefault(name, Waiter(lambda: self.ask(name, who)))
        admitted = self.control.lines.admits(waiter, who, (BYTES,))
        if admitted:
            self.begun.append(name)
            asyncio.get_running_loop().call_soon(self.control.charge, who, BYTES, self.cost)
        return admitted


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    metadata = await open_metadata("memory:///")
    timers = ManualTimers()
    control = QuotaControl(
        metadata.quotas,
        QuotaSettings(burst_ms=1000, throttle_ms_max=30_000),
        clock=timers,
        call_later=timers.call_later,
    )
    await control.change([QuotaChange(Entity(user="ANONYMOUS"), BYTES, 100.0)])
    yield Scene(control, timers)
    await metadata.close()


async def test_those_who_wait_continue_one_after_another_in_the_order_in_which_they_came(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 200)
    assert [scene.ask(name) for name in "abcd"] == [False] * 4

    for count, wait_s in enumerate([1.0, 0.5, 0.5, 0.5], start=1):
        scene.timers.advance(wait_s)
        for _ in range(5):
            await one_pass()
        assert "".join(scene.begun) == "abcd"[:count]  # then 50 bytes are owed


async def test_one_begins_in_each_pass_while_nothing_is_owed(scene: Scene) -> None:
    scene.cost = 1
    scene.control.charge(ANONYMOUS, BYTES, 101)
    assert not any(scene.ask(name) for name in "abc")
    scene.timers.advance(0.2)

    assert scene.begun == ["a"]
    await one_pass()
    assert scene.begun == ["a", "b"]
    await one_pass()
    assert scene.begun == ["a", "b", "c"]


async def test_a_newcomer_waits_behind_those_who_wait(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 101)
    scene.ask("a")
    scene.timers.now += 1.0  # nothing is owed any more, and the line has not looked yet

    assert not scene.ask("b")
    scene.timers.advance(0.0)
    assert scene.begun == ["a"]


async def test_clients_that_come_back_together_begin_one_by_one(scene: Scene) -> None:
    """Those who were told how long to wait come back at the moment when nothing is owed: nobody waits, and all would begin at once."""
    scene.control.charge(ANONYMOUS, BYTES, 200)
    scene.timers.advance(1.0)

    assert [scene.ask(name) for name in "abc"] == [True, False, False]
    for _ in range(5):
        await one_pass()
    assert scene.begun == ["a"]  # and then 50 bytes are owed


async def test_a_client_with_a_saved_burst_meets_no_line(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 200)
    scene.timers.advance(1.5)

    assert [scene.ask(name) for name in "abc"] == [True, True, True]
    assert scene.control.lines.waiting_count == 0


async def test_who_leaves_keeps_nobody_waiting(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 200)
    for name in "ab":
        scene.ask(name)
    scene.waiters["a"].leave()
    assert not scene.waiters["a"].is_waiting
    scene.timers.advance(1.0)

    assert scene.begun == ["b"]


async def test_who_has_its_turn_and_does_not_use_it_loses_it(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 200)
    idle = Waiter(lambda: None)
    assert not scene.control.lines.admits(idle, ANONYMOUS, (BYTES,))
    scene.ask("a")
    scene.timers.advance(1.0)
    assert not scene.begun
    await one_pass()

    assert scene.begun == ["a"]


async def test_a_quota_that_is_lifted_keeps_nobody_waiting(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 10_000)
    scene.ask("a")
    await scene.control.change([QuotaChange(Entity(user="ANONYMOUS"), BYTES, None)])
    for _ in range(3):
        await one_pass()

    assert scene.begun == ["a"]


async def test_bytes_that_were_paid_in_advance_and_not_used_let_the_next_one_continue(scene: Scene) -> None:
    usage = scene.control.usage
    assert usage is not None
    with usage.advanced(ANONYMOUS, BYTES, 1000):
        assert not scene.ask("a")
        assert usage.due_s(ANONYMOUS, BYTES) == 9.0
    scene.control.lines.look_at(ANONYMOUS, (BYTES,))
    await one_pass()
    await one_pass()

    assert scene.begun == ["a"]


async def test_clients_do_not_wait_for_one_another(scene: Scene) -> None:
    scene.control.charge(ANONYMOUS, BYTES, 10_000)
    scene.ask("a")

    assert scene.ask("b", Principal("User", "bob"))


async def test_paced_work_continues_in_turn(scene: Scene) -> None:
    begun: list[int] = []

    async def paced(number: int) -> None:
        await scene.control.pace(ANONYMOUS, BYTES)
        begun.append(number)
        scene.control.charge(ANONYMOUS, BYTES, 50)

    scene.control.charge(ANONYMOUS, BYTES, 200)
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(paced(number))
        await one_pass()
        scene.timers.advance(1.0)
        for count in (1, 2, 3):
            for _ in range(5):
                await one_pass()
            assert begun == list(range(count))
            scene.timers.advance(0.5)
