"""The files that the tables of a run name, read by PyIceberg from the catalog, compared with the files that are stored."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import load_catalog

CATALOG = "bearlake"
DATA, METADATA = "/data/", "/metadata/"
TABLES = "table/"
"""The prefix of all files of tables."""


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """Keys that the tables of the catalog name: files of every kept snapshot, and of the metadata itself."""

    data: frozenset[str]
    metadata: frozenset[str]
    folders: frozenset[str]
    """Folders of the tables in the catalog."""


def read_catalog(url: str, environment: Mapping[str, str], base: str) -> TableFiles:
    """Read which files all tables name now; keys are relative to `base`. Raises any error of the libraries."""
    properties = {
        "type": "sql",
        "uri": url.replace("postgresql://", "postgresql+pg8000://"),
        "s3.endpoint": environment["AWS_ENDPOINT_URL"],
        "s3.access-key-id": environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": environment["AWS_SECRET_ACCESS_KEY"],
        "s3.region": environment["AWS_REGION"],
    }
    catalog: Any = load_catalog(CATALOG, **properties)  # a SQL catalog; the function's return type is more general
    data: set[str] = set()
    metadata: set[str] = set()
    folders: set[str] = set()
    try:
        for namespace in catalog.list_namespaces():
            for name in catalog.list_tables(namespace):
                table = catalog.load_table(name)
                folders.add(_key(table.metadata.location, base))
                metadata.update(_key(location, base) for location in _metadata_of(table))
                data.update(_key(location, base) for location in _data_of(table))
    finally:
        with contextlib.suppress(AttributeError):
            catalog.engine.dispose()
    return TableFiles(data=frozenset(data), metadata=frozenset(metadata), folders=frozenset(folders))


def _metadata_of(table: Any) -> Iterator[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path


def _data_of(table: Any) -> Iterator[str]:
    seen: set[str] = set()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


def _key(location: str, base: str) -> str:
    return location.removeprefix(base.rstrip("/") + "/")


def stale_files(stored: Collection[str], named: TableFiles, indexed: Collection[str]) -> list[str]:
    """Return the data files that neither a table nor the index names."""
    return sorted({key for key in stored if DATA in key} - named.data - set(indexed))


def stale_metadata(stored: Collection[str], named: TableFiles) -> list[str]:
    """Return metadata files in the folders of existing tables that no table names, including first files of lost creations.

    The catalog of a run is a SQL catalog, which fences creations, so no such file is allowed. Files of dropped tables do not count.
    """
    inside = {key for key in stored if METADATA in key and key.partition(METADATA)[0] in named.folders}
    return sorted(inside - named.metadata)


def missing(stored: Collection[str], named: TableFiles) -> list[str]:
    """Return the files that a table names and that are not stored. List the named files first, then the stored ones."""
    return sorted((named.data | named.metadata) - set(stored))
