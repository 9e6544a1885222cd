"""A fault counts as proved only if it observed its effect."""

import random
from collections.abc import Sequence
from typing import Any

from nemesis.process_faults import KillWorkerAtStep

HELD = {"id": 7, "epoch": 2}


class Worker:
    """A server of a run that can be killed."""

    def __init__(self) -> None:
        self.is_running = True

    def kill(self) -> None:
        self.is_running = False


class Cluster:
    """The parts of a cluster that killing a worker uses. `answers` of the database, one per question; None: no answer."""

    def __init__(self, answers: Sequence[list[dict[str, int]] | None]) -> None:
        self._answers = list(answers)
        self.servers = {"w1": Worker()}
        self.held_down: set[str] = set()
        self.size: Any = type("Size", (), {"workers": ("w1",)})
        self.postgresql = self

    def execute(self, _question: str) -> list[dict[str, int]]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise ConnectionError("away")
        return answer

    def record_processes(self) -> None:
        """Do nothing."""

    def restart(self, name: str) -> None:
        self.servers[name].is_running = True


class WithoutWait(KillWorkerAtStep):
    """Does not wait for a step."""

    step_timeout_s = 0.0


def proof(*answers: list[dict[str, int]] | None) -> str | None:
    """Return the proof that the fault returns at its end."""
    cluster: Any = Cluster(answers)
    fault = WithoutWait(cluster, random.Random(1))
    fault.begin()
    assert not cluster.servers["w1"].is_running
    return fault.end()


def test_an_observed_step_is_named() -> None:
    found = proof([], [HELD])

    assert found is not None
    assert "after task 7 was" in found


def test_a_worker_that_is_killed_without_a_step_proves_nothing() -> None:
    assert proof([]) is None
    assert proof([HELD], [HELD]) is None  # the task was there before


def test_a_database_that_does_not_answer_proves_nothing() -> None:
    assert proof(None) is None
    assert proof([], None) is None
    assert proof(None, [HELD]) is None
