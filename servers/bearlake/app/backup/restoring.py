"""Restores a backup: checks it, makes the metadata store, skips offsets, returns the tables, and marks the restore.

Nothing can use the restored store before the last step, and each step may be repeated: after a kill, run the restore again.
"""

import asyncio
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bearlake import __version__
from bearlake.app.backup import filling
from bearlake.app.backup import manifest as manifests
from bearlake.app.backup.manifest import Manifest
from bearlake.app.backup.objects import check_objects, check_tables
from bearlake.app.backup.taking import TABLES_AT_ONCE, OnProgress, Progressed
from bearlake.app.startup import backend_settings
from bearlake.clock import SystemClock
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.concurrency import run_all
from bearlake.compaction.holds import Holds, ordinal_of, server_name
from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata import backup as metadata_backup
from bearlake.metadata.formats import registered_version
from bearlake.metadata.model import Stream
from bearlake.metadata.store_copy import OBJECTS
from bearlake.objects import ObjectStore
from bearlake.objects.open import open_store
from bearlake.settings.document import Settings
from bearlake.streams import configs as stream_configs
from bearlake.streams import promotions
from bearlake.streams.current_rules import current_stream
from bearlake.table import backup as table_backup
from bearlake.table.backup import TableCopy
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.telemetry.object_calls import ObjectCalls

PAGE_COUNT = 1_000
REGISTRATION_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    manifest: Manifest
    restore: str
    offset_gap: int
    partition_count: int
    aborted_count: int
    """Transactions that were open in the backup."""
    table_count: int
    """Tables that had changed since the backup."""
    missing: list[str]
    """Objects and files of tables that the backup names and the object store lacks."""


async def restore(
    settings: Settings,
    folder: Path,
    *,
    may_replace: bool,
    may_lack: bool = False,
    offset_gap: int | None = None,
    on_progress: OnProgress = lambda told: None,
) -> Restored:
    """Make the metadata store of the settings from the backup in `folder`.

    `offset_gap`: offsets that each partition skips (0: none; None: by the backup's age, see `filling.gap_since`).

    Raises:
        NotFound, Unsupported, Corrupt: `folder` is no backup that this program can restore, or objects are missing.
        AlreadyExists: there is a store, and not `may_replace`.
        Invalid: the backup is of another kind of store, or `offset_gap` is too large.
        Unavailable: a store does not answer, or is in use.
    """
    if offset_gap is not None and not 0 <= offset_gap <= filling.GAP_MAX:
        raise Invalid(f"the gap of offsets must be between 0 and {filling.GAP_MAX}")
    manifest = await asyncio.to_thread(manifests.read, folder)
    backend = backend_settings(settings.metadata)
    await metadata_backup.check_place(settings.metadata.url, backend, manifest.store, may_replace=may_replace)
    await asyncio.to_thread(manifests.check, folder, manifest)
    copies = manifests.read_tables(folder)
    async with AsyncExitStack() as closing:
        store = open_store(settings.object_store.url, settings.object_store, recorder=ObjectCalls())
        closing.push_async_callback(store.close)
        listed = folder / manifests.STORE / OBJECTS
        missing = await check_objects(
            listed,
            store,
            may_lack=may_lack,
            on_progress=lambda count: on_progress(Progressed(step="objects checked", count=count)),
        )
        tables = open_tables(settings.tables, store, settings.object_store.url)
        closing.push_async_callback(tables.close)
        missing += await check_tables(
            [copy for copy in copies.values() if copy is not None],
            tables,
            may_lack=may_lack,
            on_progress=lambda count: on_progress(Progressed(step="tables checked", count=count)),
        )
        holds = Holds(store)
        name = await holds.next_restore(uuid.uuid4().hex[:12])
        metadata = await closing.enter_async_context(
            metadata_backup.restored(
                settings.metadata.url,
                backend,
                folder / manifests.STORE,
                manifest.store,
                server_name(name),
                lambda count: on_progress(Progressed(step="bytes of the metadata store", count=count)),
                ordinal=ordinal_of(name),
                may_replace=may_replace,
            )
        )
        gap = offset_gap
        if gap is None:
            gap = filling.gap_since(await metadata.now_ms() - manifest.taken_ms, ordinal_of(name))
        await _promote_again(metadata, store)
        aborted_count = await filling.begin_producers_anew(metadata)
        partition_count = await _skip_offsets(metadata, store, server_name(name), gap, on_progress) if gap else 0
        table_count = await _put_tables_back(metadata, tables, copies, on_progress)
        await holds.mark_restore(name)
    return Restored(
        manifest=manifest,
        restore=name,
        offset_gap=gap,
        partition_count=partition_count,
        aborted_count=aborted_count,
        table_count=table_count,
        missing=missing,
    )


async def _promote_again(metadata: Metadata, store: ObjectStore) -> None:
    """Take the import's mark from streams that were promoted after the backup: others may have appended to them (decision 274)."""
    promoted = await promotions.promoted(store)
    async for stream in all_streams(metadata.streams, PAGE_COUNT):
        name = stream_configs.IMPORT_SOURCE
        if stream.id.hex in promoted and not stream.is_deleted and stream_configs.value(stream.configs, name):
            await metadata.streams.alter(stream.number, set_configs={}, unset_configs=[name], version=stream.version)


async def _skip_offsets(metadata: Metadata, store: ObjectStore, name: str, gap: int, on_progress: OnProgress) -> int:
    count = 0
    registered = await metadata.servers.register(
        name,
        zone=None,
        endpoints={},
        version=registered_version(__version__),
        timeout_ms=REGISTRATION_MS,
        after=await metadata.servers.last_epoch(name),
    )
    async for count in filling.skip_offsets(metadata, store, registered.server, SystemClock(), gap):
        on_progress(Progressed(step="partitions", count=count))
    await metadata.servers.leave(registered.server)
    return count


async def _put_tables_back(
    metadata: Metadata, tables: IcebergTables, copies: dict[str, TableCopy | None], on_progress: OnProgress
) -> int:
    changed_count = done_count = 0
    turns = asyncio.Semaphore(TABLES_AT_ONCE)

    async def put_back(stream: Stream) -> None:
        nonlocal changed_count, done_count
        async with turns:
            changed_count += await table_backup.put_back(tables, stream, copies[stream.id.hex])
            await tables.drop(current_stream(stream))  # made anew: it may have records that the restored log has not
            done_count += 1
            on_progress(Progressed(step="tables", count=done_count))

    await run_all([put_back(stream) async for stream in all_streams(metadata.streams, PAGE_COUNT)])
    return changed_count
