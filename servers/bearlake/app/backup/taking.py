"""Takes a backup while the deployment runs: hold, copy of the metadata store, copies of the tables, hold, manifest.

The order makes the backup consistent with the object store. The first hold keeps everything that the copy may name; the copy is one moment
of the metadata store; each table is copied in a version with which that moment agrees; the second hold keeps what the backup needs, and no
more.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bearlake import __version__
from bearlake.app import lake
from bearlake.app.backup import manifest as manifests
from bearlake.app.backup.manifest import Manifest
from bearlake.app.startup import backend_settings
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.concurrency import run_all
from bearlake.compaction.holds import Hold, Holds
from bearlake.metadata import backup as metadata_backup
from bearlake.metadata.model import Stream
from bearlake.metadata.store_copy import StoreCopy
from bearlake.settings.document import Settings
from bearlake.table import backup as table_backup
from bearlake.table.applied_tasks import AppliedTasks
from bearlake.table.backup import TableCopy

BEGUN_KEEP_MS = 24 * 3_600_000
"""How long the hold of a backup that was killed keeps everything."""
PAGE_COUNT = 1_000
TABLES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """What a backup or a restore tells while it runs: the step, and how far it is (bytes, tables, objects or partitions)."""

    step: str
    count: int


OnProgress = Callable[[Progressed], None]


async def take(
    settings: Settings,
    folder: Path,
    *,
    valid_ms: int,
    on_progress: OnProgress = lambda told: None,
) -> Manifest:
    """Make a backup in `folder`, which must not exist. The sweeps keep what it needs for `valid_ms`.

    Raises:
        AlreadyExists: the folder exists, or another process makes it.
        Conflict: a table changed too often while it was copied. Try again.
        Invalid, Unsupported, Unavailable: as `lake.opened` and `metadata.backup.copy_store`.
    """
    with manifests.partial_folder(folder) as partial:
        return await _take(settings, folder, partial, valid_ms, on_progress)


async def _take(settings: Settings, folder: Path, partial: Path, valid_ms: int, on_progress: OnProgress) -> Manifest:
    async with lake.opened(settings) as opened:
        holds = Holds(opened.store)
        began_ms = await opened.metadata.now_ms()
        held = await holds.look(began_ms)
        hold = Hold(id=uuid.uuid4().hex, began_ms=began_ms, expires_ms=began_ms + BEGUN_KEEP_MS, restore=held.restore)
        await holds.put(hold)
        try:
            backend = backend_settings(settings.metadata)
            copy = await metadata_backup.copy_store(
                settings.metadata.url,
                backend,
                partial / manifests.STORE,
                lambda count: on_progress(Progressed(step="bytes of the metadata store", count=count)),
            )
            taken_ms = await opened.metadata.now_ms()
            tables = await _tables(opened, copy, on_progress)
            manifests.write_tables(partial, tables)
            expires_ms = taken_ms + valid_ms
            await holds.put(
                replace(
                    hold,
                    taken_ms=taken_ms,
                    expires_ms=expires_ms,
                    task_id=copy.task_id,
                    snapshots={key: found.snapshot_id for key, found in tables.items() if found is not None},
                )
            )
            manifest = Manifest(
                id=hold.id,
                taken_ms=taken_ms,
                expires_ms=expires_ms,
                store=copy,
                checksums=await asyncio.to_thread(manifests.checksums, partial),
                program=__version__,
            )
            manifests.finish(partial, folder, manifest)
        except BaseException:
            await holds.release(hold.id)
            raise
        await holds.delete_expired(taken_ms)
    return manifest


async def _tables(opened: lake.Lake, copy: StoreCopy, on_progress: OnProgress) -> dict[str, TableCopy | None]:
    found: dict[str, TableCopy | None] = {}
    turns = asyncio.Semaphore(TABLES_AT_ONCE)

    async def copy_one(stream: Stream) -> None:
        async with turns:
            found[stream.id.hex] = await table_backup.copy(
                opened.tables, stream, lambda tasks: is_known(tasks, stream, copy)
            )
            on_progress(Progressed(step="tables", count=len(found)))

    streams = [stream async for stream in all_streams(opened.metadata.streams, PAGE_COUNT)]
    await run_all(copy_one(stream) for stream in streams if stream.number <= copy.stream_number)
    return found


def is_known(tasks: AppliedTasks, stream: Stream, copy: StoreCopy) -> bool:
    """Return whether the copied metadata store knows everything that a version of the stream's table has.

    It knows the tasks that were closed, and those that had prepared the result with which they were applied: after a restore, a worker
    finds them in the table and ends them. The version that was current when the copy was made is always known: a task prepares its result
    before it changes the table.
    """
    for task_id, epoch in tasks.applied.items():
        task = copy.open_tasks.get(task_id)
        if task_id > copy.task_id or (task is not None and epoch not in task.epochs):
            return False
    if stream.is_deleted:
        return True  # the store may have forgotten its partitions
    reached = {
        (item.partition, item.end)
        for task_id, task in copy.open_tasks.items()
        if task_id in tasks.applied
        for item in task.ranges
    }
    return all(
        end <= copy.compacted.get(stream.partition(index), 0) or (stream.partition(index), end) in reached
        for index, end in tasks.ends.items()
    )
