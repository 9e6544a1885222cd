"""Seeds of the shares profile, and bugs that the simulation must find."""

from typing import Any

import pytest

from bearlake.streams.subscriptions.held import HeldPartition
from bearlake.streams.subscriptions.saving import SavedCursor
from bearlake.streams.subscriptions.share import in_flight
from bearlake.streams.subscriptions.share.acknowledgements import AckType
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.runs import Run
from simulator import scenario, simulate
from simulator.scenario import Report, run_seed
from simulator.share_scenario import draw_share_settings

SEEDS_PER_TEST = 5
SEED_COUNT = 20
SEARCHED = range(30)
"""Seeds in which a planted fault must be found."""


def run(seed: int) -> Report:
    return run_seed(seed, draw_share_settings(seed))


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_all_invariants_hold_with_share_groups_in_seeds_from(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate.assert_holds(run(seed))


def test_a_shares_seed_repeats_the_same_steps() -> None:
    first, again = (run(7) for _ in range(2))

    assert (first.step_count, first.call_count, first.virtual_s) == (
        again.step_count,
        again.call_count,
        again.virtual_s,
    )
    assert first.events == again.events


def test_the_seeds_reach_what_they_are_about() -> None:
    reports = [run(seed) for seed in range(SEED_COUNT)]

    reached = {event for report in reports for event, count in report.events.items() if count}
    faults = {fault for report in reports for fault, count in report.faults.items() if count}
    assert reached >= {
        "crash",
        "records acquired",
        "records delivered again",
        "share acknowledgement",
        "share acknowledgement: InvalidRecordState",
        "share acknowledgement: Unavailable",
    }
    assert "answer of a dispatcher lost" in faults


# -- bugs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "FINISH_S", 10.0)


def assert_found(expected: str) -> None:
    for seed in SEARCHED:
        violation = run(seed).violation
        if violation is not None and expected in str(violation):
            return
    raise AssertionError(f"no seed of {SEARCHED} shows it")


def test_locks_that_end_before_their_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expire = InFlight.expire

    def early(self: InFlight, now: float, *, delivery_count_max: int) -> bool:
        return expire(self, now + 0.05, delivery_count_max=delivery_count_max)

    monkeypatch.setattr(InFlight, "expire", early)

    assert_found("a record is with one member at a time")


@pytest.mark.usefixtures("impatient")
def test_locks_that_never_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "first_deadline", lambda self: None)

    assert_found("subscribers are not done")


def test_a_member_that_releases_what_others_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: InFlight, member: str, *, delivery_count_max: int, via: str | None = None) -> bool:
        return self._release_if(lambda run_: True, delivery_count_max)

    monkeypatch.setattr(InFlight, "release", release)

    assert_found("a record is with one member at a time")


def test_deliveries_without_a_limit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = InFlight.acquire

    def without_limit(self: InFlight, *arguments: Any, **options: Any) -> Any:
        return acquire(self, *arguments, **options | {"delivery_count_max": 1_000})

    monkeypatch.setattr(InFlight, "acquire", without_limit)

    assert_found("deliveries are limited")


def test_records_that_are_given_up_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged = in_flight.acknowledged

    def early(piece: Run, kind: AckType, delivery_count_max: int, renewed_until: float | None) -> Run:
        return acknowledged(piece, kind, delivery_count_max - 1, renewed_until)

    monkeypatch.setattr(in_flight, "acknowledged", early)

    assert_found("no record is lost to a group")


def test_a_receipt_before_the_save_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedCursor, "is_dirty", property(lambda self: self.cursor.version % 7 == 0))

    assert_found("what is accepted is not delivered again")


def test_a_takeover_that_starts_after_open_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = HeldPartition.adopt_share

    def too_far(self: HeldPartition, stored: Any, start: int) -> Any:
        return adopt(self, stored, max(start, stored.mark_delete + (stored.revision > 0)))

    monkeypatch.setattr(HeldPartition, "adopt_share", too_far)

    assert_found("no record is lost to a group")


def test_a_takeover_that_forgets_what_was_accepted_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "unpack", lambda mark_delete, packed: InFlight(mark_delete))

    assert_found("what is accepted is not delivered again")
