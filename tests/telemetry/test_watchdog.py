"""The watchdog of the event loop: who held it, by processor time."""

import logging
import threading
import time
from collections.abc import Callable

import pytest

from bearlake.telemetry.watchdog import LOG_PAUSE_S, Stall, StallLog, Watchdog, begin
from fixtures.held import held_at_most
from fixtures.waiting import WAIT_S, until


def compute(seconds: float) -> None:
    """Compute for `seconds` of processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def compute_until(is_so: Callable[[], object]) -> None:
    """Compute until `is_so()`, at most `WAIT_S`."""
    end = time.thread_time() + WAIT_S
    while not is_so() and time.thread_time() < end:
        pass


async def test_a_callback_that_computes_long_is_reported_with_its_request_and_stack() -> None:
    stalls: list[Stall] = []
    async with Watchdog(lambda _: None, stalls.append, interval_s=0.001, limit_s=0.05) as watchdog:
        begin("kafka METADATA")

        compute_until(lambda: watchdog._stack)  # noqa: SLF001 - on a busy machine, the watchdog's thread may look late

        await until(lambda: bool(stalls))
    assert stalls[0].held_s >= 0.05
    assert stalls[0].request == "kafka METADATA"
    assert "compute_until (test_watchdog.py" in stalls[0].stack


async def test_time_in_which_the_thread_does_not_compute_is_not_blamed_on_a_turn() -> None:
    async with held_at_most(0.05) as turns:
        threading.Event().wait(0.2)

    assert turns


async def test_the_fixture_fails_a_test_whose_request_holds_the_loop() -> None:
    with pytest.raises(AssertionError, match="the event loop was held"):
        async with held_at_most(0.05):
            compute(0.2)


def test_stalls_are_counted_and_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    now = 100.0
    stalls = StallLog(counted.append, lambda: now)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            stalls.add(Stall(0.1, "kafka FETCH", ""))
        now += LOG_PAUSE_S
        stalls.add(Stall(0.2, "rest GET", "a > b"))

    assert counted == ["kafka FETCH"] * 5 + ["rest GET"]
    assert [(record.request, record.held_ms, record.unlogged) for record in caplog.records] == [
        ("kafka FETCH", 100, 0),
        ("rest GET", 200, 4),
    ]
