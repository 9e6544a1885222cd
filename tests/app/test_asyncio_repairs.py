"""Timeouts of tasks that were asked to stop before: in clean-up, and after a task group has failed."""

import asyncio

import pytest

import bearlake.asyncio_repairs  # noqa: F401 - importing the package repairs a Python that needs it


async def _fail() -> None:
    await asyncio.sleep(0)
    raise ConnectionError


async def _fail_in_a_group() -> None:
    """Fail while the group waits for its end: unrepaired, a Python before 3.13 keeps a request to cancel the task."""
    group = asyncio.TaskGroup()
    with pytest.raises(ExceptionGroup):
        async with group:
            group.create_task(_fail())


async def test_a_timeout_after_a_failed_task_group_raises_timeout_error() -> None:
    await _fail_in_a_group()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_timeout_around_a_failed_task_group_raises_timeout_error() -> None:
    async def work() -> None:
        async with asyncio.timeout(None) as limit:
            await _fail_in_a_group()
            limit.reschedule(0)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


async def test_a_failed_task_group_keeps_the_request_of_others() -> None:
    counts = list[int]()

    async def work() -> None:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        await _fail_in_a_group()
        counts.append(task.cancelling())

    task = asyncio.create_task(work())
    await asyncio.wait([task])

    assert counts == [1]


async def test_a_timeout_in_the_clean_up_of_a_cancelled_task_raises_timeout_error() -> None:
    errors = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError as error:
                errors.append(error)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert len(errors) == 1


async def test_a_cancellation_during_a_timeout_is_no_timeout() -> None:
    async def work() -> None:
        await _fail_in_a_group()
        async with asyncio.timeout(0):
            task.cancel()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.wait([task])

    assert task.cancelled()


async def test_an_inner_timeout_leaves_the_outer_one_to_expire() -> None:
    outer = asyncio.timeout(0)

    with pytest.raises(TimeoutError):
        async with outer, asyncio.timeout(0):
            await asyncio.Event().wait()

    assert outer.expired()
