"""Streams that are terminated while servers crash, freeze and are cut off: the simulation's invariants hold, and it can fail."""

from collections import Counter
from collections.abc import Callable

import pytest

from bearlake.metadata import batch_decision, offset_assignment
from bearlake.metadata.partition_state import StreamState
from fixtures.depth import first_seeds
from simulator.scenario import Report, run_seed

WEIGHTS = (0.5, 0.3, 0.2, 0.2, 1, 1)
"""Weights of trim, delete, grow, alter, probe, terminate."""
SEED_COUNT_MAX = 40


def run(seed: int) -> Report:
    return run_seed(seed, admin_weights=WEIGHTS, named_count=2, conditional_count=1)


@pytest.mark.parametrize("first", first_seeds(10, 10))
def test_refused_batches_are_absent_and_acknowledged_batches_present_in_seeds_from(first: int) -> None:
    told: Counter[str] = Counter()
    for seed in range(first, first + 10):
        report = run(seed)
        if report.violation is not None:
            raise report.violation
        told += report.acks

    assert told["TERMINATED"] > 10
    assert told["ACCEPTED"] > 100


def stay_open(self: StreamState, partition_count: int, *, is_deleted: bool, is_terminated: bool) -> None:
    self.partition_count = partition_count
    self.is_deleted = is_deleted
    self.is_terminated = is_terminated
    self.is_open = not is_deleted


def hear_late(patch: pytest.MonkeyPatch) -> None:
    """A server continues with outdated knowledge of a stream."""
    patch.setattr(StreamState, "become", stay_open)


def refuse_all(patch: pytest.MonkeyPatch) -> None:
    """A client that repeats a request because it lost the answer is refused, although its batch is stored."""
    patch.setattr(
        offset_assignment,
        "refused",
        lambda batch, state, *rest: batch_decision.Outcome(batch_decision.TERMINATED, -1, state.start),
    )


@pytest.mark.parametrize("mutate", [hear_late, refuse_all])
def test_the_simulation_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    violations = (run(seed).violation for seed in range(SEED_COUNT_MAX))
    assert any(violation is not None and "outcomes follow the rules" in str(violation) for violation in violations)
