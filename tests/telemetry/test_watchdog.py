"""The watchdog of the event loop: who held it, by processor time."""

import asyncio
import logging
import threading
import time

import pytest

from bearlake.telemetry.watchdog import LOG_PAUSE_S, Stall, StallLog, Watchdog, begin
from fixtures.held import held_at_most
from fixtures.waiting import until


def compute(seconds: float) -> None:
    """Compute for `seconds` of processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_callback_that_computes_long_is_reported_with_its_request_and_stack() -> None:
    stalls: list[Stall] = []
    async with Watchdog(lambda _: None, stalls.append, interval_s=0.001, limit_s=0.05):
        begin("kafka METADATA")
        await asyncio.sleep(0)

        compute(0.3)

        await until(lambda: bool(stalls))
    assert stalls[0].held_s >= 0.05
    assert stalls[0].request == "kafka METADATA"
    assert "compute (test_watchdog.py" in stalls[0].stack


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
