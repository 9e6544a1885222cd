"""Errors of one subject's step are logged, counted and passed to the owner of the subject, and raised to no other caller."""

import asyncio
import logging

import pytest

from bearlake.errors import Unavailable
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained, noticed

log = logging.getLogger("bearlake.containment_test")


def broken() -> None:
    raise RuntimeError("a bug")


def test_a_failed_step_is_logged_and_counted_and_its_subject_ended(caplog: pytest.LogCaptureFixture) -> None:
    before = metrics.CONTAINED_FAULTS.labels("test a step").value
    ended: list[Exception] = []

    contained(log, "test a step", broken, ended.append)

    assert [str(error) for error in ended] == ["a bug"]
    assert [(record.levelname, vars(record)["step"]) for record in caplog.records] == [("ERROR", "test a step")]
    assert metrics.CONTAINED_FAULTS.labels("test a step").value == before + 1


def test_a_failure_to_end_the_subject_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    contained(log, "test a step", broken, lambda _: broken())

    assert [vars(record)["step"] for record in caplog.records] == ["test a step", "end a subject after a fault"]


@pytest.mark.parametrize(
    ("error", "levels"), [(RuntimeError("a bug"), ["ERROR"]), (Unavailable("expected"), []), (KeyError("expected"), [])]
)
async def test_a_failed_task_is_reported_unless_its_waiters_expect_the_failure(
    error: Exception, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise error

    task = asyncio.get_running_loop().create_task(work())
    task.add_done_callback(noticed(log, "test a task", KeyError))
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert [record.levelname for record in caplog.records] == levels
