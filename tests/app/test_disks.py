"""The watch over the disks of local stores."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.app.disks import DiskWatch, Room, Usage, store_folders, usage_of
from bearlake.settings.document import Settings
from bearlake.telemetry import metrics
from fixtures.waiting import WAIT_S

MIB = 1024**2
GIB = 1024**3


@pytest.mark.parametrize(
    ("free", "size", "has_free_files", "room"),
    [
        (500 * GIB, 1_000 * GIB, True, Room.ENOUGH),
        (30 * GIB, 1_000 * GIB, True, Room.ENOUGH),
        (10 * GIB, 1_000 * GIB, True, Room.LOW),
        (10 * GIB, 50 * GIB, True, Room.ENOUGH),
        (1 * MIB, 50 * GIB, True, Room.FULL),
        (10 * MIB, 20 * MIB, True, Room.ENOUGH),
        (0, 20 * MIB, True, Room.FULL),
        (500 * GIB, 1_000 * GIB, False, Room.FULL),
    ],
)
def test_a_disk_is_full_or_nearly_full_by_share_and_size(
    free: int, size: int, has_free_files: bool, room: Room
) -> None:
    assert Usage(free_bytes=free, size_bytes=size, has_free_files=has_free_files).room is room


async def test_a_disk_that_fills_up_is_logged_once_shown_and_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    free = [100 * GIB, 10 * GIB, 5 * GIB, 0, 0, 300 * GIB]
    watch = DiskWatch({"objects": tmp_path}, lambda _: Usage(free_bytes=free.pop(0), size_bytes=1_000 * GIB))
    problems = []
    while free:
        await watch.look()
        problems.append(watch.problem)

    full = f"the disk of {tmp_path} (objects) is full"
    assert problems == ["", "", "", full, full, ""]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "INFO"]
    assert metrics.DISK_FREE_BYTES.labels("objects").value == 300 * GIB
    assert metrics.DISK_SIZE_BYTES.labels("objects").value == 1_000 * GIB


async def test_a_disk_that_cannot_be_looked_at_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = DiskWatch({"objects": tmp_path / "absent"})
    for _ in range(3):
        await watch.look()

    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_disk_that_cannot_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    full = Usage(free_bytes=0, size_bytes=1_000 * GIB)

    def look(folder: Path) -> Usage:
        return full if folder == tmp_path else usage_of(folder)

    watch = DiskWatch({"metadata": tmp_path / "absent", "objects": tmp_path}, look)
    await watch.look()

    assert watch.problem == f"the disk of {tmp_path} (objects) is full"


async def test_a_disk_that_hangs_does_not_keep_the_process_from_its_end(tmp_path: Path) -> None:
    hangs, answers = threading.Event(), threading.Event()
    looking: list[threading.Thread] = []

    def look(_: Path) -> Usage:
        looking.append(threading.current_thread())
        hangs.set()
        answers.wait(WAIT_S)
        return Usage(free_bytes=0, size_bytes=0)

    watching = asyncio.create_task(DiskWatch({"metadata": tmp_path}, look).run())
    await asyncio.to_thread(hangs.wait, WAIT_S)
    watching.cancel()
    await asyncio.wait([watching])

    assert watching.cancelled()
    assert [thread.daemon for thread in looking] == [True]  # Python joins other threads at its end
    answers.set()


def test_the_folders_of_local_stores_are_watched(tmp_path: Path) -> None:
    settings = Settings()
    local = replace(
        settings,
        metadata=replace(settings.metadata, url=f"sqlite://{tmp_path}/m.db"),
        object_store=replace(settings.object_store, url=f"file://{tmp_path}"),
        tables=replace(settings.tables, catalog_url="postgresql://u@a,[::1]/d"),
    )

    assert store_folders(local) == {"metadata": tmp_path, "objects": tmp_path}
    assert usage_of(tmp_path).size_bytes > 0
