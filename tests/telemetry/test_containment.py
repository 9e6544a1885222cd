"""Errors of one subject's step: logged, counted, passed on to whoever ends the subject, and raised to no other."""

import asyncio
import logging

import pytest

from bearlake.errors import Unavailable
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained, noticed

log = logging.getLogger("bearlake.containment_test")


def broken() -> None:
    raise RuntimeError("a bug")


def test_a_step_that_fails_is_logged_and_counted_and_its_subject_ended(caplog: pytest.LogCaptureFixture) -> None:
    before = metrics.CONTAINED_FAULTS.labels("test a step").value
    ended: list[Exception] = []

    contained(log, "test a step", broken, ended.append)

    assert [str(error) for error in ended] == ["a bug"]
    assert [(record.levelname, vars(record)["step"]) for record in caplog.records] == [("ERROR", "test a step")]
    assert metrics.CONTAINED_FAULTS.labels("test a step").value == before + 1


def test_an_ending_that_fails_too_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    contained(log, "test a step", broken, lambda _: broken())

    assert [vars(record)["step"] for record in caplog.records] == ["test a step", "end a subject after a fault"]


@pytest.mark.parametrize(
    ("error", "levels"), [(RuntimeError("a bug"), ["ERROR"]), (Unavailable("expected"), []), (KeyError("expected"), [])]
)
async def test_the_death_of_a_task_is_noticed_unless_its_waiters_expect_it(
    error: Exception, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise error

    task = asyncio.get_running_loop().create_task(work())
    task.add_done_callback(noticed(log, "test a task", KeyError))
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert [record.levelname for record in caplog.records] == levels
