"""Describes a view as Iceberg metadata: the table's current version, with one more snapshot that adds the tail's files.

The snapshot exists only in the answer that a reader gets, together with a manifest list and a manifest in the object store; the catalog
never lists it. Engines read it like any other. DuckDB reads the snapshot that was current at its transaction's start, which is before it
loads the table, so the snapshot is older than the load by a margin, and all others are older still.

All functions block.
Source: Apache Iceberg table spec, "Snapshots", "Manifest Lists", "Table Metadata Fields"; measured with PyIceberg, Spark and DuckDB.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, write_manifest, write_manifest_list
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from bearlake.errors import Unsupported
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_iceberg import stage_columns
from bearlake.table.commit import FORMAT_VERSION, last_number, table_name
from bearlake.table.io import Locations
from bearlake.table.manifest_entries import iceberg_file
from bearlake.table.model import DataFile

TAIL_SUMMARY: Final = "bearlake.tail"
"""Snapshot summary of a view: JSON object, partition index → [first offset, end) of its tail."""

_COMPRESSION: Final = "deflate"
_NO_SNAPSHOT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What a view adds to its table. `ranges`: partition index → offsets [start, end). `columns`: typed columns of the files."""

    ranges: Mapping[int, tuple[int, int]]
    files: Sequence[DataFile]
    columns: ColumnBook | None


class ManifestLists:
    """The manifests of snapshots, read once: a table's snapshot is that of many views. Threads may share it."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._found: OrderedDict[str, tuple[ManifestFile, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot, files: FileIO) -> tuple[ManifestFile, ...]:
        """Return the manifests of a snapshot. Blocks."""
        with self._lock:
            if (found := self._found.get(snapshot.manifest_list)) is not None:
                self._found.move_to_end(snapshot.manifest_list)
                return found
        found = tuple(snapshot.manifests(files))
        with self._lock:
            self._found[snapshot.manifest_list] = found
            while len(self._found) > self._count_max:
                self._found.popitem(last=False)
        return found


def view_id(table: Table, tail: Tail) -> int:
    """Return the snapshot id of a view: the same for the same rows, on every server, and (with 62 bits) no other's.

    Without a tail, it is the id of the table's own snapshot (-1: none).
    """
    metadata = table.metadata
    if not tail.ranges:
        return _NO_SNAPSHOT if metadata.current_snapshot_id is None else metadata.current_snapshot_id
    version = 0 if tail.columns is None else tail.columns.version
    parts = [str(metadata.table_uuid), metadata.current_snapshot_id, metadata.last_updated_ms, version]
    text = json.dumps([*parts, sorted(tail.ranges.items())])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2 or 1


def describe(
    table: Table,
    tail: Tail,
    locations: Locations,
    lists: ManifestLists,
    *,
    key: str,
    now_ms: int,
    is_written: bool = False,
) -> str:
    """Return the metadata (JSON) of a view, after its manifests are in the object store under `key` (`<key>-list.avro`).

    `now_ms`: the time of the view's snapshot, in the past by the margin. `is_written`: an earlier call with the same arguments has written
    the manifests.

    Raises:
        Unsupported: the table has a newer format.
        Conflict: another engine has given the id of a typed column to a column of its own.
    """
    if table.metadata.format_version != FORMAT_VERSION:
        raise Unsupported(
            f"{table_name(table)} has format version {table.metadata.format_version}: only version {FORMAT_VERSION} has live views"
        )
    transaction = Transaction(table)
    stage_columns(transaction, tail.columns)
    metadata = transaction.table_metadata
    document: dict[str, Any] = json.loads(metadata.model_dump_json())
    _set_back(document, now_ms)
    if tail.ranges:
        if not is_written:
            current = metadata.current_snapshot()
            manifests = () if current is None else lists.of(current, table.io)
            _write(table, metadata, tail, locations, key, manifests)
        _add_snapshot(document, tail, view_id(table, tail), _list_location(locations, key), now_ms)
    return json.dumps(document, separators=(",", ":"))


def _write(
    table: Table,
    metadata: TableMetadata,
    tail: Tail,
    locations: Locations,
    key: str,
    others: Sequence[ManifestFile],
) -> None:
    """Write the manifest of the tail, and a manifest list with it and `others`, those of the table."""
    number, manifests = view_id(table, tail), list(others)
    if tail.files:
        output = table.io.new_output(locations.location(f"{key}-manifest.avro"))
        with write_manifest(FORMAT_VERSION, metadata.spec(), metadata.schema(), output, number, _COMPRESSION) as writer:
            for file in tail.files:
                entry = iceberg_file(metadata, locations, file)
                entry.spec_id = metadata.default_spec_id
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=number,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=entry,
                    )
                )
        manifests.insert(0, writer.to_manifest_file())
    current = metadata.current_snapshot()
    parent = None if current is None else current.snapshot_id
    sequence_number = last_number(metadata) + 1
    output = table.io.new_output(_list_location(locations, key))
    with write_manifest_list(FORMAT_VERSION, output, number, parent, sequence_number, _COMPRESSION) as list_writer:
        list_writer.add_manifests(manifests)


def _list_location(locations: Locations, key: str) -> str:
    return locations.location(f"{key}-list.avro")


def _set_back(document: dict[str, Any], now_ms: int) -> None:
    """Make everything older than `now_ms`, and leave out the log of metadata files."""
    for dated in (*document.get("snapshots", ()), *document.get("snapshot-log", ())):
        dated["timestamp-ms"] = min(dated["timestamp-ms"], now_ms - 1)
    document["metadata-log"] = []
    document["last-updated-ms"] = now_ms


def _add_snapshot(document: dict[str, Any], tail: Tail, number: int, list_location: str, now_ms: int) -> None:
    row_count = sum(file.row_count for file in tail.files)
    summary = {
        "operation": Operation.APPEND.value,
        "added-data-files": str(len(tail.files)),
        "added-records": str(row_count),
        TAIL_SUMMARY: json.dumps({str(index): offsets for index, offsets in sorted(tail.ranges.items())}),
    }
    snapshot = {
        "snapshot-id": number,
        "sequence-number": document["last-sequence-number"] + 1,
        "timestamp-ms": now_ms,
        "manifest-list": list_location,
        "schema-id": document["current-schema-id"],
        "summary": summary,
    }
    parent = document.get("current-snapshot-id")
    if parent not in (None, _NO_SNAPSHOT):
        snapshot["parent-snapshot-id"] = parent
        known = next(found for found in document["snapshots"] if found["snapshot-id"] == parent)
        total = known.get("summary", {}).get("total-records", "0")
        if str(total).isdecimal():  # another engine may have written anything into the SQL catalog
            summary["total-records"] = str(int(total) + row_count)
    document.setdefault("snapshots", []).append(snapshot)
    document.setdefault("snapshot-log", []).append({"snapshot-id": number, "timestamp-ms": now_ms})
    document["current-snapshot-id"] = number
    refs = document.setdefault("refs", {})
    refs["main"] = {**refs.get("main", {"type": "branch"}), "snapshot-id": number}
    document["last-sequence-number"] += 1
