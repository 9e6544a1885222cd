"""Background tasks: owned, cancelled at the end, and never dead unnoticed."""

import asyncio
import os
from contextlib import suppress

import pytest

from bearlake.owned_tasks import END_S, EXIT_CODE, TaskDied, Tasks
from simulator.loop import virtual_time


async def forever(seen: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("cancelled")


async def test_tasks_are_cancelled_when_the_block_ends() -> None:
    seen: list[str] = []

    async with Tasks() as tasks:
        tasks.own("a", forever(seen))
        tasks.own("b", forever(seen))
        await asyncio.sleep(0)

    assert seen == ["cancelled", "cancelled"]


async def test_a_task_that_fails_ends_the_block_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def broken() -> None:
        raise ZeroDivisionError

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever(seen))
            await asyncio.sleep(0)
            tasks.own("broken", broken())
            await asyncio.Event().wait()

    with pytest.raises(TaskDied, match="'broken'"):
        await block()

    assert seen == ["cancelled"]
    assert caplog.records[-1].task == "broken"  # type: ignore[attr-defined]
    assert caplog.records[-1].exc_info is not None


async def test_a_task_that_returns_counts_as_dead() -> None:
    async def done() -> None:
        return

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("done", done())
            await asyncio.Event().wait()

    with pytest.raises(TaskDied, match="'done'"):
        await block()


async def test_an_error_of_the_block_itself_is_raised() -> None:
    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever([]))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()


async def test_cancelling_the_block_cancels_the_tasks() -> None:
    seen: list[str] = []

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever(seen))
            await asyncio.Event().wait()

    running = asyncio.create_task(block())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["cancelled"]


async def ended_as_cancelled() -> None:
    """Ends as cancelled although nobody has cancelled it: what it awaits was cancelled."""
    broken = asyncio.get_running_loop().create_future()
    broken.cancel()
    await broken


async def test_a_task_that_ends_as_cancelled_on_its_own_counts_as_dead(caplog: pytest.LogCaptureFixture) -> None:
    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("stray", ended_as_cancelled())
            await tasks.run()

    async with asyncio.timeout(10):
        with pytest.raises(TaskDied, match="'stray'"):
            await block()
    assert [record.task for record in caplog.records] == ["stray"]  # type: ignore[attr-defined]


async def test_owners_around_pass_a_death_on_and_do_not_log_it_again(caplog: pytest.LogCaptureFixture) -> None:
    async def inner() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever([]))
            tasks.own("stray", ended_as_cancelled())
            await tasks.run()

    async def outer() -> None:
        async with Tasks() as tasks:
            tasks.own("a service", inner())
            await tasks.run()

    async with asyncio.timeout(10):
        with pytest.raises(TaskDied, match="'stray'"):
            await outer()
    assert [record.task for record in caplog.records] == ["stray"]  # type: ignore[attr-defined]


async def test_a_started_task_may_return_and_may_be_cancelled_by_its_starter() -> None:
    async def done() -> None:
        return

    async with Tasks() as tasks:
        returned, cancelled = tasks.start("returns", done()), tasks.start("is cancelled", forever([]))
        await returned
        cancelled.cancel()
        await asyncio.wait([cancelled])

    assert cancelled.cancelled()


async def test_a_started_task_that_ends_as_cancelled_on_its_own_counts_as_dead() -> None:
    async def block() -> None:
        async with Tasks() as tasks:
            await tasks.start("stray", ended_as_cancelled())

    async with asyncio.timeout(10):
        with pytest.raises(TaskDied, match="'stray'"):
            await block()


async def test_a_loop_that_cancels_all_tasks_is_no_death(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever(seen))
            await tasks.run()

    before = asyncio.all_tasks()
    running = asyncio.create_task(block())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in sorted(asyncio.all_tasks() - before, key=lambda found: found is running):  # the owner's last
        task.cancel()

    await asyncio.wait([running])
    assert running.cancelled()
    assert seen == ["cancelled"]
    assert not caplog.records


