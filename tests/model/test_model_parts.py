"""Every part keeps its promises within its small bounds, and every deleted rule that is found quickly is missed.

The other rules, and larger bounds, by `python -m bearlake.testing.model --all-guards --size medium`.
"""

import pytest

from bearlake.testing.model.families import COVERED, FAMILIES, SLOW, explore_all

GUARDS = [(name, guard) for name, family in FAMILIES.items() for guard in family.rules if guard not in SLOW]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_promise_is_kept_in_every_reachable_state(name: str) -> None:
    for report in explore_all(name, "small"):
        assert report.violation is None, f"{report}\n{report.violation}"
        assert report.is_exhausted


@pytest.mark.parametrize(("name", "guard"), GUARDS)
def test_a_deleted_rule_breaks_a_promise(name: str, guard: str) -> None:
    off = [guard, *([COVERED[guard]] if guard in COVERED else [])]

    report = explore_all(name, "small", *off)[-1]

    assert report.violation is not None, f"nobody misses {guard}"
