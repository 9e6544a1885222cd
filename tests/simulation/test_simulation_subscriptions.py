"""Seeds of the subscriptions profile, and bugs that the simulation must find."""

from collections.abc import Sequence
from typing import Any

import pytest

from bearlake.streams.subscriptions.consumers import AttachedConsumer
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.holding import HeldPartition
from bearlake.streams.subscriptions.key_shared import KeyShared
from bearlake.streams.subscriptions.pool import Pool
from bearlake.streams.subscriptions.saving import SavedCursor
from bearlake.streams.subscriptions.single import SingleActive
from fixtures.depth import first_seeds
from simulator import scenario, simulate
from simulator.scenario import Report, run_seed
from simulator.subscriber_scenario import draw_subscriber_settings

SEEDS_PER_TEST = 10
SEED_COUNT = 10
ONCE_FAILED = {
    17: "a redelivery of an entry that the server had read ahead of its follower was asked for again without a pause, and nothing else ran",
    48: "a Failover consumer whose turn it was again before the hand-over was done got everything again",
    68: "a read of an entry that a trim had cut into requested its trimmed base forever; a wait was cut short as it ran out",
    133: "an acknowledgement of part of an entry in which the mark-delete offset lay was dropped, and said to be saved",
    94: "an acknowledgement that waited for a read was dropped when its consumer left, and said to be saved",
    31: "an acknowledgement of what a trim had left of an entry was dropped, and said to be saved",
}
"""Seeds that once found a fault, and the fault."""
SEARCHED = range(20)
"""Seeds in which a planted fault must be found."""


def run(seed: int) -> Report:
    return run_seed(seed, draw_subscriber_settings(seed))


@pytest.mark.parametrize("first", first_seeds(SEED_COUNT, SEEDS_PER_TEST))
def test_all_invariants_hold_with_subscriptions_in_seeds_from(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate.assert_holds(run(seed))


@pytest.mark.parametrize("seed", ONCE_FAILED, ids=lambda seed: f"seed_{seed}")
def test_a_subscriptions_seed_that_once_failed_holds(seed: int) -> None:
    simulate.assert_holds(run(seed))


def test_a_subscriptions_seed_repeats_the_same_steps() -> None:
    first, again = (run(7) for _ in range(2))

    assert (first.step_count, first.call_count, first.virtual_s) == (
        again.step_count,
        again.call_count,
        again.virtual_s,
    )
    assert first.events == again.events


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


@pytest.mark.usefixtures("impatient")
def test_a_consumer_whose_entries_are_forgotten_when_it_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(self: Pool, consumer: AttachedConsumer) -> None:
        self.consumers.remove(consumer)

    monkeypatch.setattr(Pool, "remove", remove)

    assert_found("subscribers are not done")


def test_a_key_that_does_not_wait_for_its_former_consumer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def candidate(self: KeyShared, slot: int) -> AttachedConsumer | None:
        assert self._slots is not None
        return self._slots.owner(slot)

    monkeypatch.setattr(KeyShared, "_candidate", candidate)

    assert_found("a key is with one consumer at a time")


def test_entries_delivered_before_their_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Pool.offer

    def early(self: Pool, entries: Sequence[Any], now_ms: int) -> None:
        offer(self, entries, now_ms + 100_000)

    monkeypatch.setattr(Pool, "offer", early)

    assert_found("nothing comes before its time")


def test_an_entry_that_two_consumers_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def redeliver(self: Pool, consumer: AttachedConsumer, bases: Sequence[int]) -> None:
        self._redeliver([entry for entry in self._entries.values() if entry.owner is not None])

    monkeypatch.setattr(Pool, "redeliver", redeliver)

    assert_found("an entry is with one consumer at a time")


def test_a_cursor_that_loses_its_ranges_during_a_move_to_another_server_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AckCursor, "unpack", lambda mark_delete, packed: AckCursor(mark_delete))

    assert_found("what is saved is not delivered again")


def test_a_receipt_before_the_save_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedCursor, "is_dirty", property(lambda self: self.cursor.version % 7 == 0))

    assert_found("what is saved is not delivered again")


def test_a_takeover_that_starts_after_unacknowledged_entries_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = HeldPartition.adopt

    def too_far(self: HeldPartition, stored: Any, start: int) -> Any:
        return adopt(self, stored, max(start, stored.mark_delete + (stored.revision > 0)))

    monkeypatch.setattr(HeldPartition, "adopt", too_far)

    assert_found("every entry is delivered")


def test_entries_that_are_redelivered_without_a_request_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = SingleActive.flow

    def again(self: SingleActive, consumer: AttachedConsumer, permits: int) -> None:
        self._rewind()
        flow(self, consumer, permits)

    monkeypatch.setattr(SingleActive, "flow", again)

    assert_found("entries come in order")
