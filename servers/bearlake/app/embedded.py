"""The data folder of `bearlake up`: a SQLite file and a folder of objects, used by one deployment at a time.

DIR/lock          held (flock) while a `bearlake up` uses the folder; contains the process id
DIR/metadata.db   metadata store
DIR/objects/      object store
DIR/catalog.db    Iceberg catalog of the tables
DIR/run/          ready files of further processes
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bearlake.errors import Invalid, Unavailable

FOLDER_MODE = 0o700


def metadata_url(folder: Path) -> str:
    """Return the URL of the metadata store in the data folder."""
    return f"sqlite://{(folder / 'metadata.db').absolute()}"


def catalog_url(folder: Path) -> str:
    """Return the URL of the Iceberg catalog in the data folder."""
    return f"sqlite://{(folder / 'catalog.db').absolute()}"


def object_store_url(folder: Path) -> str:
    """Return the URL of the object store in the data folder."""
    return (folder / "objects").absolute().as_uri()


def urls(folder: Path) -> dict[str, str]:
    """Return the settings that name the stores in the data folder."""
    return {
        "metadata.url": metadata_url(folder),
        "object_store.url": object_store_url(folder),
        "tables.catalog_url": catalog_url(folder),
    }


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock for the block.

    Raises:
        Invalid: the folder cannot be created or written.
        Unavailable: another process holds the lock.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Invalid(f"cannot use the data folder {folder}: {error.strerror}") from error
    try:
        _take(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        raise Unavailable(
            f"another bearlake (process {holder}) uses the data folder {folder}; stop it or pass another --data-dir"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
