"""The history checker alone finds faults that clients can observe: the simulation's own checks are switched off here."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation import test_simulation_mutations as mutations
from simulator.history.promises import Promise
from simulator.scenario import run_seed
from simulator.truth import Truth

FOUND: dict[Callable[[pytest.MonkeyPatch], None], tuple[Promise, ...]] = {
    mutations.let_commits_overtake_each_other: (Promise.ORDER,),
    mutations.serve_stored_offsets: (Promise.STORED, Promise.DENSE),
    mutations.answer_in_the_wrong_order: (Promise.STORED,),
    mutations.call_every_failed_commit_a_failure: (Promise.REFUSED,),
    mutations.forget_what_was_sent_before: (Promise.COMPLETE,),
}
"""Each mutation, and the promise (or promises) that it may break first."""


@pytest.fixture(autouse=True)
def _silent_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Truth, "expect", lambda self, holds, rule, **details: None)


def first_in_history(**changes: Any) -> str:
    """The first broken promise in the histories of the seeds. (The reads at the end of a run may stop before its history is checked.)"""
    return mutations.first_violation("history: ", **changes)


@pytest.mark.parametrize("mutate", FOUND, ids=lambda mutate: mutate.__name__)
def test_the_history_alone_shows_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert first_in_history().startswith(tuple(f"history: {promise.name} " for promise in FOUND[mutate]))


def test_the_history_alone_shows_an_acknowledgement_before_the_commit() -> None:
    found = first_in_history(streams_class=mutations.EagerStreams)

    assert found.startswith("history: STORED ")


def test_a_history_without_faults_keeps_every_promise() -> None:
    report = run_seed(3)

    assert report.violation is None
    assert report.events["operations checked"] > 100
