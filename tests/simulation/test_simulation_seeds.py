"""Seeds of the simulation: the first ones, those that once failed, and a run with each fault alone."""

import pytest

from fixtures.depth import first_seeds
from simulator import simulate
from simulator.scenario import draw_settings, run_seed

SEEDS_PER_TEST = 25
ONCE_FAILED = {
    4: "stream changes were lost when the store did not answer; tails of deleted streams were kept forever",
    8: "a look-up by time skipped the rest of the batch that a trim had cut into",
    9: "a commit asked again behind the truncated log was 'fenced': its server stopped, and said that nothing was stored",
    16: "a commit that a full queue refused ended the write path",
    94: "a look-up by time ended with the slice that a trim had cut into",
    146: "a follower died when the store did not answer while it started over",
    498: "a read of a deleted stream reported a missing object: its view stayed behind what the server still knew",
    46793: "bounds that came late revived a partition of a deleted stream",
    10031: "bounds that came late hid a trim that the follower had applied",
}
"""Seeds in which a bug showed, and what it was: fixed since, and covered by a test of its own where that is possible."""


@pytest.mark.slow
@pytest.mark.parametrize("first", first_seeds(125, SEEDS_PER_TEST))
def test_all_invariants_hold_in_seeds_from(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate.assert_holds(run_seed(seed))


@pytest.mark.parametrize("seed", ONCE_FAILED, ids=lambda seed: f"seed_{seed}")
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    simulate.assert_holds(run_seed(seed))


def test_a_seed_takes_the_same_steps_again() -> None:
    first, again = run_seed(7), run_seed(7)

    assert (first.step_count, first.call_count, first.virtual_s) == (
        again.step_count,
        again.call_count,
        again.virtual_s,
    )
    assert (first.faults, first.acks, first.events) == (again.faults, again.acks, again.events)
    assert [note[:3] for note in first.trace] == [note[:3] for note in again.trace]


@pytest.mark.parametrize("server_count", [1, 2, 3])
def test_a_deployment_without_faults_answers_everything(server_count: int) -> None:
    drawn = draw_settings(1)
    calm = type(drawn.network)()

    report = run_seed(
        1, server_count=server_count, network=calm, chaos_pause_s=1e9, admin_weights=(0, 0, 0, 0, 1, 0), duration_s=3
    )

    simulate.assert_holds(report)
    assert not report.faults
    assert report.acks["ACCEPTED"] > 20
    assert set(report.acks) == {"ACCEPTED", "UNEXPECTED_OFFSET"}  # who expects an offset may be overtaken at any time
    assert report.events["unknown outcome"] == report.events["given up by producers"] == 0


def test_the_command_prints_what_seeds_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seeds", "3-4"]) == 0

    output = capsys.readouterr().out
    assert output.startswith("2 seeds, 0 with a violation")
    assert "answers to producers: ACCEPTED" in output


def test_the_command_traces_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seed", "3", "--trace"]) == 0

    assert "serves" in capsys.readouterr().out
