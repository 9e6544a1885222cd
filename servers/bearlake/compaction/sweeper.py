"""Deletion of what nothing needs any more (I7), from worklists of the metadata store, page by page.

- *WAL objects* that the index has not named for a grace period. A reader that still knew the name resolves its offsets again.
- *Data files* that the index does not name and that no live snapshot of their table names.
- *Orphans*: objects that a crash left behind before their commit. Listed by prefix, a page at a time; old ones are forbidden
  first, so that they can never be committed later, and deleted then. A data file of a task that is open is left alone, since the
  table may have it without the index knowing (between the second and the third step of a commit); so is one that a live snapshot names.

Every step may be repeated, and done by two workers at once.
"""

import logging
import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

from bearlake.clock import Clock
from bearlake.compaction.settings import SweepSettings
from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import UnusedObject
from bearlake.metadata.model import ObjectKind, Stream
from bearlake.objects import ObjectInfo, ObjectStore
from bearlake.streams import configs as stream_configs
from bearlake.table import Tables
from bearlake.telemetry import metrics
from bearlake.wal import keys as wal_keys

log = logging.getLogger(__name__)

WAL_PREFIXES = (wal_keys.PREFIX, "kept/")
TABLE_PREFIX = "table/"
_DATA_FILE = re.compile(r"(table/[^/]+/[^/]+)-([0-9a-f]{8})/data/([0-9a-f]{16})-[^/]+\.parquet")
_FIRST_HEX = 16


class Sweeper:
    """See the module. `clock` is compared with the object store's times only, over the long grace period of orphans."""

    def __init__(
        self, metadata: Metadata, store: ObjectStore, tables: Tables, settings: SweepSettings, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._cursors: dict[str, str] = {}

    # -- objects that lost their references -----------------------------------------------------------------------

    async def sweep_wal(self) -> None:
        """One round over unused WAL objects."""
        async for page in self._unused(ObjectKind.WAL):
            await self._delete([found.object.key for found in page], "wal")

    async def sweep_files(self) -> None:
        """One round over unused data files; those in live snapshots stay in the list."""
        async for page in self._unused(ObjectKind.PARQUET):
            streams: dict[int, list[str]] = {}
            for found in page:
                streams.setdefault(found.stream_number, []).append(found.object.key)
            known = {stream.number: stream for stream in await self._metadata.streams.by_numbers(streams)}
            for number, keys in streams.items():
                stream = known.get(number)
                if stream is not None:
                    await self._delete(await self._dead(stream, keys), "data")

    async def _unused(self, kind: ObjectKind) -> AsyncIterator[Sequence[UnusedObject]]:
        after = ""
        limit = self._settings.page_count
        while True:
            page = await self._metadata.objects.unused(
                kind, unused_ms=self._settings.grace_ms, after=after, limit=limit
            )
            if page:
                after = page[-1].object.key
                yield page
            if len(page) < limit:
                return

    async def _dead(self, stream: Stream, keys: Collection[str]) -> list[str]:
        """Those of the stream's data files that no table names, nor will."""
        rules = stream_configs.table_rules(stream.name, stream.configs)
        if await self._tables.state(stream) is None:
            # Somebody else dropped the table of a stream that should have one: its files may be wanted for its return.
            is_wanted = rules.is_enabled and not (stream.is_deleted and rules.is_dropped_on_delete)
            return [] if is_wanted else sorted(keys)
        live = await self._tables.live_files(stream, keys)
        return sorted(set(keys) - live)

    async def _delete(self, keys: Collection[str], kind: str) -> None:
        if keys:
            await self._store.delete(keys)
            await self._metadata.objects.deleted(keys)
            metrics.SWEEP_OBJECTS.labels(kind).inc(len(keys))

    # -- orphans -------------------------------------------------------------------------------------------------

    async def sweep_orphans(self) -> None:
        """Look at the next page of keys under each prefix; behind the last one, start over next time."""
        for prefix in WAL_PREFIXES:
            old = await self._next_old(prefix)
            forbidden = await self._metadata.log.forbid(old)
            await self._delete_orphans(forbidden)
        old = await self._next_old(TABLE_PREFIX)
        closed = await self._of_closed_tasks(key for key in old if _DATA_FILE.fullmatch(key))
        forbidden = await self._metadata.log.forbid(closed)
        await self._delete_orphans(await self._unlisted(forbidden))

    async def _next_old(self, prefix: str) -> list[str]:
        """Keys that are old enough, of the next page of a listing."""
        before_ms = self._clock.now_ms() - self._settings.orphan_grace_ms
        old: list[str] = []
        count = 0
        async for found in self._store.list(prefix, self._cursors.get(prefix, "")):
            if _is_newer_by_key(found.key, before_ms):
                break  # keys of WAL objects sort by time
            count += 1
            self._cursors[prefix] = found.key
            if _is_old(found, before_ms):
                old.append(found.key)
            if count >= self._settings.page_count:
                return old
        self._cursors.pop(prefix, None)
        return old

    async def _of_closed_tasks(self, keys: Iterable[str]) -> list[str]:
        """Without files of open tasks. (A file is prepared while it is much younger than the grace period, or never.)"""
        tasks: dict[int, list[str]] = {}
        for key in keys:
            found = _DATA_FILE.fullmatch(key)
            assert found is not None
            tasks.setdefault(int(found[3], _FIRST_HEX), []).append(key)
        closed: list[str] = []
        for task_id, found_keys in sorted(tasks.items()):
            page = await self._metadata.tasks.list(after=task_id - 1, limit=1)
            if not page or page[0].id != task_id:
                closed += found_keys
        return closed

    async def _unlisted(self, keys: Collection[str]) -> list[str]:
        """Without those that a live snapshot names: a stream may be deleted, and its task dropped, between table commit and swap."""
        if not keys:
            return []
        by_id: dict[str, list[str]] = {}
        for key in keys:
            found = _DATA_FILE.fullmatch(key)
            assert found is not None
            by_id.setdefault(found[2], []).append(key)
        dead: list[str] = []
        async for stream in all_streams(self._metadata, self._settings.page_count):
            for key in by_id.get(stream.id.hex[:8], ()):
                live = await self._tables.live_files(stream, [key]) if await self._tables.state(stream) else set()
                if key not in live:
                    dead.append(key)
        return dead

    async def _delete_orphans(self, keys: Collection[str]) -> None:
        if keys:
            await self._store.delete(sorted(keys))
            metrics.SWEEP_OBJECTS.labels("orphan").inc(len(keys))
            log.info("orphans deleted", extra={"count": len(keys)})


async def all_streams(metadata: Metadata, page_count: int) -> AsyncIterator[Stream]:
    """All incarnations of all streams, deleted ones too, by number."""
    first = 1
    while True:
        page = await metadata.streams.by_numbers(range(first, first + page_count))
        if not page:
            return
        for stream in sorted(page, key=lambda stream: stream.number):
            yield stream
        first += page_count


def _is_newer_by_key(key: str, before_ms: int) -> bool:
    if not key.startswith(wal_keys.PREFIX):
        return False
    try:
        return wal_keys.created_ms(key) > before_ms
    except Invalid:
        return False


def _is_old(found: ObjectInfo, before_ms: int) -> bool:
    return found.modified_ms < before_ms
