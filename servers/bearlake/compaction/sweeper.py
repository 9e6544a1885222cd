"""Deletes what is no longer needed (I7), from worklists of the metadata store, page by page.

- *WAL objects* that the index has not named for a grace period. A reader with an old name resolves its offsets again.
- *Data files* that neither the index nor a live snapshot of their table names.
- *Orphans*: objects left by a crash before their commit. The sweep lists a page per prefix, and forbids old objects before it deletes
  them, so that they can never be committed later. The store does not forbid an object that an open task has prepared (I10), because the
  table may have it before the index does (between the second and third step of a commit). An object that a live snapshot names stays,
  too; the table is fenced before the last check, so that no running commit can name the object later. The grace period only keeps the
  sweep away from running work; a short grace period loses nothing.

What a backup may need stays, too, as long as its hold is valid. If the store was replaced by a restore that it does not know, the sweeps
delete nothing and fail (`holds.py`, decision 232).

Every step may be repeated, and two workers may run it at once. A failure for one stream, page or prefix does not block others (I11). If a
table cannot be read, its objects stay.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial

from bearlake.clock import Clock
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.holds import Held, Holds, refuse_replaced
from bearlake.compaction.quarantine import KEPT_PREFIX
from bearlake.compaction.settings import SweepSettings
from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import UnusedObject
from bearlake.metadata.model import ObjectKind, Stream
from bearlake.objects import ObjectInfo, ObjectStore
from bearlake.streams import configs as stream_configs
from bearlake.streams.current_rules import current_stream
from bearlake.table import Tables
from bearlake.table.naming import is_current
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation
from bearlake.wal import keys as wal_keys

log = logging.getLogger(__name__)

TABLE_PREFIX = "table/"
_DATA_FILE = re.compile(r"table/[^/]+/[^/]+-([0-9a-f]{8})/data/[0-9a-f]{16}-[^/]+\.parquet")
"""A data file written by compaction; other engines may have files beside it. The group is the start of its stream's id."""
_CURRENT_FILE = re.compile(r"table/[^/]+/[^/]+-([0-9a-f]{8})/data/current-[^/]+\.parquet")
"""A data file of a current table. No task prepares it, and the index never names it: its table alone decides."""
_METADATA_FILE = re.compile(r"table/[^/]+/[^/]+-([0-9a-f]{8})/metadata/(00000-)?[^/]+(\.avro|\.metadata\.json)")
"""A metadata file of a table. The second group matches those of the first version, which a late creation of the table may name."""


