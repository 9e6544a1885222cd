"""Holds: what backups still need, so that no sweep deletes it (I7, decision 232); and marks of restores.

A backup of the metadata store names objects. The store's own references to them may go a second later, and the sweeps delete an object
that nothing has named for a few seconds. So a backup leaves a *hold* in the object store. While a hold is valid, the sweeps keep

- objects that the index stopped naming after the hold began, unless they were made after the backup was taken;
- the snapshot of each table that the backup names, and so the files of that snapshot;
- after a restore: everything that was made before a hold of the former timeline was taken.

A hold is written before the backup reads anything, and the sweeps look for holds after they have read what is unused. So whatever a sweep
deletes without having seen the hold was unused before the backup began. Ages are compared within `SLACK_MS`: a larger step back of the
store's clock since the backup began may let the sweeps delete too early. A restore finds that out before it changes anything.

A restore leaves a *mark*. A store that does not know the newest mark is the store of before the restore: its sweeps must delete nothing,
because objects of the restored store are orphans to it.

    backups/<id>/begun.json     written before the backup: keeps everything
    backups/<id>/taken.json     written after it: keeps what the backup needs
    backups/restores/<number>-<id>
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bearlake.errors import AlreadyExists, Corrupt, Fenced, NotFound
from bearlake.metadata import Metadata
from bearlake.objects import ByteRange, ObjectStore

PREFIX = "backups/"
RESTORES = f"{PREFIX}restores/"
SLACK_MS = 3_600_000
"""What clocks may differ by, or step back."""
VERSION = 1
_BEGUN, _TAKEN = "begun.json", "taken.json"
_DATA_FILE = re.compile(r".*/data/([0-9a-f]{16})-[^/]+\.parquet")
_BY_TIME = re.compile(r"(?:wal|kept)/\d{10}/([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one backup needs. Times are milliseconds by the metadata store's clock."""

    id: str
    began_ms: int
    """Before the backup read anything."""
    expires_ms: int
    """When the hold ends by itself."""
    restore: str = ""
    """The newest restore when the hold began; empty: none."""
    taken_ms: int = -1
    """When the copy of the metadata store was complete; -1: the backup is under way, and may need everything."""
    task_id: int = -1
    """The largest id of a compaction task in the backup."""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """The snapshot of each table in the backup, by the stream's id (32 hex digits)."""

    @property
    def is_taken(self) -> bool:
        """Whether the backup is complete."""
        return self.taken_ms >= 0

    def needs(self, key: str, unused_since_ms: int) -> bool:
        """Return whether the backup may need an object that the index has not named since then."""
        return unused_since_ms >= self.began_ms - SLACK_MS and not self.precedes(key)

    def precedes(self, key: str) -> bool:
        """Return whether the object was certainly made after the backup was taken."""
        if not self.is_taken:
            return False
        if found := _DATA_FILE.fullmatch(key):
            return int(found[1], 16) > self.task_id
        if found := _BY_TIME.fullmatch(key):
            return _made_ms(found[1]) > self.taken_ms + SLACK_MS
        return False


def _made_ms(text: str) -> int:
    try:
        return uuid.UUID(text).int >> 80  # UUIDv7
    except ValueError:
        return -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """All valid holds at one moment, and the newest restore (empty: none)."""

    holds: Sequence[Hold] = ()
    restore: str = ""

    def needs(self, key: str, unused_since_ms: int) -> bool:
        """Return whether a backup may need an object that the index has not named since then."""
        return any(hold.needs(key, unused_since_ms) for hold in self.holds)

    def needs_orphan(self, key: str) -> bool:
        """Return whether a backup of a former timeline may need an object that this store has never known."""
        return any(hold.restore != self.restore and not hold.precedes(key) for hold in self.holds)

    def needs_table(self, stream_id: uuid.UUID) -> bool:
        """Return whether a backup may need the files of the stream's table."""
        return any(not hold.is_taken or stream_id.hex in hold.snapshots for hold in self.holds)

    def snapshots(self, stream_id: uuid.UUID) -> frozenset[int] | None:
        """Return the snapshots of the stream's table that backups need; None: a backup that is under way may need all of them."""
        if not all(hold.is_taken for hold in self.holds):
            return None
        return frozenset(hold.snapshots[stream_id.hex] for hold in self.holds if stream_id.hex in hold.snapshots)


