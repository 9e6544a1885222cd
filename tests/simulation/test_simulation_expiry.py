"""Seeds of the expiry profile: producers expire while their batches are pending (I9, decision 83); and faults that it must find."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from bearlake.metadata import batch_decision
from bearlake.streams.flush import Flush
from bearlake.streams.writer import Writer
from simulator import simulate, truth
from simulator.expiry_scenario import draw_expiry_settings
from simulator.scenario import ScenarioSettings, run_seed

SEED_COUNT = 12
SEEDS = (33, *range(40))
"""Seeds that are tried on a mutation. The first shows the one that only one seed of these shows."""
CROWDED_SEED_COUNT = 6


def test_no_batch_is_stored_twice_when_months_pass() -> None:
    reports = [run_seed(seed, draw_expiry_settings(seed)) for seed in range(SEED_COUNT)]

    for report in reports:
        simulate.assert_holds(report)
    assert sum(report.outcomes["UNSURE"] for report in reports) > 0
    assert sum(report.outcomes["UNKNOWN_PRODUCER"] for report in reports) > 0
    assert all(report.events["months pass"] == 3 for report in reports)


def remove_the_position_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_decision, "is_unsure", lambda *_: False)


def name_the_position_that_is_known_at_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = Writer._commit

    async def late(self: Writer, flush: Flush, begun: Coroutine[None, None, Any]) -> None:
        begun.close()
        if flush.before is not None:
            await flush.before
        told = replace(flush.commit, seen=self._seen.position)
        await commit(self, flush, self.committer.commit(told))

    patch.setattr(Writer, "_commit", late)


def crowded(seed: int) -> ScenarioSettings:
    """Requests of many producers wait unread in a server that has no room for them."""
    drawn = replace(draw_expiry_settings(seed), idempotent_count=4)
    writer = replace(drawn.streams.writer, bytes_max=1_500, puts_in_flight_max=1)
    return replace(drawn, streams=replace(drawn.streams, writer=writer))


def test_no_batch_is_stored_twice_when_months_pass_over_unread_requests() -> None:
    reports = [run_seed(seed, crowded(seed)) for seed in range(CROWDED_SEED_COUNT)]

    for report in reports:
        simulate.assert_holds(report)
    assert sum(report.events["socket not read"] for report in reports) > 0


def test_the_simulation_of_expiry_notices_a_position_that_is_read_at_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Writer.submit

    def late(self: Writer, call: Any) -> None:
        call.seen = self._seen.position
        submit(self, call)

    monkeypatch.setattr(Writer, "submit", late)

    assert first_violation(crowded).startswith("outcomes follow the rules")


MUTATIONS = [remove_the_position_floor, name_the_position_that_is_known_at_the_commit]


def first_violation(draw: Callable[[int], ScenarioSettings] = draw_expiry_settings) -> str:
    violations = (run_seed(seed, draw(seed)).violation for seed in SEEDS)
    return str(next((violation for violation in violations if violation is not None), None))


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_the_simulation_of_expiry_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert first_violation().startswith("outcomes follow the rules")


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_the_clients_history_shows_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the history checks: each record of an idempotent producer is stored once."""
    mutate(monkeypatch)
    remember = truth.remember
    monkeypatch.setattr(truth, "contradiction", lambda *_: None)
    monkeypatch.setattr(truth, "remember", lambda *what: remember(*what) or True)

    assert first_violation().startswith("history: ")
