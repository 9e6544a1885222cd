"""Histories of PostgreSQL's roll-up (`simulator/roll_ups.py`): every promise is kept, and each rule that is removed is missed."""

from dataclasses import replace

import pytest

from bearlake.metadata.postgresql.layout import Layout, available
from simulator.roll_ups import run_roll_ups

SEED_COUNT = 3
MUTATION_SEED_COUNT = 12


def layout_with(rule: str, other: str) -> Layout:
    """The product's layout, with another text in the place of a rule that is in one function."""
    layout = available()
    assert sum(script.count(rule) for script in layout.functions) == 1
    return replace(layout, functions=[script.replace(rule, other) for script in layout.functions])


MUTATIONS = {
    "sweep what is deleted later": ("where w.position <= rolled_position", "where true"),
    "move the position too far": (
        "update bearlake.log_tail set rolled = upto;",
        "update bearlake.log_tail set rolled = upto + 1;",
    ),
    "count slices twice when they are released": (
        "select n, count(*) as row_count",
        "select n, 2 * count(*) as row_count",
    ),
    "release nothing": ("perform bearlake.release_objects(released);", ""),
    "cut one row too many from a page": (
        "n := width_bucket(p_start, page.base_offsets) - 1;",
        "n := width_bucket(p_start, page.base_offsets);",
    ),
    "delete entries that are not rolled up": ("select least(upto, h.position", "select least(upto + 1, h.position"),
    "store a repeated batch again": (
        "        kind := 2;\n        for i in",
        "        kind := 0;\n        return;\n        for i in",
    ),
}
"""Each mutation: the rule, and the text in its place."""


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_upkeep_beside_clients_keeps_every_promise(seed: int, postgresql_url: str) -> None:
    violation, counts = run_roll_ups(seed, postgresql_url)

    assert violation is None
    assert counts["commit"]


@pytest.mark.parametrize("name", MUTATIONS)
def test_histories_of_roll_ups_notice_functions_that_would(name: str, postgresql_url: str) -> None:
    layout = layout_with(*MUTATIONS[name])

    # Most seeds show each of them; how PostgreSQL runs two steps at once may hide it in one.
    assert any(run_roll_ups(seed, postgresql_url, layout=layout)[0] for seed in range(MUTATION_SEED_COUNT))
