"""Seeds of the expiry profile: producers are forgotten while batches of theirs hang (I9, decision 83); and bugs that it must find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bearlake.metadata import judging
from bearlake.metadata.model import ObjectCommit
from bearlake.streams.writer import Writer
from bearlake.testing import simulate, truth
from bearlake.testing.expiry_scenario import draw_expiry_settings
from bearlake.testing.scenario import Report, run_seed

SEED_COUNT = 20
SEED_COUNT_MAX = 40


def assert_holds(report: Report) -> None:
    if report.violation is not None:
        simulate.print_report(report)
        raise report.violation


def test_nothing_is_stored_twice_when_months_pass() -> None:
    reports = [run_seed(seed, draw_expiry_settings(seed)) for seed in range(SEED_COUNT)]

    for report in reports:
        assert_holds(report)
    assert sum(report.outcomes["UNSURE"] for report in reports) > 0
    assert sum(report.outcomes["UNKNOWN_PRODUCER"] for report in reports) > 0
    assert all(report.events["months pass"] == 3 for report in reports)


def remove_the_position_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "is_unsure", lambda *_: False)


def name_the_position_that_is_known_at_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = Writer._commit

    async def late(self: Writer, told: ObjectCommit) -> Any:
        position: Any = self._seen.position
        return await commit(self, replace(told, seen=position() if callable(position) else position))

    patch.setattr(Writer, "_commit", late)


MUTATIONS = [remove_the_position_floor, name_the_position_that_is_known_at_the_commit]


def first_violation() -> str:
    violations = (run_seed(seed, draw_expiry_settings(seed)).violation for seed in range(SEED_COUNT_MAX))
    return str(next((violation for violation in violations if violation is not None), None))


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_the_simulation_of_expiry_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert first_violation().startswith("outcomes follow the rules")


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_what_clients_saw_shows_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history alone judges: each record that was sent by an idempotent producer is stored once."""
    mutate(monkeypatch)
    monkeypatch.setattr(truth, "contradiction", lambda *_: None)
    monkeypatch.setattr(truth, "remember", lambda *_: True)

    assert first_violation().startswith("history: ")