class Sweeper:
    """Deletes unused objects; see the module docstring. `clock` is compared only with store times, over the orphans' grace period."""

    def __init__(
        self, metadata: Metadata, store: ObjectStore, tables: Tables, settings: SweepSettings, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._holds = Holds(store)
        self._known_restore = ""
        self._cursors: dict[str, str] = {}
        self._unused_isolation = FaultIsolation(log, "sweep-wal", metadata.log.head)
        self._file_isolation = FaultIsolation(log, "sweep-files", metadata.log.head)
        self._orphan_isolation = FaultIsolation(log, "sweep-orphans", metadata.log.head)
        self._orphan_table_isolation = FaultIsolation(log, "sweep-orphans-of-tables", metadata.log.head)

    async def look(self) -> Held:
        """Return the valid holds. Look after reading what may be deleted: what a later backup needs is not among it.

        Raises:
            Fenced: a restore has replaced this metadata store, so it does not know which objects are in use.
        """
        held = await self._holds.look(await self._metadata.now_ms())
        if held.restore != self._known_restore:
            await refuse_replaced(self._metadata, held.restore)
            self._known_restore = held.restore
        return held

    # -- unreferenced objects -------------------------------------------------------------------------------------

    async def sweep_wal(self) -> None:
        """Run one round over unused WAL objects."""
        number = 0
        async for page in self._unused(ObjectKind.WAL):
            number += 1
            unneeded = _not_needed(page, await self.look(), await self._metadata.now_ms())
            async with self._unused_isolation.of(f"page {number}"):
                await self._delete(unneeded, "wal")
        self._unused_isolation.end_round()

    async def sweep_files(self) -> None:
        """Run one round over unused data files; files in live snapshots stay in the list."""
        async for page in self._unused(ObjectKind.PARQUET):
            streams: dict[int, list[str]] = {}
            held = await self.look()
            unneeded = set(_not_needed(page, held, await self._metadata.now_ms()))
            for found in page:
                if found.object.key in unneeded:
                    streams.setdefault(found.stream_number, []).append(found.object.key)
            known = {stream.number: stream for stream in await self._metadata.streams.by_numbers(streams)}
            for number, keys in streams.items():
                stream = known.get(number)
                if stream is not None:
                    async with self._file_isolation.of(stream.name):
                        await self._delete(await self._dead(stream, keys, held), "data")
        self._file_isolation.end_round()

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

    async def _dead(self, stream: Stream, keys: Collection[str], held: Held) -> list[str]:
        """Return the data files that no table of the stream names or will name, also after a restore."""
        live = await self._tables.live_files(stream, keys)
        if live is not None:
            return sorted(set(keys) - live)
        if held.needs_table(stream.id):
            return []
        # Someone dropped the table of a stream that should have a table: keep the files for a restored table.
        return sorted(keys) if not _needs_table(stream) and await self._is_absent(stream) else []

    async def _is_absent(self, stream: Stream) -> bool:
        """Return whether the stream has no table, not even a renamed one. If the catalog cannot tell: whether it should have none."""
        is_absent = await self._tables.is_absent(stream)
        return not _needs_table(stream) if is_absent is None else is_absent

    async def _delete(self, keys: Collection[str], kind: str) -> None:
        if keys:
            await self._store.delete(keys)
            await self._metadata.objects.deleted(keys)
            metrics.SWEEP_OBJECTS.labels(kind).inc(len(keys))

    # -- orphans -------------------------------------------------------------------------------------------------

    async def sweep_orphans(self) -> None:
        """Check the next page of keys under each prefix; start over after the last page."""
        await self.look()  # a store that a restore has replaced fails as a whole
        for prefix in (wal_keys.PREFIX, KEPT_PREFIX, TABLE_PREFIX):
            async with self._orphan_isolation.of(prefix):
                await self.sweep_prefix(prefix)
        self._orphan_isolation.end_round()

    async def sweep_prefix(self, prefix: str) -> None:
        """Check the next page of keys under one of the three prefixes."""
        sweeps = {
            wal_keys.PREFIX: self._sweep_tokens,
            KEPT_PREFIX: self._sweep_kept_objects,
            TABLE_PREFIX: self._sweep_data_files,
        }
        old = await self._next_old(prefix)
        held = await self.look()
        await sweeps[prefix]([key for key in old if not held.needs_orphan(key)], held)
        if prefix == TABLE_PREFIX and prefix not in self._cursors:  # after the last page: all tables had their turn
            self._orphan_table_isolation.end_round()

    async def _sweep_tokens(self, old: Collection[str], _: Held) -> None:
        await self._delete_orphans(await self._metadata.log.forbid(old))

    async def _sweep_kept_objects(self, old: Collection[str], _: Held) -> None:
        await self._delete_orphans(await self._metadata.objects.forbid(old))

    async def _sweep_data_files(self, old: Collection[str], held: Held) -> None:
        forbidden = await self._metadata.objects.forbid([key for key in old if _DATA_FILE.fullmatch(key)])
        current_files = [key for key in old if _CURRENT_FILE.fullmatch(key)]
        metadata_files = [key for key in old if _METADATA_FILE.fullmatch(key)]
        dead = await self._dead_to_all([*forbidden, *current_files], partial(self._never_listed, held))
        await self._delete_orphans([*dead, *await self._dead_to_all(metadata_files, partial(self._of_dropped, held))])

    async def _next_old(self, prefix: str) -> list[str]:
        """Return the keys of the next listed page that are old enough."""
        before_ms = self._clock.now_ms() - self._settings.orphan_grace_ms
        old: list[str] = []
        count = 0
        async for found in self._store.list(prefix, self._cursors.get(prefix, "")):
            if _is_newer_by_key(found.key, before_ms):
                break  # WAL keys sort by time
            count += 1
            self._cursors[prefix] = found.key
            if _is_old(found, before_ms):
                old.append(found.key)
            if count >= self._settings.page_count:
                return old
        self._cursors.pop(prefix, None)
        return old

    async def _dead_to_all(
        self, keys: Collection[str], look: Callable[[Stream, Collection[str]], Awaitable[Collection[str]]]
    ) -> list[str]:
        """Return the keys that `look` finds dead for every stream whose table folder may have them (two ids may share a prefix)."""
        known, live = set[str](), set[str]()
        async for stream, candidates in self._by_stream(keys):
            dead: Collection[str] = ()
            async with self._orphan_table_isolation.of(stream.name):
                dead = await look(stream, candidates)
            known.update(candidates)
            live.update(set(candidates).difference(dead))
        return sorted(known - live)

    async def _of_dropped(self, held: Held, stream: Stream, keys: Collection[str]) -> Collection[str]:
        """Return the metadata files if the table was dropped with its stream: no commit can restore it, as a new table has a new UUID.

        First versions stay if the catalog cannot exclude a late creation: it would list a table without metadata, and block its name.
        """
        is_gone = stream.is_deleted or is_current(stream)
        if not is_gone or _needs_table(stream) or held.needs_table(stream.id):
            return ()
        is_absent = await self._tables.is_absent(stream)
        if is_absent is None:
            return [key for key in keys if not _is_first_version(key)]
        return keys if is_absent else ()

    async def _by_stream(self, keys: Collection[str]) -> AsyncIterator[tuple[Stream, list[str]]]:
        """Yield the streams, and those derived for current tables, whose table folders may have the files, each with those files."""
        by_id: dict[str, list[str]] = {}
        for key in keys:
            by_id.setdefault(key.split("/")[2][-8:], []).append(key)
        if by_id:
            async for stream in all_streams(self._metadata.streams, self._settings.page_count):
                for owner in (stream, current_stream(stream)):
                    if candidates := by_id.get(owner.id.hex[:8]):
                        yield owner, candidates

    async def _never_listed(self, held: Held, stream: Stream, forbidden: Collection[str]) -> list[str]:
        """Return the forbidden data files that no table of the stream names or will name.

        A live snapshot may name one: a stream may be deleted, and its task dropped, between table commit and swap.
        The tasks that prepared these files are closed. Any of their table commits still in progress replaces an older version, so it
        cannot succeed after the fence (decision 79).
        """
        live = await self._tables.live_files(stream, forbidden)
        if live is None:
            if held.needs_table(stream.id):
                return []
            return sorted(forbidden) if await self._is_absent(stream) else []
        dead = set(forbidden) - live
        if dead:
            fenced = await self._tables.fence(stream)
            live = await self._tables.live_files(stream, dead)
            if fenced is None or live is None:
                return []  # renamed or dropped in the meantime: the next round checks again
            dead -= live
        return sorted(dead)

    async def _delete_orphans(self, keys: Collection[str]) -> None:
        if keys:
            await self._store.delete(sorted(keys))
            metrics.SWEEP_OBJECTS.labels("orphan").inc(len(keys))
            log.info("orphans deleted", extra={"count": len(keys)})


def _not_needed(page: Sequence[UnusedObject], held: Held, now_ms: int) -> list[str]:
    """Return the keys of the unused objects that no backup needs."""
    return [found.object.key for found in page if not held.needs(found.object.key, now_ms - found.unused_ms)]


def _needs_table(stream: Stream) -> bool:
    """Return whether the stream should have a table, by its configs."""
    rules = stream_configs.table_rules(stream.name, stream.configs)
    return rules.is_enabled and not (stream.is_deleted and rules.is_dropped_on_delete)


def _is_first_version(key: str) -> bool:
    found = _METADATA_FILE.fullmatch(key)
    return found is not None and found.group(2) is not None


def _is_newer_by_key(key: str, before_ms: int) -> bool:
    if not key.startswith(wal_keys.PREFIX):
        return False
    try:
        return wal_keys.created_ms(key) > before_ms
    except Invalid:
        return False


def _is_old(found: ObjectInfo, before_ms: int) -> bool:
    return found.modified_ms < before_ms
