"""Listing a folder in key order, blocking; runs on a thread of the local store.

Bytewise key order is not the order of a plain directory walk: `a.b` sorts before `a/c`, since `.` is less than `/`. So a
folder sorts as its name plus a slash. Memory: one sorted directory per level. Hidden names are not objects; the walk removes old
temporary files.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

from bearlake.objects import ObjectInfo
from bearlake.objects.local_files import TEMPORARY_PREFIX


def walk(root: str, prefix: str, after: str, remove_before_ms: int) -> Iterator[ObjectInfo]:
    """Yield objects under `root` whose key starts with `prefix` and sorts after `after`, in bytewise key order.

    Leftovers of crashed puts that were last changed before `remove_before_ms` (ms since 1970) are removed.
    """
    folder = prefix[: prefix.rfind("/") + 1]
    yield from _walk_folder(root, folder, prefix, after, remove_before_ms)


def _walk_folder(root: str, folder: str, prefix: str, after: str, remove_before_ms: int) -> Iterator[ObjectInfo]:
    """Walk `folder`, which is empty or ends with a slash."""
    for key, entry in _sorted_entries(root, folder, remove_before_ms):
        if key.endswith("/"):
            if (key.startswith(prefix) or prefix.startswith(key)) and (key > after or after.startswith(key)):
                yield from _walk_folder(root, key, prefix, after, remove_before_ms)
        elif key > after and key.startswith(prefix):
            with suppress(FileNotFoundError):  # deleted in the meantime
                status = entry.stat(follow_symlinks=False)
                yield ObjectInfo(key=key, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _sorted_entries(root: str, folder: str, remove_before_ms: int) -> list[tuple[str, "os.DirEntry[str]"]]:
    entries = []
    try:
        with os.scandir(f"{root}/{folder}") as scan:
            for entry in scan:
                if entry.name.startswith("."):
                    _remove_leftover(entry, remove_before_ms)
                elif entry.is_dir(follow_symlinks=False):
                    entries.append((f"{folder}{entry.name}/", entry))
                elif entry.is_file(follow_symlinks=False):
                    entries.append((f"{folder}{entry.name}", entry))
    except (FileNotFoundError, NotADirectoryError):  # deleted in the meantime, or the prefix is not a folder
        return []
    entries.sort(key=lambda pair: pair[0])
    return entries


def _remove_leftover(entry: "os.DirEntry[str]", remove_before_ms: int) -> None:
    if entry.name.startswith(TEMPORARY_PREFIX):
        with suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000 < remove_before_ms:
                os.unlink(entry.path)