class Holds:
    """The holds and marks in an object store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, Hold] = {}
        """By key: objects never change."""

    async def look(self, now_ms: int) -> Held:
        """Return the holds that are valid at `now_ms`, and the newest restore. Raises `Unavailable`, `Corrupt`."""
        found, restore = await self._list()
        return Held(holds=[hold for hold in found if hold.expires_ms > now_ms], restore=restore)

    async def everything(self) -> Sequence[Hold]:
        """Return all holds, expired ones too, by when they began."""
        found, _ = await self._list()
        return sorted(found, key=lambda hold: (hold.began_ms, hold.id))

    async def _list(self) -> tuple[list[Hold], str]:
        keys = [found.key async for found in self._store.list(PREFIX)]
        restores = [key for key in keys if key.startswith(RESTORES)]
        newest: dict[str, str] = {}
        for key in keys:  # `begun` sorts before `taken`
            if key.endswith((f"/{_BEGUN}", f"/{_TAKEN}")):
                newest[key.split("/")[1]] = key
        self._known = {key: hold for key, hold in self._known.items() if key in newest.values()}
        holds = []
        for key in newest.values():
            if key not in self._known:
                try:
                    self._known[key] = _parse(key, await self._read(key))
                except NotFound:
                    continue  # released since the listing
            holds.append(self._known[key])
        return holds, max(restores)[len(RESTORES) :] if restores else ""

    async def _read(self, key: str) -> bytes:
        size = await self._store.size(key)
        return bytes((await self._store.read(key, [ByteRange(0, size)]))[0])

    async def put(self, hold: Hold) -> None:
        """Store the hold durably: once when the backup begins, and once when it is taken."""
        key = f"{PREFIX}{hold.id}/{_TAKEN if hold.is_taken else _BEGUN}"
        text = json.dumps({"version": VERSION, **asdict(hold)}, sort_keys=True)
        await self._store.put(key, [text.encode()])

    async def release(self, hold_id: str) -> None:
        """End a hold; no effect if there is none. The backup is then worth nothing once the sweeps have run."""
        await self._store.delete([f"{PREFIX}{hold_id}/{name}" for name in (_BEGUN, _TAKEN)])

    async def delete_expired(self, now_ms: int) -> None:
        """Delete the holds that have ended long ago."""
        for hold in await self.everything():
            if hold.expires_ms < now_ms - SLACK_MS:
                await self.release(hold.id)

    async def newest_restore(self) -> str:
        """Return the name of the newest restore; empty: none. Raises `Unavailable`, `Denied`."""
        newest = ""
        async for found in self._store.list(RESTORES):
            newest = found.key[len(RESTORES) :]
        return newest

    async def mark_restore(self, restore: str) -> None:
        """Mark a restore, named by `next_restore`. Safe to repeat."""
        try:
            await self._store.put(f"{RESTORES}{restore}", [b"{}"])
        except AlreadyExists:
            return

    async def next_restore(self, restore_id: str) -> str:
        """Return the name of the next restore; names sort in the order of the restores."""
        newest = await self.newest_restore()
        number = ordinal_of(newest) + 1 if newest else 1
        return f"{number:010}-{restore_id}"


def ordinal_of(restore: str) -> int:
    """Return how many restores there were with this one, by its name."""
    return int(restore.partition("-")[0])


def server_name(restore: str) -> str:
    """Return the name under which a restore registers itself in the restored store: the store then knows the restore."""
    return f"restore-{restore}"


async def refuse_replaced(metadata: Metadata, restore: str) -> None:
    """Raise `Fenced` unless the store knows the newest restore (empty: there was none)."""
    if restore and not await metadata.servers.last_epoch(server_name(restore)):
        raise Fenced(
            f"the restore {restore} has replaced this metadata store, so it does not know which objects are in use. Stop its processes."
            f" If it is the right store after all, delete the object {RESTORES}{restore}: docs/operations.md, Backup and restore"
        )


def _parse(key: str, text: bytes) -> Hold:
    try:
        found = json.loads(text)
        if found.pop("version") != VERSION:
            raise Corrupt(f"the hold {key} has a version that this program does not know")
        return Hold(**found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(f"the hold {key} cannot be read: {error!r}") from error
