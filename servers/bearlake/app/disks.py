"""Watches the disks of the stores on this machine: gauges, one log line when a disk fills up, and what `/healthz` says of it.

On a full disk, writes fail and are repeated, reads go on, and writes go on by themselves once there is room (decision 352). So a full disk
is no reason to restart a server, or to keep clients from it: a server that starts on a full disk cannot open its metadata store.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from bearlake.errors import Unavailable
from bearlake.settings.document import Settings
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage
from bearlake.threads import Threads
from bearlake.urls import split_store_url

log = logging.getLogger(__name__)

CHECK_S = 5.0
"""Pause between two looks at the disks."""
FULL_BYTES = 16 * 1024**2
"""About what two WAL objects need: a disk with less, and less than `LOW_SHARE`, counts as full."""
LOW_BYTES = 20 * 1024**3
LOW_SHARE = 0.1
"""A disk with less than this share, and less than `LOW_BYTES`, is nearly full."""


class Room(Enum):
    """How much room a disk has; the values are what the log says."""

    ENOUGH = "a disk has room again"
    LOW = "a disk is nearly full; on a full disk writes fail"
    FULL = "a disk is full; writes fail, reads go on"


_LEVELS = {Room.ENOUGH: logging.INFO, Room.LOW: logging.WARNING, Room.FULL: logging.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The room of a disk for this process."""

    free_bytes: int
    size_bytes: int
    has_free_files: bool = True
    """Whether the file system has room for one more file."""

    @property
    def room(self) -> Room:
        """Whether the disk is full, or nearly."""
        is_low = self.free_bytes < LOW_BYTES and self.free_bytes < LOW_SHARE * self.size_bytes
        if not self.has_free_files or (is_low and self.free_bytes < FULL_BYTES):
            return Room.FULL
        return Room.LOW if is_low else Room.ENOUGH


def usage_of(folder: Path) -> Usage:
    """Return the usage of the disk that holds a folder; blocks. Raises `OSError`."""
    found = os.statvfs(folder)
    return Usage(
        free_bytes=found.f_bavail * found.f_frsize,
        size_bytes=found.f_blocks * found.f_frsize,
        has_free_files=found.f_files == 0 or found.f_favail > 0,  # some file systems do not count files
    )


def store_folders(settings: Settings) -> Mapping[str, Path]:
    """Return the folders on this machine that hold stores, by what they hold; a folder that does not exist is left out."""
    found = {}
    for what, url, is_file in (
        ("metadata", settings.metadata.url, True),
        ("objects", settings.object_store.url, False),
        ("catalog", settings.tables.catalog_url, True),
    ):
        parts = split_store_url(url)
        path = Path(unquote(parts.path))
        folder = path.parent if is_file else path
        if parts.scheme in ("sqlite", "file") and folder.is_dir():
            found[what] = folder
    return found


class DiskWatch:
    """Looks at the disks until cancelled."""

    def __init__(self, folders: Mapping[str, Path], look: Callable[[Path], Usage] = usage_of) -> None:
        """`folders`: as `store_folders` returns them."""
        self._folders = folders
        self._look = look
        self._rooms = dict.fromkeys(folders, Room.ENOUGH)
        self._outages = {
            what: Outage(log, "cannot look at a disk; retrying", "a disk can be looked at again", store=what)
            for what in folders
        }
        self._thread = Threads("disks", 1)
        """Its own, and a daemon: a disk that hangs holds up neither other work nor the end of the process."""

    @property
    def problem(self) -> str:
        """Which disks are full; empty: none."""
        full = [
            f"the disk of {self._folders[what]} ({what}) is full"
            for what, room in self._rooms.items()
            if room is Room.FULL
        ]
        return "; ".join(full)

    async def run(self) -> None:
        """Look every `CHECK_S` seconds. Ends only by cancellation."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(CHECK_S)
        finally:
            self._thread.close()

    async def look(self) -> None:
        """Look at all disks once. It waits for a disk that hangs, as long as that takes."""
        for what, folder in self._folders.items():
            try:
                usage = await self._thread.run(partial(self._look, folder))
            except (OSError, Unavailable) as error:  # `Unavailable`: the system has no thread
                self._outages[what].failed(error)
            else:
                self._outages[what].over()
                self._seen(what, folder, usage)

    def _seen(self, what: str, folder: Path, usage: Usage) -> None:
        metrics.DISK_FREE_BYTES.labels(what).set(usage.free_bytes)
        metrics.DISK_SIZE_BYTES.labels(what).set(usage.size_bytes)
        if usage.room is not self._rooms[what]:
            fields = {
                "store": what,
                "folder": str(folder),
                "free_bytes": usage.free_bytes,
                "size_bytes": usage.size_bytes,
            }
            log.log(_LEVELS[usage.room], usage.room.value, extra=fields)
        self._rooms[what] = usage.room
