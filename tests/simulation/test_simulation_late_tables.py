"""Late table commits, delayed by the catalog or by their worker: the protection (decision 79), and that its absence is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bearlake.compaction.commit import Committer
from bearlake.compaction.sweeper import Sweeper
from bearlake.metadata.model import Stream
from bearlake.table import unchecked
from bearlake.table.model import TableState
from simulator import simulate, tables
from simulator.lake_scenario import draw_lake_settings
from simulator.network import NetworkSettings
from simulator.scenario import ScenarioSettings, run_seed

QUIET_S = 1e9
LATE_CATALOGS = (16, 24)
"""Seeds in which a catalog executes requests late."""
LATE_MERGES = (0, 1)
"""Seeds in which merges are dropped while a request to commit them is still pending."""

DROPPED_MERGES = (0, 1)
"""Seeds in which such a request meets the version that its worker has loaded."""


def with_a_late_catalog(seed: int) -> ScenarioSettings:
    """The catalog executes many requests seconds after their callers have given up; streams are deleted, and their tables are kept."""
    drawn = draw_lake_settings(seed)
    assert drawn.lake is not None
    kept = {"table.on_delete": "keep", "table.freshness_ms": "100"}
    lake = replace(
        drawn.lake,
        unreadable="",
        is_sweep_aggressive=True,
        late_commit_rate=0.4,
        worker_count=2,
        chaos_pause_s=0.4,
        chaos_weights=(1, 1, 1, 0.1),
    )
    return replace(
        drawn,
        lake=lake,
        streams_of={name: (count, {**configs, **kept}) for name, (count, configs) in drawn.streams_of.items()},
        duration_s=4.0,
        chaos_pause_s=QUIET_S,
        produce_pause_s=0.1,
        admin_pause_s=0.1,
        admin_weights=(2, 1, 0, 0.1, 0.5, 0),
    )


def with_late_merges(seed: int, still_rate: float = 0.0) -> ScenarioSettings:
    """Merges are offered all the time, their commits reach the table late, and trims take their inputs away meanwhile.

    `still_rate`: see `LakeSettings.freeze_before_load_rate`. Nothing else goes wrong.
    """
    drawn = draw_lake_settings(seed)
    assert drawn.lake is not None
    compaction = drawn.lake.compaction
    lake = replace(
        drawn.lake,
        compaction=replace(
            compaction,
            planner=replace(
                compaction.planner,
                due_fraction=0.1,
                due_bytes=300,
                stream_task_count_max=3,
                open_task_count_max=20,
                reconcile_ms=300,
                pause_ms=20,
            ),
            worker=replace(
                compaction.worker,
                attempts_max=3,
                claim_count_max=2,
                claim_pause_ms=50,
                deadline_ms=700,
                retry_first_ms=50,
                unavailable_pause_ms=50,
            ),
            merge=replace(compaction.merge, file_bytes=100_000, fan_in=2, input_count_max=4, open_task_count_max=2),
        ),
        unreadable="",
        is_sweep_aggressive=False,
        poison_rate=0.0,
        crash_rate=0.0,
        crash_before_swap_rate=0.0,
        absence_rate=0.0,
        worker_count=3,
        chaos_pause_s=QUIET_S,
        late_merge_rate=0.9,
        freeze_before_load_rate=still_rate,
    )
    return replace(
        drawn,
        lake=lake,
        network=NetworkSettings(can_be_late=False),
        streams_of={
            f"stream-{number}": (1, {"table.freshness_ms": "100", "record.validation": "header"}) for number in range(3)
        },
        server_count=1,
        consumer_count=1,
        idempotent_count=1,
        inferring_count=0,
        plain_count=1,
        named_count=0,
        conditional_count=0,
        duration_s=4.0,
        chaos_pause_s=QUIET_S,
        produce_pause_s=0.1,
        admin_pause_s=0.3,
        admin_weights=(1, 0, 0, 0, 0.1, 0),
    )


def with_late_workers(seed: int) -> ScenarioSettings:
    """As with late merges; in addition, workers freeze before they load the table, and are replaced."""
    return with_late_merges(seed, still_rate=0.3)


def with_quiet_tables(seed: int) -> ScenarioSettings:
    """As with late merges; but seconds pass between two commits to a table, so a late merge often meets the version that its worker loaded.

    Only the fence keeps out a merge that was dropped for a trim and whose commit arrives then.
    """
    return replace(
        with_late_merges(seed),
        streams_of={
            f"stream-{number}": (1, {"table.freshness_ms": "100", "record.validation": "header"}) for number in range(6)
        },
        duration_s=12.0,
        produce_pause_s=1.0,
        admin_pause_s=0.15,
    )


@pytest.mark.parametrize("seed", LATE_CATALOGS, ids=lambda seed: f"seed_{seed}")
def test_a_late_catalog_breaks_nothing(seed: int) -> None:
    report = run_seed(seed, with_a_late_catalog(seed))

    simulate.assert_holds(report)
    assert report.faults["late table commit"]


@pytest.mark.parametrize("seed", LATE_MERGES, ids=lambda seed: f"seed_{seed}")
def test_merges_that_are_committed_late_break_nothing(seed: int) -> None:
    report = run_seed(seed, with_late_workers(seed))

    simulate.assert_holds(report)
    assert report.faults["late table commit"]
    assert report.faults["worker freezes before it loads a table"]


@pytest.mark.parametrize("seed", DROPPED_MERGES, ids=lambda seed: f"seed_{seed}")
def test_merges_that_are_committed_after_they_were_dropped_break_nothing(seed: int) -> None:
    report = run_seed(seed, with_quiet_tables(seed))

    simulate.assert_holds(report)
    assert report.faults["late table commit"]


# -- bugs that must be found


class Unfenced:
    """Tables whose fence looks only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fence(self, stream: Stream) -> TableState | None:
        return await self._inner.state(stream)


def _give_unfenced_tables(patch: pytest.MonkeyPatch, owner: Any) -> None:
    make = owner.__init__

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        self._tables = Unfenced(self._tables)

    patch.setattr(owner, "__init__", made)


def sweep_orphans_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    _give_unfenced_tables(patch, Sweeper)


def drop_merges_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    _give_unfenced_tables(patch, Committer)


def commit_to_a_table_without_asking_for_the_claim(patch: pytest.MonkeyPatch) -> None:
    commit_to = tables.commit_to

    async def unasked(inner: Any, stream: Stream, commit: Any, closed_tasks: Any, check: Any) -> TableState:
        return await commit_to(inner, stream, commit, closed_tasks, unchecked)

    patch.setattr(tables, "commit_to", unasked)


LATE_MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], tuple[Callable[[int], ScenarioSettings], Sequence[int]]] = {
    commit_to_a_table_without_asking_for_the_claim: (with_late_workers, range(20)),
    drop_merges_without_a_fence: (with_quiet_tables, range(20)),
    sweep_orphans_without_a_fence: (with_a_late_catalog, (14, 16, 19, *range(40))),
}
"""Each mutation that lets a late table commit through (decision 79), the scenario that shows it, and the seeds that are tried."""


@pytest.mark.parametrize("mutate", LATE_MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_the_simulation_of_late_table_commits_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, seeds = LATE_MUTATIONS[mutate]
    mutate(monkeypatch)
    violations = (run_seed(seed, draw(seed)).violation for seed in seeds)
    found = next((violation for violation in violations if violation is not None), None)

    assert str(found).startswith(("I7", "I5", "I4"))
