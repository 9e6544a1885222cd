"""Every part keeps its promises within its small bounds, and breaks one when a rule is deleted.

Larger bounds by `python -m simulator.model --size medium`.
"""

import pytest

from simulator.model.families import FAMILIES, REDUNDANT, explore_all

GUARDS = [(name, guard) for name, family in FAMILIES.items() for guard in family.rules if guard not in REDUNDANT]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_promise_is_kept_in_every_reachable_state(name: str) -> None:
    for report in explore_all(name, "small"):
        assert report.violation is None, f"{report}\n{report.violation}"
        assert report.is_exhausted


@pytest.mark.parametrize(("name", "guard"), GUARDS)
def test_a_deleted_rule_breaks_a_promise(name: str, guard: str) -> None:
    report = explore_all(name, "small", guard)[-1]

    assert report.violation is not None, f"no promise needs {guard}"
