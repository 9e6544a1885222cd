"""Backups under load, as "faults": each is taken beside another fault, or is killed on the way. `drill.py` restores one of them."""

import contextlib
from collections.abc import Mapping

from typing_extensions import override

from faults.waiting import until
from nemesis.process_faults import WAIT_S, Fault


class TakeBackup(Fault):
    """`bearlake backup` while everything else goes on; one of three is killed after a step."""

    name = "backup"
    resources = frozenset({"clock"})
    """A step back of the store's clock by more than an hour ends a backup's validity."""
    seconds = (5.0, 15.0)
    killed_share = 1 / 3
    steps: Mapping[str, str] = {
        "had begun": "store",
        "had copied the metadata store": "store/objects.tsv",
        "had copied the tables": "tables.json",
    }

    @override
    def begin(self) -> str:
        self._killed_after = ""
        backups = self.cluster.backups
        step, file = self.random.choice(list(self.steps.items()))
        shall_die = self.random.random() < self.killed_share
        self._backup = backup = backups.begin()
        if not shall_die:
            return backup.folder.name
        with contextlib.suppress(AssertionError):
            until(lambda: (backup.partial / file).exists() or backup.process.poll() is not None, WAIT_S, "")
        has_reached = (backup.partial / file).exists()
        if backups.kill(backup) and has_reached:
            self._killed_after = step
        return f"{backup.folder.name}, killed after it {step}"

    @override
    def end(self) -> str | None:
        backup = self._backup
        if self._killed_after:
            return f"the backup {self._killed_after} and is not finished"
        if not self.cluster.backups.has_ended(backup, WAIT_S):
            return None  # it goes on, and may still be restored
        if not backup.is_taken and not backup.is_killed:
            raise RuntimeError(backup.why)
        return f"{backup.id}: {backup.object_count} objects" if backup.is_taken else None


KINDS: tuple[type[Fault], ...] = (TakeBackup,)
