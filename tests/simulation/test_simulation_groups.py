"""Consumer groups in the simulation: the history checks members while servers freeze, are cut off, and return."""

from collections import Counter
from dataclasses import replace

import pytest

from fixtures.depth import first_seeds
from fixtures.simulated_groups import trust_ownership, with_all_troubles
from simulator import simulate
from simulator.group_scenario import draw_group_settings
from simulator.history.promises import Promise
from simulator.network import NetworkSettings
from simulator.scenario import ScenarioSettings, run_seed

SEEDS_PER_TEST = 20
TROUBLES = (
    "server freezes",
    "member freezes",
    "member killed",
    "member added",
    "step of the store's clock",
    "months pass",
)


@pytest.mark.parametrize("first", first_seeds(40, SEEDS_PER_TEST))
def test_all_promises_to_groups_hold_in_seeds_from(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate.assert_holds(run_seed(seed, draw_group_settings(seed)))


def test_seeds_of_groups_meet_every_fault() -> None:
    events: Counter[str] = Counter()
    for seed in range(8):
        events += run_seed(seed, with_all_troubles(draw_group_settings(seed))).events

    assert events["heartbeat confirmed"]
    for trouble in TROUBLES:
        assert events[trouble], trouble


def test_a_coordinator_that_does_not_confirm_that_it_has_the_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trust_ownership(monkeypatch)

    found = (str(run_seed(seed, draw_group_settings(seed)).violation) for seed in (96, *range(70, 130)))

    assert any(text.startswith(f"history: {Promise.OWNER.name} ") for text in found)


def test_a_store_in_which_given_up_commits_happen_later_is_found() -> None:
    found = (run_seed(seed, _with_late_effects(draw_group_settings(seed))).violation for seed in range(60))
    shown = (str(violation) for violation in found if violation is not None)

    assert any(text.startswith(f"history: {Promise.OFFSETS.name} ") for text in shown)


def _with_late_effects(drawn: ScenarioSettings) -> ScenarioSettings:
    """Members commit all the time without faults, and writes that the store's clients gave up happen later."""
    assert drawn.members is not None
    return replace(
        drawn,
        chaos_pause_s=1e9,
        network=NetworkSettings(late_rate=0.05, can_be_late=True),
        members=replace(drawn.members, commit_rate=1.0, chaos_pause_s=1e9),
    )
