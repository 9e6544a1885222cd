"""The folder of a backup: `manifest.json` describes it and is written last, so a folder without one is no backup.

    FOLDER/manifest.json      version, times, the copy of the metadata store, a checksum per file, and one of all this (version 2)
    FOLDER/store/…            the copy of the metadata store (`metadata/backup.py`)
    FOLDER/tables.json        by stream id: the copy of the stream's table, or null (`table/backup.py`)

The folder has credentials of users in the form in which the store has them, so only its owner may read it.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bearlake.errors import AlreadyExists, Corrupt, NotFound, Unavailable, Unsupported
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.store_copy import OpenTask, StoreCopy
from bearlake.table.backup import TableCopy

VERSION = 2
WITHOUT_CHECKSUM = 1
"""The version before: its manifest has no checksum of its own."""
CHECKSUM = "checksum"
MANIFEST = "manifest.json"
STORE = "store"
TABLES = "tables.json"
FOLDER_MODE = 0o700
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A backup. Times are milliseconds by the metadata store's clock."""

    id: str
    taken_ms: int
    expires_ms: int
    store: StoreCopy
    checksums: Mapping[str, str]
    """SHA-256 of each file but the manifest, by path in the folder."""
    program: str
    """The version of Bearlake that made the backup."""


@contextmanager
def partial_folder(folder: Path) -> Iterator[Path]:
    """Yield the empty folder in which a backup is made that becomes `folder`; what a killed backup left there is deleted.

    The folder is locked for the block, so that two backups at once do not become one.

    Raises:
        AlreadyExists: `folder` exists, or another process makes it.
        Unavailable: the folder cannot be made.
    """
    if folder.exists():
        raise AlreadyExists(f"{folder} exists: a backup makes its own folder")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        partial.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_made(partial, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not partial.exists() or not os.path.samestat(os.fstat(descriptor), partial.stat()):
                raise BlockingIOError
            for path in sorted(partial.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (partial / STORE).mkdir(mode=FOLDER_MODE)
        except BlockingIOError as error:
            raise AlreadyExists(f"another process makes the backup {folder}") from error
        except OSError as error:
            raise _not_made(partial, error) from error
        yield partial
    finally:
        os.close(descriptor)


def _not_made(partial: Path, error: OSError) -> Unavailable:
    return Unavailable(f"cannot make the folder {partial}: {error.strerror}")


def write_tables(folder: Path, tables: Mapping[str, TableCopy | None]) -> None:
    """Write the copies of the tables, by the streams' ids."""
    content = {stream_id: None if found is None else asdict(found) for stream_id, found in tables.items()}
    _write(folder / TABLES, content)


def read_tables(folder: Path) -> dict[str, TableCopy | None]:
    """Read the copies of the tables. Raises `Corrupt`."""
    found = _read(folder / TABLES)
    try:
        return {key: None if value is None else TableCopy(**value) for key, value in found.items()}
    except (TypeError, AttributeError) as error:
        raise Corrupt(f"{folder / TABLES} cannot be read: {error!r}") from error


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file but the manifest."""
    return {
        str(path.relative_to(folder)): _sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def finish(partial: Path, folder: Path, manifest: Manifest) -> None:
    """Write the manifest, and give the folder its name. The backup is durable when this returns."""
    document = {"version": VERSION, **asdict(manifest), "store": _store_document(manifest.store)}
    document = json.loads(json.dumps(document))  # as it will be read: with keys of text
    _write(partial / MANIFEST, {**document, CHECKSUM: _checksum(document)})
    for path in (partial / STORE, partial):
        _sync(path)
    try:
        partial.rename(folder)
    except OSError as error:
        raise AlreadyExists(f"another process made {folder}: {error.strerror}") from error
    _sync(folder.parent)


def read(folder: Path) -> Manifest:
    """Read a backup's manifest.

    Raises:
        NotFound: the folder is no backup, or the backup was not finished.
        Unsupported: a newer program made it.
        Corrupt: the manifest cannot be read.
    """
    if not (folder / MANIFEST).is_file():
        raise NotFound(f"{folder} is no backup: it has no {MANIFEST}")
    found = _read(folder / MANIFEST)
    try:
        version = found["version"]
        if version not in (VERSION, WITHOUT_CHECKSUM):
            raise Unsupported(f"the backup {folder} has version {version}, this program knows {VERSION}")
        if version != WITHOUT_CHECKSUM and found.pop(CHECKSUM) != _checksum(found):
            raise Corrupt(f"{folder / MANIFEST} has changed since the backup was made")
        del found["version"]
        return Manifest(**{**found, "store": _store(found["store"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"{folder / MANIFEST} cannot be read: {error!r}") from error


def check(folder: Path, manifest: Manifest) -> None:
    """Raise `Corrupt` unless the folder has exactly the files of the manifest, unchanged."""
    found = checksums(folder)
    for name in sorted({*found, *manifest.checksums}):
        if name not in found:
            raise Corrupt(f"the backup {folder} has no file {name}")
        if manifest.checksums.get(name) != found[name]:
            raise Corrupt(f"the file {name} of the backup {folder} has changed since the backup was made")


def _store_document(store: StoreCopy) -> dict[str, Any]:
    return {
        **asdict(store),
        "open_tasks": {
            str(task_id): {"ranges": [list(item) for item in task.ranges], "epochs": sorted(task.epochs)}
            for task_id, task in store.open_tasks.items()
        },
    }


def _store(found: Mapping[str, Any]) -> StoreCopy:
    tasks = {
        int(task_id): OpenTask(
            ranges=[OffsetRange(PartitionKey(p), s, e) for p, s, e in task["ranges"]], epochs=frozenset(task["epochs"])
        )
        for task_id, task in found["open_tasks"].items()
    }
    compacted = {PartitionKey(int(key)): offset for key, offset in found["compacted"].items()}
    return StoreCopy(**{**found, "compacted": compacted, "open_tasks": tasks})


def _checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest, as `sha256:…`, which does not depend on the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            yield chunk


def _read(path: Path) -> Any:  # JSON
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Corrupt(f"{path} cannot be read: {error}") from error


def _write(path: Path, document: object) -> None:
    with path.open("x", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        json.dump(document, out, indent=1)
        out.flush()
        os.fsync(out.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
