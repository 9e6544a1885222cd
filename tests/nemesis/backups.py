"""The backups of a run, taken with `bearlake backup` while clients and faults are at work, and one of them to restore at the end.

A backup is valid for a while, in which the run goes on with other faults. Then the object store is copied (hard links) if the backup is the
one to restore, and its hold is released: so sweeps find work during most of the run, and the copy is what a restore has at the end of the
backup's time. Each backup that was taken has the same chance. The holds of backups that were killed are released in the same way.

    FOLDER/backup-N           a backup; FOLDER/.backup-N.partial while it is made, and if it was killed
"""

import contextlib
import json
import logging
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faults.cluster import Server
from faults.waiting import until
from fixtures.server_process import PROGRAM, clean_environment
from nemesis.recording import now
from nemesis.stores import Storage

if TYPE_CHECKING:
    from nemesis.cluster import Cluster

log = logging.getLogger("nemesis")

NAME = "backup"
HOLDS, RESTORES = "backups/", "restores"
TAKE_S = 30.0
RELEASE_S = 30.0
VALID_S = (15.0, 60.0)
ERROR_BYTES = 300


@dataclass
class Backup:
    """One backup. Times: CLOCK_MONOTONIC in nanoseconds, the clock of the histories."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    given_up_s: float
    """When the backup is given up (CLOCK_MONOTONIC, seconds)."""
    begun: int
    ended: int = 0
    """When the command ended; the moment of the backup is between `begun` and here."""
    id: str = ""
    object_count: int = 0
    why: str = ""
    """Why there is no backup."""
    is_killed: bool = False

    @property
    def partial(self) -> Path:
        """The folder in which the backup is made."""
        return self.folder.with_name(f".{self.folder.name}.partial")

    @property
    def is_taken(self) -> bool:
        """Whether the command has made the backup."""
        return bool(self.id)


@dataclass(frozen=True)
class Kept:
    """A backup, and the object store as it was when the backup was given up."""

    backup: Backup
    storage: Storage


class Backups:
    """See the module."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._random = random.Random(f"{cluster.seed}/backups")
        self._valid: list[Backup] = []
        self._releases: list[subprocess.Popen[bytes]] = []
        self._count = 0
        self.kept: Kept | None = None
        """The backup to restore."""
        self.taken_count = 0
        self._offered_count = 0
        self.killed: list[Backup] = []
        self.problems: list[str] = []

    def start(self) -> None:
        """Open the links of the commands to the stores, and write their settings."""
        settings, self._environment = self._cluster.linked(NAME)
        self._config = Server(self._cluster.folder, NAME, settings)
        self._config.write_config()

    def begin(self) -> Backup:
        """Start a backup."""
        self._count += 1
        folder = self._cluster.folder / f"backup-{self._count}"
        given_up_s = time.monotonic() + self._random.uniform(*VALID_S)
        begun = now()
        backup = Backup(folder, self._command("backup", str(folder), "--json"), given_up_s, begun)
        self._valid.append(backup)
        return backup

    def kill(self, backup: Backup) -> bool:
        """Kill the backup's command, if it still runs; return whether that left an unfinished backup."""
        backup.process.kill()
        self.has_ended(backup, TAKE_S)
        is_unfinished = backup.partial.exists() and not backup.folder.exists()
        backup.is_killed = is_unfinished and backup.process.returncode == -signal.SIGKILL
        if backup.is_killed:
            self.killed.append(backup)
        return backup.is_killed

    def has_ended(self, backup: Backup, wait_s: float = 0.0) -> bool:
        """Return whether the backup's command has ended, after `wait_s` at most; `is_taken` and `why` then say how."""
        if not backup.ended:
            if wait_s <= 0 and backup.process.poll() is None:
                return False
            try:  # without time, it would expire before it looks
                output, errors = backup.process.communicate(timeout=wait_s or TAKE_S)
            except subprocess.TimeoutExpired:
                return False
            backup.ended = now()
            if backup.process.returncode == 0:
                found = json.loads(output)
                backup.id, backup.object_count = found["id"], found["object_count"]
                self.taken_count += 1
            else:
                backup.why = errors.decode(errors="replace").strip()[-ERROR_BYTES:] or "it was killed"
        return True

    def step(self) -> None:
        """Give up the backups whose time is over."""
        self._releases = [process for process in self._releases if process.poll() is None]
        for backup in list(self._valid):
            if self.has_ended(backup) and backup.given_up_s <= time.monotonic():
                with contextlib.suppress(OSError):  # the disk is full: again with the next step
                    self._give_up(backup)

    def finish(self) -> None:
        """Give up all backups. Call it after the healing; a hold that is left then is one of `problems`."""
        for backup in list(self._valid):
            if not self.has_ended(backup, TAKE_S):
                self.kill(backup)
            self._give_up(backup)
        for process in self._releases:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(RELEASE_S)
            process.kill()
        try:
            until(self._has_released, TAKE_S, "all holds are released")
        except AssertionError as late:
            self.problems.append(str(late))

    def _has_released(self) -> bool:
        """Release what a fault has kept from being released; return whether no hold was left."""
        left = self._holds()
        for hold in left:
            self._command("hold", "release", hold).communicate(timeout=RELEASE_S)
        return not left

    def end_all(self) -> None:
        """Kill all commands, and delete the copy of the object store."""
        for process in (*self._releases, *(backup.process for backup in self._valid)):
            process.kill()
            process.wait(RELEASE_S)
        if self.kept is not None:
            self.kept.storage.remove()

    def _give_up(self, backup: Backup) -> None:
        if backup.is_taken:
            self._choose(backup)
        self._valid.remove(backup)
        if not self._valid:  # the only the object store knows the hold of a killed backup
            self._releases += [self._command("hold", "release", hold) for hold in self._holds()]
        elif backup.is_taken:
            self._releases.append(self._command("hold", "release", backup.id))

    def _choose(self, backup: Backup) -> None:
        """Keep this backup instead of the one before, so that each backup has the same chance to be the last one kept."""
        self._offered_count += 1
        if self.kept is not None and self._random.random() >= 1 / self._offered_count:
            return
        copy = self._cluster.disks["s3"].folder / backup.folder.name
        try:
            storage = self._cluster.storage.copy(copy)
        except OSError:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        before, self.kept = self.kept, Kept(backup, storage)
        if before is not None:
            before.storage.remove()
            shutil.rmtree(before.backup.folder)
        log.info("%s is the backup to restore", backup.folder.name)

    def _holds(self) -> list[str]:
        found = {key.split("/")[1] for key in self._cluster.storage.keys(HOLDS)}
        return sorted(found - {RESTORES})

    def _command(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*PROGRAM, *words, "--config", str(self._config.config)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=clean_environment(self._environment), start_new_session=True,
        )  # fmt: skip
