"""A cache of the names in manifest lists and manifests: both are immutable, and upkeep reads those of every snapshot repeatedly.

Blocks. Thread-safe.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from threading import Lock
from typing import Generic, TypeVar

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from bearlake.table.io import Locations

C = TypeVar("C", bound=Collection[str])


class MetadataNames:
    """Names in the metadata files of one catalog's tables; keeps the most recently used, up to `count_max` names."""

    def __init__(self, locations: Locations, count_max: int) -> None:
        self._locations = locations
        self._manifests: _Bounded[tuple[str, ...]] = _Bounded(count_max)
        self._keys: _Bounded[frozenset[str]] = _Bounded(count_max)

    def manifests(self, table: Table, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the locations of a snapshot's manifests."""
        paths = self._manifests.get(snapshot.manifest_list)
        if paths is None:
            paths = tuple(manifest.manifest_path for manifest in snapshot.manifests(table.io))
            self._manifests.put(snapshot.manifest_list, paths)
        return paths

    def files(self, table: Table, snapshots: Iterable[Snapshot]) -> Iterator[frozenset[str]]:
        """Yield, once per manifest of the snapshots, the keys of the files that it names and does not delete."""
        seen: set[str] = set()
        for snapshot in snapshots:
            loaded: dict[str, ManifestFile] = {}
            for path in self.manifests(table, snapshot):
                if path in seen:
                    continue
                seen.add(path)
                keys = self._keys.get(path)
                if keys is None:
                    loaded = loaded or {found.manifest_path: found for found in snapshot.manifests(table.io)}
                    keys = self._read(loaded[path], table)
                    self._keys.put(path, keys)
                yield keys

    def _read(self, manifest: ManifestFile, table: Table) -> frozenset[str]:
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        keys = (self._locations.key_or_none(entry.data_file.file_path) for entry in entries)
        return frozenset(key for key in keys if key is not None)


class _Bounded(Generic[C]):
    """Collections by name, least recently used first, with at most `count_max` members in total."""

    def __init__(self, count_max: int) -> None:
        self._collections: OrderedDict[str, C] = OrderedDict()
        self._count_max = count_max
        self._count = 0
        self._lock = Lock()

    def get(self, name: str) -> C | None:
        with self._lock:
            members = self._collections.get(name)
            if members is not None:
                self._collections.move_to_end(name)
            return members

    def put(self, name: str, members: C) -> None:
        with self._lock:
            if name not in self._collections:
                self._collections[name] = members
                self._count += len(members) + 1
            while self._count > self._count_max and len(self._collections) > 1:
                _, gone = self._collections.popitem(last=False)
                self._count -= len(gone) + 1
