"""A fault counts as proved only if it observed its effect."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemesis.backup_faults import TakeBackup
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


class Backups:
    """The backups of a run: one, which is killed before or after it has written all files, or ends by itself unless it `goes_on`."""

    def __init__(self, folder: Path, *, has_files: bool = False, why: str = "", goes_on: bool = False) -> None:
        self._goes_on = goes_on
        is_taken = not (why or has_files)
        self.backup: Any = SimpleNamespace(
            folder=folder / "backup-1", partial=folder / "partial", process=self, id="abc", object_count=3,
            is_taken=is_taken, is_killed=False, why=why,
        )  # fmt: skip
        if has_files:
            (self.backup.partial / "store").mkdir(parents=True)
            for name in ("store/objects.tsv", "tables.json"):
                (self.backup.partial / name).touch()

    def poll(self) -> int:
        return 1

    def begin(self) -> Any:
        return self.backup

    def kill(self, backup: Any) -> bool:
        backup.is_taken, backup.is_killed = False, True
        return True

    def has_ended(self, _backup: Any, _wait_s: float) -> bool:
        return not self._goes_on


class Killed(TakeBackup):
    """Kills each backup."""

    killed_share = 1.0


class Whole(TakeBackup):
    """Lets each backup end."""

    killed_share = 0.0


def taken(kind: type[TakeBackup], backups: Backups) -> str | None:
    """Return the proof of the fault."""
    cluster: Any = SimpleNamespace(backups=backups)
    fault = kind(cluster, random.Random(1))
    fault.begin()
    return fault.end()


def test_a_backup_that_was_killed_proves_the_step_that_was_seen(tmp_path: Path) -> None:
    found = taken(Killed, Backups(tmp_path, has_files=True))

    assert found is not None
    assert "is not finished" in found
    assert taken(Killed, Backups(tmp_path / "empty")) is None


def test_a_backup_that_could_not_be_taken_or_goes_on_is_no_proof(tmp_path: Path) -> None:
    assert taken(Whole, Backups(tmp_path)) == "abc: 3 objects"
    assert taken(Whole, Backups(tmp_path, goes_on=True)) is None
    with pytest.raises(RuntimeError, match="the database is away"):
        taken(Whole, Backups(tmp_path, why="the database is away"))
