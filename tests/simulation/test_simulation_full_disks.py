"""Stores run out of room: no answer to a producer is wrong, no server stops, and the simulation can fail (decisions 352 and 355)."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import OutOfRoom, Unavailable
from bearlake.metadata.model import ObjectCommit
from bearlake.streams.committer import Committer
from fixtures.depth import first_seeds
from simulator import simulate
from simulator.full_disk_scenario import draw_full_disk_settings
from simulator.network import NetworkSettings
from simulator.scenario import ScenarioSettings, run_seed

SEED_COUNT_MAX = 20


@pytest.mark.slow
@pytest.mark.parametrize("first", first_seeds(12, 12))
def test_what_producers_are_told_holds_in_seeds_from(first: int) -> None:
    faults: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for seed in range(first, first + 12):
        report = run_seed(seed, draw_full_disk_settings(seed))
        simulate.assert_holds(report)
        faults += report.faults
        answers += report.acks

    assert faults["no room for metadata"] > 100
    assert faults["no room for objects"] > 100
    assert answers["NOT_STORED"] > 50
    assert answers["ACCEPTED"] > 500


def calm(seed: int) -> ScenarioSettings:
    """Nothing fails but the disks, and an object is given up long before a sweep may forbid it."""
    drawn = draw_full_disk_settings(seed)
    writer = replace(drawn.streams.writer, commit_unknown_ms_max=300)
    disks = replace(drawn.network.disks, fill_rate=0.05)
    return replace(
        drawn,
        streams=replace(drawn.streams, writer=writer),
        network=NetworkSettings(has_stores_here=drawn.network.has_stores_here, can_be_late=False, disks=disks),
        chaos_pause_s=1e9,
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_full_disk_stops_no_server(seed: int) -> None:
    report = run_seed(seed, calm(seed))

    simulate.assert_holds(report)
    assert report.faults["no room for metadata"] > 0
    assert report.events["server fenced"] == 0


def test_the_simulation_notices_a_lost_reply_that_is_taken_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Committer.commit

    async def sure(self: Committer, told: ObjectCommit, **_: Any) -> Any:
        log = self._commit_log

        class Sure:
            async def commit(self, told: ObjectCommit) -> Any:
                try:
                    return await log.commit(told)
                except Unavailable as error:
                    raise OutOfRoom("taken for a full disk") from error

        self._commit_log = Sure()  # type: ignore[assignment]
        try:
            return await commit(self, told)
        finally:
            self._commit_log = log

    monkeypatch.setattr(Committer, "commit", sure)

    violations = (run_seed(seed, draw_full_disk_settings(seed)).violation for seed in range(SEED_COUNT_MAX))
    assert any(str(violation).startswith("what was refused is not stored") for violation in violations)