@pytest.mark.parametrize("end", ["fails", "ends as cancelled", "returns"])
async def test_a_task_that_dies_while_a_timeout_of_the_block_expires_is_dead(
    caplog: pytest.LogCaptureFixture, end: str
) -> None:
    is_cleaning = asyncio.Event()

    async def mortal() -> None:
        await is_cleaning.wait()
        if end == "fails":
            raise ZeroDivisionError
        if end == "ends as cancelled":
            await ended_as_cancelled()

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("mortal", mortal())
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    try:
                        await asyncio.Event().wait()
                    finally:
                        is_cleaning.set()
                        for _ in range(10):  # a clean-up takes some turns
                            await asyncio.sleep(0)
            await tasks.run()

    async with asyncio.timeout(10):
        with pytest.raises(TaskDied, match="'mortal'"):
            await block()
    assert [record.task for record in caplog.records] == ["mortal"]  # type: ignore[attr-defined]


async def test_a_task_that_fails_while_the_cancelled_block_cleans_up_is_no_death(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_cleaning = asyncio.Event()

    async def mortal() -> None:
        await is_cleaning.wait()
        raise ZeroDivisionError

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("mortal", mortal())
            try:
                await tasks.run()
            finally:
                is_cleaning.set()
                await asyncio.sleep(0.1)

    running = asyncio.create_task(block())
    await asyncio.sleep(0)
    running.cancel()

    await asyncio.wait([running])
    assert running.cancelled()
    assert [record.getMessage() for record in caplog.records] == ["a background task failed while it was being stopped"]


class Panic(BaseException):
    """As libraries in Rust raise it (pyo3's `PanicException`)."""


@pytest.mark.parametrize("error", [SystemExit(0), Panic("an assertion of a library")])
async def test_a_task_that_raises_what_is_no_exception_counts_as_dead(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def broken() -> None:
        raise error

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("broken", broken())
            await tasks.run()

    async with asyncio.timeout(10):
        with pytest.raises(TaskDied, match="'broken'"):
            await block()
    assert [record.task for record in caplog.records] == ["broken"]  # type: ignore[attr-defined]


async def test_a_task_that_returns_when_it_is_cancelled_is_no_death(caplog: pytest.LogCaptureFixture) -> None:
    async def obedient() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with Tasks() as tasks:
        tasks.own("obedient", obedient())
        await asyncio.sleep(0)

    assert not caplog.records


async def test_a_clean_up_that_fails_is_logged_and_no_death(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def untidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async with Tasks() as tasks:
        tasks.own("untidy", untidy())
        tasks.own("steady", forever(seen))
        await asyncio.sleep(0)

    assert seen == ["cancelled"]
    assert [record.getMessage() for record in caplog.records] == ["a background task failed while it was being stopped"]


async def test_an_error_of_the_block_itself_keeps_its_cause() -> None:
    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("steady", forever([]))
            raise KeyError("mine") from OSError("why")

    with pytest.raises(KeyError) as raised:
        await block()

    assert isinstance(raised.value.__cause__, OSError)


@virtual_time
async def test_a_task_that_does_not_end_ends_the_process_in_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ended, codes = asyncio.get_running_loop(), asyncio.Event(), list[tuple[float, int]]()

    def end(code: int) -> None:
        codes.append((loop.time(), code))
        ended.set()  # in a test, the process goes on

    async def stubborn() -> None:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    async def broken() -> None:
        raise ZeroDivisionError

    async def block() -> None:
        async with Tasks() as tasks:
            tasks.own("stubborn", stubborn())
            await asyncio.sleep(0)
            tasks.own("broken", broken())
            await tasks.run()

    monkeypatch.setattr(os, "_exit", end)
    began_s = loop.time()
    with pytest.raises(TaskDied, match="'broken'"):
        await block()

    assert [(round(at_s - began_s), code) for at_s, code in codes] == [(END_S, EXIT_CODE)]
    assert caplog.records[-1].unended == ["stubborn"]  # type: ignore[attr-defined]
