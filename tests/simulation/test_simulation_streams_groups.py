"""Streams groups (KIP-1071) in the simulation: the history checks who owns tasks while servers freeze, are cut off, and return."""

from collections import Counter

import pytest

from bearlake.streams.groups.tasks import reconciling
from fixtures.depth import first_seeds
from fixtures.simulated_groups import trust_ownership, with_all_troubles
from simulator import simulate
from simulator.group_scenario import draw_streams_group_settings
from simulator.history.promises import Promise
from simulator.scenario import run_seed

SEEDS_PER_TEST = 20
TROUBLES = (
    "server freezes",
    "member freezes",
    "member killed",
    "member added",
    "member leaves",
    "step of the store's clock",
    "months pass",
)


@pytest.mark.parametrize("first", first_seeds(40, SEEDS_PER_TEST))
def test_all_promises_to_streams_groups_hold_in_seeds_from(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate.assert_holds(run_seed(seed, draw_streams_group_settings(seed)))


def test_seeds_of_streams_groups_meet_every_fault() -> None:
    events: Counter[str] = Counter()
    for seed in range(8):
        events += run_seed(seed, with_all_troubles(draw_streams_group_settings(seed))).events

    assert events["heartbeat confirmed"]
    assert events["offset committed"]
    for trouble in TROUBLES:
        assert events[trouble], trouble


def test_a_coordinator_that_does_not_confirm_that_it_has_the_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trust_ownership(monkeypatch)

    assert _finds_two_owners()


def test_a_task_that_is_given_before_its_owner_gave_it_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_still_has", lambda owned, revoking: False)

    assert _finds_two_owners()


def _finds_two_owners() -> bool:
    found = (str(run_seed(seed, draw_streams_group_settings(seed)).violation) for seed in range(60))
    return any(text.startswith(f"history: {Promise.OWNER.name} ") for text in found)
