"""Transactions while servers crash, freeze and are cut off: what clients are told holds, and the simulation can fail."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bearlake.index.isolation import PartitionIsolation
from bearlake.metadata.aborted import AbortedTransactions
from bearlake.metadata.model import OutcomeKind
from bearlake.metadata.sqlite import gate
from bearlake.streams import fetch_plan
from fixtures.depth import first_seeds
from simulator.scenario import Report, run_seed
from simulator.transaction_scenario import draw_transaction_settings

SEED_COUNT_MAX = 20


def run(seed: int) -> Report:
    return run_seed(seed, draw_transaction_settings(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", first_seeds(10, 10))
def test_committed_transactions_are_read_whole_and_others_never_in_seeds_from(first: int) -> None:
    events: Counter[str] = Counter()
    for seed in range(first, first + 10):
        report = run(seed)
        if report.violation is not None:
            raise report.violation
        events += report.events

    assert events["transaction COMMITTED"] > 20
    assert events["transaction NOTHING_COMMITTED"] > 5


def show_aborted(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records get aborted batches."""
    patch.setattr(AbortedTransactions, "has", lambda *_: False)


def show_open(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records get batches of open transactions."""
    patch.setattr(PartitionIsolation, "last_stable", lambda _, end: end)


def let_zombies_write(patch: pytest.MonkeyPatch) -> None:
    """A commit takes batches of producers that were fenced."""
    patch.setattr(gate, "may_write", lambda *_: OutcomeKind.ACCEPTED)


def forget_the_view(patch: pytest.MonkeyPatch) -> None:
    """An answer has slices above its last stable offset, which use up its room."""

    def limit(self: Any) -> None:
        self.fetched.last_stable = self.fetched.end
        if self.view is not None:
            _, self.fetched.end, self.fetched.last_stable, _ = self.view

    patch.setattr(fetch_plan.Plan, "limit", limit)


@pytest.mark.parametrize("mutate", [show_aborted, show_open, let_zombies_write, forget_the_view])
def test_the_simulation_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert any(run(seed).violation is not None for seed in range(SEED_COUNT_MAX))
